/* A folder that is open by way of a mount of a process's own: a restart would have it by way of the job's, with all around it. */
#include "../namespaces.h"
#include <sys/mount.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(mkdir(conform_path("folder"), 0700));
	become_inside(0, CLONE_NEWNS);
	BUILD(mount(conform_path("folder"), conform_path("folder"), NULL, MS_BIND, NULL));
	BUILD(open(conform_path("folder"), O_RDONLY | O_DIRECTORY));
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	conform_pass();
}
