//! Archives that are encrypted for somebody: who opens them, who does not, what was changed in them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ckptd_tests::job::Failure;

use super::archives::{LOOP, expect_jobs, refused, text};
use super::greedy;
use super::stage::{Finished, JOB, Stage, expect, own};

/// A key pair of age for tests.
const SECRET: &str = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";
const PUBLIC: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";

/// Makes a key pair of SSH; its secret half.
fn ssh_key(stage: &Stage, kind: &str, passphrase: &str) -> Result<PathBuf, Failure> {
    let path = stage.home.join(format!("id_{kind}_{}", passphrase.len()));
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-t", kind, "-N", passphrase, "-f"]).arg(&path);
    expect(own(keygen.status())?.success(), || format!("ssh-keygen made no {kind}"))?;
    own(stage.account.give(&path))?;
    Ok(path)
}

fn file(stage: &Stage, name: &str, content: impl AsRef<[u8]>) -> Result<PathBuf, Failure> {
    let path = stage.home.join(name);
    own(fs::write(&path, content).and_then(|()| stage.account.give(&path)))?;
    Ok(path)
}

/// An archive that was exported with these options; its job was killed since.
fn archive(stage: &Stage, options: &[&str]) -> Result<PathBuf, Failure> {
    let running = stage.run(&["sh", "-c", LOOP])?;
    running.wait_for("ready")?;
    stage.checkpoint()?;
    let file = stage.home.join("job.tar.zst.age");
    let path = text(&file);
    stage.output(&[&["export", JOB, &path], options].concat(), "")?.expect(0)?;
    running.kill()?;
    stage.expect_gone()?;
    Ok(file)
}

fn import(stage: &Stage, file: &Path, to: &str, options: &[&str]) -> Result<Finished, Failure> {
    let (file, to) = (text(file), text(&stage.home.join(to)));
    stage.output(&[&["import", &file, "--dir", &to], options].concat(), "")
}

fn nothing(stage: &Stage, folder: &str) -> Result<(), Failure> {
    let folder = stage.home.join(folder);
    expect_jobs(&folder, 0).or_else(|failure| if folder.exists() { Err(failure) } else { Ok(()) })
}

/// Every one of several recipients opens it, by keys of age and of SSH, and the job goes on. Nothing of it is in clear.
pub fn there(stage: &Stage) -> Result<(), Failure> {
    let (curve, rsa) = (ssh_key(stage, "ed25519", "")?, ssh_key(stage, "rsa", "")?);
    let age = file(stage, "age.txt", format!("# created: today\n# {PUBLIC}\n{SECRET}\n"))?;
    let public = own(fs::read_to_string(curve.with_extension("pub")))?;
    let list = format!("# mine\n\n{PUBLIC}\n{}", public.trim_end());
    let list = text(&file(stage, "recipients", list)?);
    let rsa_public = own(fs::read_to_string(rsa.with_extension("pub")))?;
    let options = ["--recipient", rsa_public.trim_end(), "--recipients-file", &list];
    let archive = archive(stage, &options)?;
    let bytes = own(fs::read(&archive))?;
    let zstd = [0x28, 0xb5, 0x2f, 0xfd];
    expect(bytes.starts_with(b"age-encryption.org/v1\n"), || "it is not encrypted".into())?;
    expect(!bytes.windows(4).any(|four| four == zstd), || "it is in clear".into())?;
    own(fs::write(stage.home.join("go"), ""))?;
    for (name, key) in [("age", &age), ("curve", &curve), ("rsa", &rsa)] {
        let imported = import(stage, &archive, name, &["--identity", &text(key)])?.expect(0)?;
        expect(imported.out == "j\n", || format!("{name}: {imported:?}"))?;
        let state = text(&stage.home.join(name));
        let ended = stage.output(&["restart", "j", "--dir", &state], "")?.expect(0)?;
        expect(ended.out == "right\n", || format!("{name}: {ended:?}"))?;
        stage.expect_gone()?;
    }
    Ok(())
}

/// Whoever has not got the right key learns in one line what is needed, and so does whoever names a wrong one.
pub fn refusals(stage: &Stage) -> Result<(), Failure> {
    let wrong = text(&ssh_key(stage, "ed25519", "")?);
    let locked = text(&ssh_key(stage, "ed25519", "secret")?);
    let archive = archive(stage, &["--recipient", PUBLIC])?;
    refused(import(stage, &archive, "other", &[])?, "--identity FILE")?;
    let plain = text(&archive);
    let cases = [
        (&wrong, "none of the keys given opens it"),
        (&locked, "has a passphrase"),
        (&plain, "has a passphrase"),
        (&text(&stage.home.join("nowhere")), "No such file"),
        (&text(&file(stage, "words", "what is this\n")?), "holds no secret key"),
        (&text(&file(stage, "empty", "")?), "holds no secret key"),
    ];
    for (identity, words) in cases {
        refused(import(stage, &archive, "other", &["--identity", identity])?, words)
            .map_err(|f| Failure(format!("{identity}: {f}")))?;
        nothing(stage, "other")?;
    }
    let export = |option: &str, key: &str| {
        let made = stage.home.join("none");
        let ended = stage.output(&["export", JOB, &text(&made), option, key], "")?;
        expect(!made.exists(), || format!("{key}: something was written"))?;
        Ok::<_, Failure>(ended)
    };
    refused(export("--recipient", "alice")?, "is no recipient")?;
    let secret = export("--recipient", SECRET)?;
    expect(!secret.err.contains(SECRET), || "a secret key is repeated".into())?;
    refused(secret, "is a secret key")?;
    let many = format!("{PUBLIC}\n").repeat(65);
    let files = [
        ("none", "# nobody\n".to_owned(), "names no recipient"),
        ("third", format!("{PUBLIC}\n\nbob\n"), "line 3 of"),
        ("many", many, "more than 64 recipients"),
    ];
    for (name, content, words) in files {
        let list = text(&file(stage, &format!("{name}.list"), content)?);
        refused(export("--recipients-file", &list)?, words)?;
    }
    Ok(())
}

/// What was cut, changed or forged is refused in one line within little memory, and leaves nothing.
pub fn damaged(stage: &Stage) -> Result<(), Failure> {
    let key = text(&file(stage, "age.txt", SECRET)?);
    let good = archive(stage, &["--recipient", PUBLIC])?;
    let whole = own(fs::read(&good))?;
    let flip = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        bytes
    };
    // Behind the head: a number, then pieces of 64 KiB and 16 bytes each.
    let tail = |bytes: &[u8]| bytes.windows(5).position(|five| five == b"\n--- ");
    let head = tail(&whole).ok_or_else(|| Failure("no head".into()))? + 5 + 43 + 1;
    let piece = head + 16 + (64 << 10) + 16;
    let stanza = b"-> X25519 abc\n\n".repeat(1 << 20);
    let cases = [
        ("end of the head", flip(head - 48), "its head was cut short or changed"),
        ("seal of the head", flip(head - 20), "its head was cut short or changed"),
        ("cut in the head", whole[..100].to_vec(), "its head was cut short or changed"),
        ("first piece", flip(head + 20), "since it was encrypted"),
        ("middle", flip(whole.len() / 2), "since it was encrypted"),
        ("end", flip(whole.len() - 1), "since it was encrypted"),
        ("cut at the first piece", whole[..head + 16].to_vec(), "since it was encrypted"),
        ("cut between pieces", whole[..piece].to_vec(), "since it was encrypted"),
        ("cut", whole[..whole.len() - 100].to_vec(), "since it was encrypted"),
        ("longer", [&whole, &b"x"[..]].concat(), "since it was encrypted"),
        ("newer", [b"age-encryption.org/v9\n", &whole[22..]].concat(), "newer form of age"),
        ("endless head", [&whole[..22], &stanza].concat(), "its head was cut short or changed"),
        ("endless line", [&whole[..22], &[b'x'; 64 << 20]].concat(), "its head was cut short"),
        ("text", b"-----BEGIN AGE ENCRYPTED FILE-----\nYWdl\n".to_vec(), "age -d ARCHIVE"),
    ];
    for (name, bytes, words) in cases {
        let bad = file(stage, "bad.age", bytes)?;
        refused(limited(stage, &bad, &key)?, words).map_err(|f| Failure(format!("{name}: {f}")))?;
        nothing(stage, "other")?;
    }
    limited(stage, &good, &key)?.expect(0)?;
    expect_jobs(&stage.home.join("other"), 1)
}

/// An import within the memory that plain archives have to do with.
fn limited(stage: &Stage, file: &Path, key: &str) -> Result<Finished, Failure> {
    let limit = format!("-v {}", greedy::MEMORY);
    greedy::import(stage, &limit, file, &stage.home.join("other"), &["--identity", key])
}

/// Debian's age opens what ckptd encrypts, and ckptd what age encrypts.
pub fn by_age(stage: &Stage) -> Result<(), Failure> {
    let (key, ours) = (file(stage, "age.txt", SECRET)?, archive(stage, &["-r", PUBLIC])?);
    let age = |arguments: &[&str]| own(Command::new("age").args(arguments).output());
    let plain = stage.home.join("plain");
    let opened = age(&["-d", "-i", &text(&key), "-o", &text(&plain), &text(&ours)])?;
    expect(opened.status.success(), || format!("age: {opened:?}"))?;
    own(stage.account.give(&plain))?;
    import(stage, &plain, "plain-import", &[])?.expect(0)?;
    let theirs = stage.home.join("theirs.age");
    let closed = age(&["-r", PUBLIC, "-o", &text(&theirs), &text(&plain)])?;
    expect(closed.status.success(), || format!("age: {closed:?}"))?;
    own(stage.account.give(&theirs))?;
    import(stage, &theirs, "other", &["-i", &text(&key)])?.expect(0).map(drop)
}
