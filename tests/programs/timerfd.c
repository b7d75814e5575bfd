/*
 * timerfd: distant, ticking, expired and unread, disarmed, on each clock. Of one with a period that was set to a time of day
 * the expirations that nobody has read go on counting, whatever becomes of the program meanwhile.
 */
#include "conform.h"
#include <sys/timerfd.h>

enum { FAR_S = 3600, TICK_MS = 50, SLACK_MS = 5 };
static const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_REALTIME };

static int64_t grid_ns;

/*
 * How often the timer of the wall clock has expired by now, or by some milliseconds from now: where its grid lies, whoever
 * looks from outside finds out as exactly as a call takes.
 */
static int64_t expired_by(int64_t from_now_ms)
{
	return (conform_clock(CLOCK_REALTIME) + from_now_ms * 1000000 - grid_ns) / (TICK_MS * 1000000) + 1;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int far[3], ticking, expired, idle;
	uint64_t count = 0;
	int64_t start = conform_clock(CLOCK_MONOTONIC);
	struct itimerspec distant = { .it_value.tv_sec = FAR_S, .it_interval.tv_sec = 77 };
	struct itimerspec fast = { .it_value.tv_nsec = 1000000, .it_interval.tv_nsec = TICK_MS * 1000000 };
	struct itimerspec once = { .it_value.tv_nsec = 1000000 }, left;
	for (int i = 0; i < 3; i++) {
		far[i] = BUILD(timerfd_create(clocks[i], TFD_NONBLOCK));
		BUILD(timerfd_settime(far[i], 0, &distant, NULL));
	}
	ticking = BUILD(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
	expired = BUILD(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
	idle = BUILD(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
	BUILD(timerfd_settime(ticking, 0, &fast, NULL));
	BUILD(timerfd_settime(expired, 0, &once, NULL));
	int daily = BUILD(timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK));
	grid_ns = conform_clock(CLOCK_REALTIME) + TICK_MS * 1000000;
	struct itimerspec absolute = { .it_value = { grid_ns / 1000000000, grid_ns % 1000000000 },
				       .it_interval = fast.it_interval };
	BUILD(timerfd_settime(daily, TFD_TIMER_ABSTIME, &absolute, NULL));
	conform_sleep_ms(3 * TICK_MS);
	conform_ready();
	conform_wait();
	int64_t passed = (conform_clock(CLOCK_MONOTONIC) - start) / 1000000;
	/* Without a time namespace the clock has gone on while the timers have not. */
	int64_t most = FAR_S * 1000 - (getenv("CKPTD_NAMESPACES") ? 0 : passed - 2000);
	for (int i = 0; i < 3; i++) {
		BUILD(timerfd_gettime(far[i], &left));
		int64_t left_ms = left.it_value.tv_sec * 1000 + left.it_value.tv_nsec / 1000000;
		EXPECT_BETWEEN("milliseconds left of a distant timer", left_ms, FAR_S * 1000 - passed - 2000,
			       most);
		EXPECT("interval of a distant timer", left.it_interval.tv_sec, 77);
		EXPECT_ERROR("distant timer", read(far[i], &count, 8), EAGAIN);
	}
	int64_t least = expired_by(-SLACK_MS);
	BUILD(read(daily, &count, 8));
	EXPECT_BETWEEN("expirations by the wall clock", count, least, expired_by(SLACK_MS));
	int64_t before = (int64_t)count;
	conform_sleep_ms(2 * TICK_MS);
	least = expired_by(-SLACK_MS) - before;
	BUILD(read(daily, &count, 8));
	EXPECT_BETWEEN("expirations by the wall clock that follow", count, least, expired_by(SLACK_MS) - before);
	BUILD(read(expired, &count, 8));
	EXPECT("expirations of a one-shot timer", count, 1);
	EXPECT_ERROR("idle timer", read(idle, &count, 8), EAGAIN);
	passed = (conform_clock(CLOCK_MONOTONIC) - start) / 1000000;
	BUILD(read(ticking, &count, 8));
	EXPECT_BETWEEN("expirations of a ticking timer", count, 1, passed / TICK_MS + 3);
	conform_sleep_ms(2 * TICK_MS + 20);
	BUILD(read(ticking, &count, 8));
	EXPECT_BETWEEN("expirations of a ticking timer that goes on", count, 1, 6);
	EXPECT("close-on-exec", fcntl(ticking, F_GETFD), FD_CLOEXEC);
	conform_pass();
}
