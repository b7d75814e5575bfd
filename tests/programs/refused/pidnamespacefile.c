/* A file of a process in a /proc that shows those of a PID namespace of the job's own. */
#include "../namespaces.h"
#include <sys/mount.h>

static int opened[2];

static void first(void *unused)
{
	(void)unused;
	BUILD(unshare(CLONE_NEWNS));
	BUILD(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	BUILD(mount("proc", "/proc", "proc", 0, NULL));
	int fd = (int)BUILD(open("/proc/1/stat", O_RDONLY));
	conform_write_all(opened[1], (char[]){ (char)fd }, 1);
	conform_wait();
	BUILD(close(fd));
}

int main(int argc, char **argv)
{
	char fd;
	conform_start(argc, argv);
	BUILD(pipe(opened));
	become_inside(0, CLONE_NEWPID);
	pid_t child = conform_spawn(first, NULL);
	BUILD(read(opened[0], &fd, 1));
	conform_expect_refusal(child, fd);
	conform_ready();
	conform_wait();
	conform_join(child);
	conform_pass();
}
