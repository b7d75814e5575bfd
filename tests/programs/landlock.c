/*
 * A process that has restricted itself (landlock_restrict_self): no call tells of it, so it is refused or stays restricted.
 * conform: optional
 */
#include "conform.h"
#include <sys/prctl.h>
#include <sys/syscall.h>

int main(int argc, char **argv)
{
	/* LANDLOCK_ACCESS_FS_MAKE_DIR */
	uint64_t handled = 1 << 7;
	conform_start(argc, argv);
	/* landlock_create_ruleset, landlock_restrict_self */
	long rules = syscall(444, &handled, sizeof handled, 0);
	if (rules < 0 && (errno == ENOSYS || errno == EOPNOTSUPP))
		conform_skip("this kernel has no Landlock");
	BUILD(rules);
	BUILD(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	BUILD(syscall(446, rules, 0));
	BUILD(close((int)rules));
	conform_ready();
	conform_wait();
	EXPECT_ERROR("a folder that may not be made", mkdir(conform_path("folder"), 0700), EACCES);
	conform_pass();
}
