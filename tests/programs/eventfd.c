/* eventfd: count, semaphore mode, flags, shared with a child that waits in it. */
#include "conform.h"
#include <sys/eventfd.h>

static int waited;

static void child(void *unused)
{
	(void)unused;
	uint64_t value;
	conform_mark("born");
	EXPECT("blocked read of an eventfd", read(waited, &value, 8), 8);
	EXPECT("value that the child read", value, 9);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	uint64_t value = 0, most = UINT64_MAX - 1;
	int plain = BUILD(eventfd(42, EFD_NONBLOCK | EFD_CLOEXEC)), counting = BUILD(eventfd(3, EFD_SEMAPHORE | EFD_NONBLOCK));
	int brimful = BUILD(eventfd(0, EFD_NONBLOCK)), copy = BUILD(dup(plain));
	BUILD(write(brimful, &most, 8));
	waited = BUILD(eventfd(0, 0));
	pid_t process = conform_spawn(child, NULL);
	conform_await("born");
	conform_sleep_ms(10);
	conform_ready();
	conform_wait();
	BUILD(read(copy, &value, 8));
	EXPECT("count", value, 42);
	EXPECT_ERROR("eventfd that was read", read(plain, &value, 8), EAGAIN);
	for (int i = 0; i < 3; i++) {
		BUILD(read(counting, &value, 8));
		EXPECT("value of a counting eventfd", value, 1);
	}
	EXPECT_ERROR("counting eventfd at zero", read(counting, &value, 8), EAGAIN);
	value = 1;
	EXPECT_ERROR("brimful eventfd", write(brimful, &value, 8), EAGAIN);
	EXPECT("close-on-exec", fcntl(plain, F_GETFD), FD_CLOEXEC);
	value = 9;
	BUILD(write(waited, &value, 8));
	conform_join(process);
	conform_pass();
}
