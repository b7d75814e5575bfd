/* A PID namespace for a process's children, in which there is none yet. */
#include "../namespaces.h"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	if (unshare(CLONE_NEWPID) != 0)
		become_inside(0, CLONE_NEWPID);
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	conform_pass();
}
