/* A descriptor of a namespace in which no process is any more. */
#include "../namespaces.h"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	become_inside(0, CLONE_NEWUTS);
	int fd = (int)BUILD(open("/proc/self/ns/uts", O_RDONLY));
	BUILD(unshare(CLONE_NEWUTS));
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	conform_pass();
}
