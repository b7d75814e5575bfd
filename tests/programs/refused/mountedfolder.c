/* A folder that is open in a file system that a process has mounted in a mount namespace of its own. */
#include "../namespaces.h"
#include <sys/mount.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(mkdir(conform_path("mounted"), 0700));
	become_inside(0, CLONE_NEWNS);
	BUILD(mount("none", conform_path("mounted"), "tmpfs", 0, NULL));
	BUILD(mkdir(conform_path("mounted/folder"), 0700));
	BUILD(open(conform_path("mounted/folder"), O_RDONLY | O_DIRECTORY));
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	conform_pass();
}
