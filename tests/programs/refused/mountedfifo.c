/* A file system of a process's own with a file in it that is neither a folder nor a link nor a regular one. */
#include "../namespaces.h"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	mount_inside("mounted");
	BUILD(mkfifo(conform_path("mounted/fifo"), 0600));
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	conform_pass();
}
