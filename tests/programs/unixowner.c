/*
 * A Unix socket that a process of another user listens at: its owner, its mode, and whom SO_PEERCRED names.
 * conform: root
 */
#include "conform.h"
#include <sys/socket.h>
#include <sys/un.h>

enum { USER = 1234, GROUP = 2345, MODE = 0620 };

static struct sockaddr_un address = { .sun_family = AF_UNIX };
static int told[2];

static void serve(void *argument)
{
	(void)argument;
	int listener = (int)BUILD(socket(AF_UNIX, SOCK_STREAM, 0));
	BUILD(bind(listener, (struct sockaddr *)&address, sizeof address));
	BUILD(chmod(address.sun_path, MODE));
	BUILD(chown(address.sun_path, USER, GROUP));
	BUILD(setresgid(GROUP, GROUP, GROUP));
	BUILD(setresuid(USER, USER, USER));
	BUILD(listen(listener, 3));
	conform_write_all(told[1], "", 1);
	close(told[0]);
	close(told[1]);
	/* It may not even look into the folder any more. */
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	snprintf(address.sun_path, sizeof address.sun_path, "%s", conform_path("s"));
	BUILD(chmod(conform_path("."), 0755));
	BUILD(pipe(told));
	pid_t child = conform_spawn(serve, NULL);
	struct ucred peer;
	int client;
	char byte;
	conform_read_all(told[0], &byte, 1);
	close(told[0]);
	close(told[1]);
	conform_ready();
	conform_wait();

	struct stat stat;
	BUILD(lstat(address.sun_path, &stat));
	EXPECT("its user", stat.st_uid, USER);
	EXPECT("its group", stat.st_gid, GROUP);
	EXPECT("its mode", stat.st_mode & 07777, MODE);
	client = (int)BUILD(socket(AF_UNIX, SOCK_STREAM, 0));
	if (connect(client, (struct sockaddr *)&address, sizeof address) == 0) {
		socklen_t length = sizeof peer;
		BUILD(getsockopt(client, SOL_SOCKET, SO_PEERCRED, &peer, &length));
		EXPECT("user who listens", peer.uid, USER);
		EXPECT("group who listens", peer.gid, GROUP);
		EXPECT("process that listens", peer.pid, child);
	} else {
		conform_fail("connect: %s", strerror(errno));
	}
	BUILD(kill(child, SIGKILL));
	BUILD(waitpid(child, NULL, 0));
	conform_pass();
}
