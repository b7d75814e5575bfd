/*
 * A process with another root directory.
 *
 * conform: root
 */
#include "conform.h"

static void lives_below(void *unused)
{
	(void)unused;
	int back = (int)BUILD(open("/", O_RDONLY | O_DIRECTORY));
	BUILD(chroot(conform_path("root")));
	/* Absolute paths begin at the new root from here on; relative ones reach what conform_* would. */
	BUILD(fchdir(back));
	BUILD(close(back));
	BUILD(close((int)BUILD(open(conform_path("moved") + 1, O_WRONLY | O_CREAT, 0600))));
	const char *go = conform_path("go") + 1;
	while (access(go, F_OK) != 0)
		conform_sleep_ms(5);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(mkdir(conform_path("root"), 0700));
	pid_t child = conform_spawn(lives_below, NULL);
	conform_await("moved");
	conform_expect_refusal(child, -1);
	conform_ready();
	conform_wait();
	conform_join(child);
	conform_pass();
}
