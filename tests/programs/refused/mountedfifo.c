/* A file system of a process's own with a file in it that is neither a folder nor a link nor a regular one. */
#include "../namespaces.h"
#include <sys/mount.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(mkdir(conform_path("mounted"), 0700));
	become_inside(0, CLONE_NEWNS);
	BUILD(mount("none", conform_path("mounted"), "tmpfs", 0, NULL));
	BUILD(mkfifo(conform_path("mounted/fifo"), 0600));
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	conform_pass();
}
