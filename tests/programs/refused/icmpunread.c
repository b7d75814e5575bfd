/* An ICMP socket with an answer that nobody has read: it can't be put back. */
#include "conform.h"
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int fd = socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP);
	if (fd < 0 && (errno == EACCES || errno == EPROTONOSUPPORT))
		conform_skip("ICMP sockets are not for this group (net.ipv4.ping_group_range)");
	BUILD(fd);
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct icmphdr request = { .type = ICMP_ECHO, .un.echo.sequence = 7 }, answer;
	memset(&answer, 0, sizeof answer);
	BUILD(sendto(fd, &request, sizeof request, 0, (struct sockaddr *)&here, sizeof here));
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	EXPECT("an answer", poll(&ready, 1, 5000), 1);
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	EXPECT("bytes of the answer", recv(fd, &answer, sizeof answer, 0), sizeof answer);
	EXPECT("its sequence", answer.un.echo.sequence, 7);
	conform_pass();
}
