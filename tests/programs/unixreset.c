/* A Unix connection whose peer has closed with bytes unread: the next call is told ECONNRESET once, behind what is queued. */
#include "conform.h"
#include <sys/socket.h>

int main(int argc, char **argv)
{
	int empty[2], filled[2];
	char byte;
	conform_start(argc, argv);
	BUILD(socketpair(AF_UNIX, SOCK_STREAM, 0, empty));
	BUILD(socketpair(AF_UNIX, SOCK_STREAM, 0, filled));
	BUILD(write(empty[0], "unread", 6));
	BUILD(close(empty[1]));
	BUILD(write(filled[0], "unread", 6));
	BUILD(write(filled[1], "last", 4));
	BUILD(close(filled[1]));
	conform_ready();
	conform_wait();
	EXPECT_ERROR("reset", read(empty[0], &byte, 1), ECONNRESET);
	EXPECT("end behind it", read(empty[0], &byte, 1), 0);
	char last[4];
	conform_read_all(filled[0], last, sizeof last);
	EXPECT("bytes before a reset", memcmp(last, "last", 4), 0);
	EXPECT_ERROR("reset behind bytes", read(filled[0], &byte, 1), ECONNRESET);
	EXPECT("end behind that", read(filled[0], &byte, 1), 0);
	conform_pass();
}
