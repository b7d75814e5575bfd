/* A mount namespace in which every process has another root directory, so that none is told of all its mounts. */
#include "../namespaces.h"
#include <sys/mount.h>

static int told[2];

static void chrooted(void *unused)
{
	(void)unused;
	become_inside(0, CLONE_NEWNS);
	BUILD(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	BUILD(mount("none", conform_path("mounted"), "tmpfs", 0, NULL));
	BUILD(chroot(conform_path("mounted")));
	BUILD(chdir("/"));
	conform_write_all(told[1], "x", 1);
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	char byte;
	conform_start(argc, argv);
	BUILD(mkdir(conform_path("mounted"), 0700));
	BUILD(pipe(told));
	pid_t child = conform_spawn(chrooted, NULL);
	BUILD(read(told[0], &byte, 1));
	conform_expect_refusal(child, -1);
	conform_ready();
	conform_wait();
	BUILD(kill(child, SIGKILL));
	conform_pass();
}
