//! Keys of ssh-keygen (OpenSSH 9.2), and what it has signed with them.

/// What was signed, by `ssh-keygen -Y sign -n ckptd-login`.
pub const MESSAGE: &[u8] = b"ckptd login\nwhat is signed\n";

/// A key of Ed25519.
pub const ED25519_KEY: &str = "\
ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKfVvUpGWAu13MkfHKcjIakuz3aQ7+SXONfyY8XPu8hJ alice at desk";

/// As `ssh-keygen -l` names it.
pub const ED25519_FINGERPRINT: &str = "SHA256:+73NEpWVVtyREqoVHoessgHLqTaIIzZ/a93+O7fsB/o";

/// By that key.
pub const ED25519_SIGNATURE: &str = "\
-----BEGIN SSH SIGNATURE-----\n\
U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAgp9W9SkZYC7XcyR8cpyMhqS7Pdp\n\
Dv5Jc41/Jjxc+7yEkAAAALY2twdGQtbG9naW4AAAAAAAAABnNoYTUxMgAAAFMAAAALc3No\n\
LWVkMjU1MTkAAABAbgy97bNDWJ0G4uuRQU/pgmOrqm4zo2jWTDYbwH7OGGmLRQ4GHu7mlQ\n\
3Jw1QTYjVDVphd7ZY/+uPP5tkkp0N4Aw==\n\
-----END SSH SIGNATURE-----";

/// The same, `-O hashalg=sha256`.
pub const ED25519_SHA256: &str = "\
-----BEGIN SSH SIGNATURE-----\n\
U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAgp9W9SkZYC7XcyR8cpyMhqS7Pdp\n\
Dv5Jc41/Jjxc+7yEkAAAALY2twdGQtbG9naW4AAAAAAAAABnNoYTI1NgAAAFMAAAALc3No\n\
LWVkMjU1MTkAAABAV0zlc/QgBsqgBCecEaF5iZ9EtEKOptd7qULNmzfuNM+WrZOxKc5vZy\n\
DA+G5IIWB4SSSaAwAxaVqpboGtoAhDDw==\n\
-----END SSH SIGNATURE-----";

/// The same, `-n file`.
pub const ED25519_FILE: &str = "\
-----BEGIN SSH SIGNATURE-----\n\
U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAgp9W9SkZYC7XcyR8cpyMhqS7Pdp\n\
Dv5Jc41/Jjxc+7yEkAAAAEZmlsZQAAAAAAAAAGc2hhNTEyAAAAUwAAAAtzc2gtZWQyNTUx\n\
OQAAAEDSP1ne/amyTlzDn4xZ7Idt6QWSpLlfjgBCitYbsctkM172l0+L4OkFTJMTd2p3LM\n\
nKpOJg5gRpVQai2Log8k0A\n\
-----END SSH SIGNATURE-----";

/// Of the curve P-256.
#[cfg(feature = "all-keys")]
pub const P256: &str = "\
ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBBolNZks+NtweJSK5E5oOpYdekRF\
x82mlqRLzaSxduoc9fzZUNwqgvnRwK+BROwLzv+aOjIbt1I6CNo6gF31B1M= alice ecdsa";

/// By that key.
#[cfg(feature = "all-keys")]
pub const P256_SIGNATURE: &str = "\
-----BEGIN SSH SIGNATURE-----\n\
U1NIU0lHAAAAAQAAAGgAAAATZWNkc2Etc2hhMi1uaXN0cDI1NgAAAAhuaXN0cDI1NgAAAE\n\
EEGiU1mSz423B4lIrkTmg6lh16REXHzaaWpEvNpLF26hz1/NlQ3CqC+dHAr4FE7AvO/5o6\n\
Mhu3UjoI2jqAXfUHUwAAAAtja3B0ZC1sb2dpbgAAAAAAAAAGc2hhNTEyAAAAZQAAABNlY2\n\
RzYS1zaGEyLW5pc3RwMjU2AAAASgAAACEAzW4ThhBNevP+PEqu/Pg+droBdE/yIbQ3T5B/\n\
NdUJemMAAAAhAMM1rjlR1V1tmGyvgjTcKyR5P85/VD9Cc17T97gTIV/s\n\
-----END SSH SIGNATURE-----";

/// Of RSA, 2048 bits.
#[cfg(feature = "all-keys")]
pub const RSA: &str = "\
ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQCPaATHsKTHVhFGdWR2/LoHr5/T46ohC/B9Zl9tyWuKAXOwVHS1RBkjgPj/3Zcr\
Na/5X2cuglEVAa9aUxl/R5HYJSzkOzMJ8KQW6gc/ag6yBNj7iTPFDeSHdSvcCgvzTsLZpy6LDYmg3MPrXYZBHQt44tT+IEKXgTQM\
mxRr5HR2k0b5QvleHR31oVUtqudL2u+wn02M50W5AsOjWXV9thk3zoaC2bg6zc8hfC/Qim89P8AI0Dw6Q7H5VZ7xO8/WWoA1ocGs\
ApJTPwlbG1aRekmJEhFPZivuQJcG4frpy+Iby5v7Y9wZDJHTtfFvqX4vB/USylufi+UaGr6rngmNji8V alice rsa";

/// By that key.
#[cfg(feature = "all-keys")]
pub const RSA_SIGNATURE: &str = "\
-----BEGIN SSH SIGNATURE-----\n\
U1NIU0lHAAAAAQAAARcAAAAHc3NoLXJzYQAAAAMBAAEAAAEBAI9oBMewpMdWEUZ1ZHb8ug\n\
evn9PjqiEL8H1mX23Ja4oBc7BUdLVEGSOA+P/dlys1r/lfZy6CURUBr1pTGX9HkdglLOQ7\n\
MwnwpBbqBz9qDrIE2PuJM8UN5Id1K9wKC/NOwtmnLosNiaDcw+tdhkEdC3ji1P4gQpeBNA\n\
ybFGvkdHaTRvlC+V4dHfWhVS2q50va77CfTYznRbkCw6NZdX22GTfOhoLZuDrNzyF8L9CK\n\
bz0/wAjQPDpDsflVnvE7z9ZagDWhwawCklM/CVsbVpF6SYkSEU9mK+5Alwbh+unL4hvLm/\n\
tj3BkMkdO18W+pfi8H9RLKW5+L5RoavqueCY2OLxUAAAALY2twdGQtbG9naW4AAAAAAAAA\n\
BnNoYTUxMgAAARQAAAAMcnNhLXNoYTItNTEyAAABADDG7U0hsufid/Fc+k4QP73p1summ+\n\
7+ThZKAHUr4cE0ePYHXjoBR1Q37/Lb271uHdXz3GBLmk4vp/jlNPDFsOUK+X/q+IUXCOp5\n\
UtQPXQMbFwLozWKwTBG3U6yykydc8/+IClayhikE8CdwMfL6jw2LEEGE+SVkheO9ImnRPy\n\
rxlIxETP3qPgGlKwwIxklKPeyjtG4lmevCDSL5qvngGQ4Dps+CXg2q3MccshzptTRerUNQ\n\
g/aKx+0TRucjc5/Sq0NZhgyvECdBMNEp3aJm/kOyfhcHyPgY8APy6G8dS+9jbawtzjWj3i\n\
XQQTSyP6NtcycISA7pBdLBJZ3hWmfz8o8=\n\
-----END SSH SIGNATURE-----";

/// Of RSA, 1024 bits.
#[cfg(feature = "all-keys")]
pub const RSA_1024: &str = "\
ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQC/7RiWCwsRzvHGm96iWdRlcWK8oY8SNqIysMXqR3BSoau3gkteeaSk+/gb4xKK\
6GvJowpBRa6c6Kn7mgoY054N1SURNN9GQw+SCz/slv/JCWOOdipX9u/7DahJZ0ZrrBGqjOl9iLZdqQLhXhyEhqjI0jz7lbr8d3oq\
qvBap/HaCw== weak";

/// Of the curve P-384.
#[cfg(feature = "all-keys")]
pub const P384: &str = "\
ecdsa-sha2-nistp384 AAAAE2VjZHNhLXNoYTItbmlzdHAzODQAAAAIbmlzdHAzODQAAABhBPKCxFFDITaqqw31RwXDs2VRjsNI\
guC9wPgxrvMeXim+OKVQp+m0cOXoHusPy4ekLRLqtE8DL0ZhwowJnSy4kN0RF5RPuRDbHTwHqqTejnZXxS6lNlMuVIeTFCX5IAR2\
0A== alice 384";

/// Of DSA.
#[cfg(feature = "all-keys")]
pub const DSA: &str = "\
ssh-dss AAAAB3NzaC1kc3MAAACBAK0PxOFqaXogTzK5EuiTiAFdYjiTRCd4IUGB7pAawGzblaGKOHeQned8sT80thFglCPWLdt+\
JvtfOFPhi0a7v6WOUhqp+Me4/Tggf4Bn8lhFFeuWUFF5246oZgBWw3szBtyph22JMx9VTqamRkLGiPTunjoW7ZOhNBisjGv20lqJ\
AAAAFQCS6IdWwX/ZUPlCnW2HaAhuCkD1ewAAAIByE6bE0h9kxS76TZcYzNOMCh8OGA2xHilGJob07HTe7OnXbPjTn15+n2P7un4O\
1YjY9tXBpOU0swakxJNI4F4EIO5127z8ilmHJhMqpwJFE7C+mKk7pTaaiLYV/vq0aY5iKoLdiMWXCyeZ4Y4Y/dfqc2esmFJ4mSzT\
Rr/ucxC4IQAAAIBkdtrmRIi/FhsW8PWwR6qFJ+jgy6YZ7ho1qSQTAEBpe6uCwmXnUQPB5clv5t1yyFImjmyZo9wS6OtzzbgjhFqV\
8nkaR55tceyxX+JRY/hWIoErwBMm4+4kpcbsy07ntXGufHUCXeZDssrKxAkQGY5diIc1k/z6w3drkD2kVbmdrQ== old";

/// Keys that are taken, and their kinds.
#[cfg(feature = "all-keys")]
pub const KEYS: &[(&str, &str)] =
    &[(ED25519_KEY, "ssh-ed25519"), (P256, "ecdsa-sha2-nistp256"), (RSA, "ssh-rsa")];
#[cfg(not(feature = "all-keys"))]
pub const KEYS: &[(&str, &str)] = &[(ED25519_KEY, "ssh-ed25519")];

/// What keys that are taken have signed.
#[cfg(feature = "all-keys")]
pub const SIGNATURES: &[(&str, &str)] = &[
    (ED25519_KEY, ED25519_SIGNATURE),
    (ED25519_KEY, ED25519_SHA256),
    (P256, P256_SIGNATURE),
    (RSA, RSA_SIGNATURE),
];
#[cfg(not(feature = "all-keys"))]
pub const SIGNATURES: &[(&str, &str)] =
    &[(ED25519_KEY, ED25519_SIGNATURE), (ED25519_KEY, ED25519_SHA256)];
