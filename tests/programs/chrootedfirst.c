/*
 * The job's first process has another root directory, in which its own program does not lie; a child has a third one.
 *
 * conform: root
 */
#include "conform.h"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(mkdir(conform_path("jail"), 0755));
	BUILD(mkdir(conform_path("jail/in"), 0755));
	conform_write_all((int)BUILD(open(conform_path("jail/in/file"), O_WRONLY | O_CREAT, 0644)), "inside", 6);
	BUILD(chdir(conform_path(".")));
	/* Relative paths reach what lies outside from here on. */
	char here[] = ".", *relative[] = { argv[0], here, NULL };
	conform_start(2, relative);
	BUILD(chroot("jail"));
	pid_t child = (pid_t)BUILD(fork());
	if (child == 0) {
		BUILD(chroot("/in"));
		conform_mark("below");
		while (!conform_gone())
			conform_sleep_ms(5);
		EXPECT("file that the child finds at its root", access("/file", R_OK), 0);
		_exit(0);
	}
	conform_await("below");
	int inside = (int)BUILD(open("/in/file", O_RDONLY));
	conform_ready();
	conform_wait();
	conform_expect_bytes("file below the root", inside, "inside");
	EXPECT("file at the root", access("/in/file", R_OK), 0);
	EXPECT_ERROR("file outside of the root", access("/etc/passwd", F_OK), ENOENT);
	conform_join(child);
	conform_pass();
}
