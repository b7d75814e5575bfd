/* A process whose children will be in a time namespace of its own. */
#include "../namespaces.h"

int main(int argc, char **argv)
{
	enum { NEW_TIME = 0x80 };
	conform_start(argc, argv);
	become_inside(0, 0);
	if (unshare(NEW_TIME) != 0)
		conform_skip("there are no time namespaces here");
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	conform_pass();
}
