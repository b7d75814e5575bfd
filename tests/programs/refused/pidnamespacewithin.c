/* A process in a PID namespace within another one of the job's own. */
#include "../namespaces.h"

static void innermost(void *unused)
{
	(void)unused;
	char number[16] = "";
	EXPECT("number in the inner namespace", getpid(), 1);
	/* That of the job's own, which its /proc shows. */
	BUILD(readlink("/proc/self", number, sizeof number - 1));
	int fd = (int)BUILD(open(conform_path("number"), O_WRONLY | O_CREAT, 0600));
	conform_write_all(fd, number, strlen(number));
	BUILD(close(fd));
	conform_mark("born");
	conform_wait();
}

static void outer(void *unused)
{
	(void)unused;
	EXPECT("number in the outer namespace", getpid(), 1);
	BUILD(unshare(CLONE_NEWPID));
	conform_join(conform_spawn(innermost, NULL));
}

int main(int argc, char **argv)
{
	char number[16];
	conform_start(argc, argv);
	pid_t maker = fork();
	if (maker == 0) {
		become_inside(0, CLONE_NEWPID);
		conform_join(conform_spawn(outer, NULL));
		_exit(0);
	}
	BUILD(maker);
	conform_await("born");
	conform_read_file(conform_path("number"), number, sizeof number);
	conform_expect_refusal(atoi(number), -1);
	conform_ready();
	conform_wait();
	conform_join(maker);
	conform_pass();
}
