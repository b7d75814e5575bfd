/* A Unix socket whose path fills all of its room, so that no zero byte ends it. */
#include "conform.h"
#include <sys/socket.h>
#include <sys/un.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct sockaddr_un address = { .sun_family = AF_UNIX }, now;
	socklen_t length = sizeof now;
	char byte;
	memset(address.sun_path, 'p', sizeof address.sun_path);
	BUILD(chdir(conform_path(".")));
	int receiver = (int)BUILD(socket(AF_UNIX, SOCK_DGRAM, 0));
	BUILD(bind(receiver, (struct sockaddr *)&address, sizeof address));
	int connected = (int)BUILD(socket(AF_UNIX, SOCK_DGRAM, 0));
	BUILD(connect(connected, (struct sockaddr *)&address, sizeof address));
	BUILD(send(connected, "1", 1, 0));
	conform_ready();
	conform_wait();
	BUILD(getsockname(receiver, (struct sockaddr *)&now, &length));
	EXPECT("the path", memcmp(now.sun_path, address.sun_path, sizeof now.sun_path), 0);
	int other = (int)BUILD(socket(AF_UNIX, SOCK_DGRAM, 0));
	EXPECT("sent to the path", sendto(other, "2", 1, 0, (struct sockaddr *)&address, sizeof address), 1);
	EXPECT("sent to the peer", send(connected, "3", 1, 0), 1);
	for (char expected = '1'; expected <= '3'; expected++) {
		EXPECT("received", recv(receiver, &byte, 1, MSG_DONTWAIT), 1);
		EXPECT("what was received", byte, expected);
	}
	conform_pass();
}
