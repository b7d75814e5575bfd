/*
 * A Unix socket with an absolute path in a process with another root directory.
 *
 * conform: root
 */
#include "conform.h"
#include <sys/socket.h>
#include <sys/un.h>

static void lives_below(void *unused)
{
	(void)unused;
	struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "/socket" };
	int back = (int)BUILD(open(".", O_RDONLY | O_DIRECTORY));
	int fd = (int)BUILD(socket(AF_UNIX, SOCK_STREAM, 0));
	BUILD(chroot("root"));
	BUILD(bind(fd, (struct sockaddr *)&name, sizeof name));
	BUILD(listen(fd, 1));
	BUILD(fchdir(back));
	BUILD(close((int)BUILD(open("bound", O_WRONLY | O_CREAT, 0600))));
	while (access("go", F_OK) != 0)
		conform_sleep_ms(5);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(chdir(conform_path(".")));
	BUILD(mkdir("root", 0700));
	pid_t child = conform_spawn(lives_below, NULL);
	conform_await("bound");
	conform_expect_refusal(child, -1);
	conform_ready();
	conform_wait();
	conform_join(child);
	conform_pass();
}
