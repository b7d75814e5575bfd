/*
 * A child whose main thread ends between two checkpoints, while another one goes on: what was known of its memory by the main
 * thread's number is neither in the way nor taken for true.
 */
#include "conform.h"
#include <pthread.h>
#include <sys/syscall.h>

enum { STATUS = 37, SIZE = 6 << 20, LASTS_MS = 150 };

static char *memory;

static void *goes_on(void *unused)
{
	(void)unused;
	conform_mark("goes-on");
	conform_wait();
	conform_verify("memory", memory, SIZE, 5);
	exit(STATUS);
}

static void child(void *unused)
{
	(void)unused;
	pthread_t other;
	memory = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	conform_fill(memory, SIZE, 5);
	BUILD0(pthread_create(&other, NULL, goes_on, NULL));
	conform_await("begun");
	conform_sleep_ms(LASTS_MS);
	BUILD(syscall(SYS_exit, STATUS));
}

int main(int argc, char **argv)
{
	int status;
	conform_start(argc, argv);
	pid_t process = conform_spawn(child, NULL);
	conform_await("goes-on");
	conform_ready();
	conform_mark("begun");
	conform_wait();
	EXPECT("child that ends", waitpid(process, &status, 0), process);
	EXPECT("status of a child", status, STATUS << 8);
	conform_pass();
}
