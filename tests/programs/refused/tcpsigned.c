/*
 * A TCP socket that listens with a key for signatures (TCP_MD5SIG), of which the kernel tells root alone.
 * conform: root
 */
#include "conform.h"
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct tcp_md5sig key = { .tcpm_keylen = 6, .tcpm_key = "secret" };
	conform_start(argc, argv);
	int listener = (int)BUILD(socket(AF_INET, SOCK_STREAM, 0));
	memcpy(&key.tcpm_addr, &own, sizeof own);
	if (setsockopt(listener, IPPROTO_TCP, TCP_MD5SIG, &key, sizeof key) != 0)
		conform_skip("this kernel has no signatures of TCP");
	BUILD(conform_bind(listener, (struct sockaddr *)&own, sizeof own));
	BUILD(listen(listener, 1));
	conform_expect_refusal(getpid(), listener);
	conform_ready();
	conform_wait();
	conform_pass();
}
