/*
 * A process with a keyring of its own (keyctl(2)), which is refused or kept.
 * conform: optional
 */
#include "conform.h"
#include <sys/syscall.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	/* KEY_SPEC_PROCESS_KEYRING */
	long key = syscall(SYS_add_key, "user", "conform", "payload", 7, -2);
	if (key < 0 && (errno == ENOSYS || errno == EPERM || errno == EACCES))
		conform_skip("no keys here");
	BUILD(key);
	conform_ready();
	conform_wait();
	/* KEYCTL_GET_KEYRING_ID */
	EXPECT_BETWEEN("keyring", syscall(SYS_keyctl, 0, -2, 0), 1, INT32_MAX);
	conform_pass();
}
