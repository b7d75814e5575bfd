/* Calls of sockets with a limit on how long they wait (SO_RCVTIMEO, SO_SNDTIMEO): no checkpoint and no restart ends them early. */
#include "conform.h"
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

enum { PATIENT_S = 600 };

static long sent;
static int pair[2], full[2], listening, datagrams[2];
static struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { 0 } };

static void limit(int fd, int option, long milliseconds)
{
	struct timeval most = { milliseconds / 1000, milliseconds % 1000 * 1000 };
	BUILD(setsockopt(fd, SOL_SOCKET, option, &most, sizeof most));
}

static void *receives(void *unused)
{
	char bytes[8] = "";
	limit(pair[0], SO_RCVTIMEO, PATIENT_S * 1000);
	conform_mark("receives");
	EXPECT("bytes that are received", read(pair[0], bytes, 5), 5);
	EXPECT_TEXT("what they are", bytes, "later");
	return unused;
}

static void *sends(void *unused)
{
	static char bytes[4096];
	limit(full[0], SO_SNDTIMEO, PATIENT_S * 1000);
	while (send(full[0], bytes, sizeof bytes, MSG_DONTWAIT) > 0)
		sent += sizeof bytes;
	conform_mark("sends");
	EXPECT("bytes that are sent", send(full[0], bytes, 1, 0), 1);
	return unused;
}

static void *accepts(void *unused)
{
	limit(listening, SO_RCVTIMEO, PATIENT_S * 1000);
	conform_mark("accepts");
	BUILD(close((int)BUILD(accept(listening, NULL, NULL))));
	return unused;
}

static void *gives_up(void *unused)
{
	char byte;
	int64_t began = conform_clock(CLOCK_MONOTONIC);
	limit(datagrams[0], SO_RCVTIMEO, 1000);
	conform_mark("gives-up");
	EXPECT_ERROR("a wait that ends", recv(datagrams[0], &byte, 1, 0), EAGAIN);
	EXPECT_BETWEEN("how long it took, ms", (conform_clock(CLOCK_MONOTONIC) - began) / 1000000, 990, 600000);
	return unused;
}

int main(int argc, char **argv)
{
	static void *(*const bodies[])(void *) = { receives, sends, accepts, gives_up };
	static const char *const names[] = { "receives", "sends", "accepts", "gives-up" };
	enum { BODIES = sizeof bodies / sizeof *bodies };
	pthread_t threads[BODIES];
	socklen_t size = sizeof address;
	static char bytes[1 << 16];
	conform_start(argc, argv);
	BUILD(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	BUILD(socketpair(AF_UNIX, SOCK_STREAM, 0, full));
	BUILD(socketpair(AF_UNIX, SOCK_DGRAM, 0, datagrams));
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listening = (int)BUILD(socket(AF_INET, SOCK_STREAM, 0));
	BUILD(conform_bind(listening, (struct sockaddr *)&address, sizeof address));
	BUILD(listen(listening, 1));
	BUILD(getsockname(listening, (struct sockaddr *)&address, &size));
	for (int i = 0; i < BODIES; i++)
		BUILD0(pthread_create(&threads[i], NULL, bodies[i], NULL));
	for (int i = 0; i < BODIES; i++)
		conform_await(names[i]);
	conform_sleep_ms(50);
	conform_ready();
	conform_wait();
	conform_write_all(pair[1], "later", 5);
	for (long left = sent + 1; left > 0;)
		left -= BUILD(read(full[1], bytes, sizeof bytes));
	int connected = (int)BUILD(socket(AF_INET, SOCK_STREAM, 0));
	BUILD(connect(connected, (struct sockaddr *)&address, sizeof address));
	for (int i = 0; i < BODIES; i++)
		BUILD0(pthread_join(threads[i], NULL));
	conform_pass();
}
