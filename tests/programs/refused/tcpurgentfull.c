/*
 * An urgent byte (MSG_OOB) on its way to a receiver that is full: it is refused, and the stream is what it was.
 */
#include "../tcp.h"
#include <linux/sockios.h>
#include <sys/ioctl.h>

enum { BLOCKS = 14, LARGE = 1 << 20 };

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int pair[2], size = LARGE;
	enum { BYTES = BLOCKS * TCP_BLOCK };
	tcp_small_pair(AF_INET, pair);
	BUILD(setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size));
	char *block = malloc(BYTES);
	for (size_t at = 0; at < BYTES; at++)
		block[at] = (char)(at * 31 + at / 251 + 3);
	BUILD(fcntl(pair[0], F_SETFL, O_NONBLOCK));
	EXPECT("fits", write(pair[0], block, BYTES), BYTES);
	EXPECT("sent", send(pair[0], "U", 1, MSG_OOB), 1);
	BUILD(fcntl(pair[0], F_SETFL, 0));
	conform_expect_refusal(getpid(), pair[1]);
	conform_ready();
	conform_wait();
	tcp_expect_stream("before", pair[1], BYTES, 3);
	char byte = 0;
	for (int i = 0; recv(pair[1], &byte, 1, MSG_OOB) != 1 && i < 1000; i++)
		conform_sleep_ms(1);
	EXPECT("urgent", byte, 'U');
	int mark = -1;
	BUILD(ioctl(pair[1], SIOCATMARK, &mark));
	EXPECT("mark", mark, 1);
	conform_write_all(pair[0], "behind", 6);
	conform_expect_bytes("behind", pair[1], "behind");
	conform_pass();
}
