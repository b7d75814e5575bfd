/* An urgent byte (MSG_OOB) in a Unix socket that is not read yet. */
#include "conform.h"
#include <sys/socket.h>

int main(int argc, char **argv)
{
	int pair[2];
	char bytes[8] = "";
	conform_start(argc, argv);
	BUILD(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	conform_write_all(pair[0], "abc", 3);
	if (send(pair[0], "U", 1, MSG_OOB) != 1)
		conform_skip("Unix sockets have no urgent bytes here");
	conform_expect_refusal(getpid(), pair[1]);
	conform_ready();
	conform_wait();
	EXPECT("urgent byte", recv(pair[1], bytes, 1, MSG_OOB), 1);
	EXPECT("which it is", bytes[0], 'U');
	conform_expect_bytes("bytes before it", pair[1], "abc");
	conform_pass();
}
