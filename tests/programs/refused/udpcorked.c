/* A UDP datagram of which a part is held back (MSG_MORE). */
#include "conform.h"
#include <netinet/in.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof own;
	char bytes[16] = "";
	conform_start(argc, argv);
	int receiver = (int)BUILD(socket(AF_INET, SOCK_DGRAM, 0)), sender = (int)BUILD(socket(AF_INET, SOCK_DGRAM, 0));
	BUILD(conform_bind(receiver, (struct sockaddr *)&own, sizeof own));
	BUILD(getsockname(receiver, (struct sockaddr *)&own, &length));
	BUILD(sendto(sender, "one ", 4, MSG_MORE, (struct sockaddr *)&own, length));
	conform_expect_refusal(getpid(), sender);
	conform_ready();
	conform_wait();
	BUILD(send(sender, "datagram", 8, 0));
	EXPECT("length", recv(receiver, bytes, sizeof bytes - 1, 0), 12);
	EXPECT_TEXT("both parts", bytes, "one datagram");
	conform_pass();
}
