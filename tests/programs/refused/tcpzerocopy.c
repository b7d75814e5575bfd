/* A completion of MSG_ZEROCOPY of a TCP socket that is not read yet. */
#include "conform.h"
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof own;
	int yes = 1;
	char control[256], byte;
	struct msghdr message = { .msg_control = control, .msg_controllen = sizeof control };
	conform_start(argc, argv);
	int listener = (int)BUILD(socket(AF_INET, SOCK_STREAM, 0)), sender = (int)BUILD(socket(AF_INET, SOCK_STREAM, 0));
	BUILD(conform_bind(listener, (struct sockaddr *)&own, sizeof own));
	BUILD(listen(listener, 1));
	BUILD(getsockname(listener, (struct sockaddr *)&own, &length));
	BUILD(connect(sender, (struct sockaddr *)&own, length));
	int accepted = (int)BUILD(accept(listener, NULL, NULL));
	BUILD(setsockopt(sender, SOL_SOCKET, SO_ZEROCOPY, &yes, sizeof yes));
	BUILD(send(sender, "x", 1, MSG_ZEROCOPY));
	conform_read_all(accepted, &byte, 1);
	struct pollfd set = { sender, 0, 0 };
	EXPECT("a completion that waits", poll(&set, 1, 5000), 1);
	conform_expect_refusal(getpid(), sender);
	conform_ready();
	conform_wait();
	BUILD(recvmsg(sender, &message, MSG_ERRQUEUE | MSG_DONTWAIT));
	conform_pass();
}
