/*
 * A folder of a mount that is in no place (open_tree(2)).
 * conform: root
 */
#include "../conform.h"
#include <sys/syscall.h>

#ifndef OPEN_TREE_CLONE
#define OPEN_TREE_CLONE 1
#endif
#ifndef SYS_open_tree
#define SYS_open_tree 428
#endif

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int tree = (int)syscall(SYS_open_tree, AT_FDCWD, conform_path("."), OPEN_TREE_CLONE | O_CLOEXEC);
	if (tree < 0 && (errno == ENOSYS || errno == EPERM || errno == EINVAL))
		conform_skip("no mounts here");
	BUILD(tree);
	conform_expect_refusal(getpid(), tree);
	conform_ready();
	conform_wait();
	close(BUILD(openat(tree, "inside", O_CREAT | O_WRONLY, 0600)));
	BUILD(access(conform_path("inside"), F_OK));
	conform_pass();
}
