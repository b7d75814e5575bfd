/* The key of the cookies of TCP Fast Open (TCP_FASTOPEN_KEY). */
#include "conform.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#ifndef TCP_FASTOPEN_KEY
#define TCP_FASTOPEN_KEY 33
#endif

int main(int argc, char **argv)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int length = 5;
	char key[33] = "";
	conform_start(argc, argv);
	int listener = (int)BUILD(socket(AF_INET, SOCK_STREAM, 0));
	BUILD(conform_bind(listener, (struct sockaddr *)&own, sizeof own));
	BUILD(setsockopt(listener, IPPROTO_TCP, TCP_FASTOPEN, &length, sizeof length));
	if (setsockopt(listener, IPPROTO_TCP, TCP_FASTOPEN_KEY, "0123456789abcdef", 16) != 0)
		conform_skip("no such option");
	BUILD(listen(listener, 4));
	conform_ready();
	conform_wait();
	socklen_t size = 32;
	BUILD(getsockopt(listener, IPPROTO_TCP, TCP_FASTOPEN_KEY, key, &size));
	EXPECT("length of the key", size, 16);
	EXPECT_TEXT("key", key, "0123456789abcdef");
	conform_pass();
}
