/* An error in the error queue of a UDP socket (IP_RECVERR). */
#include "conform.h"
#include <netinet/in.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof own;
	int yes = 1;
	char bytes[16], control[512];
	struct iovec part = { bytes, sizeof bytes };
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control,
	};
	conform_start(argc, argv);
	int closed = (int)BUILD(socket(AF_INET, SOCK_DGRAM, 0)), sender = (int)BUILD(socket(AF_INET, SOCK_DGRAM, 0));
	BUILD(conform_bind(closed, (struct sockaddr *)&own, sizeof own));
	BUILD(getsockname(closed, (struct sockaddr *)&own, &length));
	BUILD(close(closed));
	BUILD(setsockopt(sender, IPPROTO_IP, IP_RECVERR, &yes, sizeof yes));
	BUILD(connect(sender, (struct sockaddr *)&own, length));
	BUILD(send(sender, "anybody?", 8, 0));
	conform_sleep_ms(20);
	conform_expect_refusal(getpid(), sender);
	conform_ready();
	conform_wait();
	EXPECT("what was sent in vain", recvmsg(sender, &message, MSG_ERRQUEUE | MSG_DONTWAIT), 8);
	conform_pass();
}
