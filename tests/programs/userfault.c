/*
 * Pages of a process that a thread of its own fills when they are missing (userfaultfd): those that were filled, with
 * zeros or other things, are not asked for again, those that are missing are. Large enough for huge pages, which
 * would fill what is missing.
 */
#include "conform.h"
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

enum { PAGES = 2048, USER_MODE_ONLY = 1 };

static int faults;
static char *memory;
static int asked;

static void fill(uintptr_t page, unsigned seed)
{
	static char content[CONFORM_PAGE];
	conform_fill(content, sizeof content, seed);
	struct uffdio_copy copy = { .dst = page, .src = (uintptr_t)content, .len = CONFORM_PAGE };
	EXPECT("filling a page", ioctl(faults, UFFDIO_COPY, &copy), 0);
}

static void *filler(void *unused)
{
	for (;;) {
		struct pollfd wait = { .fd = faults, .events = POLLIN };
		struct uffd_msg message;
		poll(&wait, 1, -1);
		if (read(faults, &message, sizeof message) != sizeof message)
			continue;
		EXPECT("kind of message", message.event, UFFD_EVENT_PAGEFAULT);
		uintptr_t page = (uintptr_t)message.arg.pagefault.address & ~(uintptr_t)(CONFORM_PAGE - 1);
		__atomic_fetch_add(&asked, 1, __ATOMIC_SEQ_CST);
		fill(page, (unsigned)((page - (uintptr_t)memory) / CONFORM_PAGE));
	}
	return unused;
}

static void expect_page(unsigned number, unsigned seed, int questions)
{
	conform_verify("a page", memory + number * CONFORM_PAGE, CONFORM_PAGE, seed);
	EXPECT("questions", __atomic_load_n(&asked, __ATOMIC_SEQ_CST), questions);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | USER_MODE_ONLY);
	if (faults < 0)
		conform_skip("this kernel or user has no userfaultfd");
	int early = (int)BUILD(syscall(SYS_userfaultfd, O_CLOEXEC | USER_MODE_ONLY));
	BUILD(close(early));
	struct uffdio_api api = { .api = UFFD_API };
	BUILD(ioctl(faults, UFFDIO_API, &api));
	memory = conform_map(PAGES * CONFORM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	struct uffdio_register range = { .range = { (uintptr_t)memory, PAGES * CONFORM_PAGE },
					 .mode = UFFDIO_REGISTER_MODE_MISSING };
	BUILD(ioctl(faults, UFFDIO_REGISTER, &range));
	fill((uintptr_t)memory, 77);
	struct uffdio_zeropage zero = { .range = { (uintptr_t)memory + CONFORM_PAGE, CONFORM_PAGE } };
	BUILD(ioctl(faults, UFFDIO_ZEROPAGE, &zero));
	pthread_t thread;
	BUILD0(pthread_create(&thread, NULL, filler, NULL));
	expect_page(1000, 1000, 1);
	int copy = (int)BUILD(dup(faults));
	conform_ready();
	conform_wait();
	EXPECT("close-on-exec", fcntl(faults, F_GETFD), FD_CLOEXEC);
	EXPECT("close-on-exec of the copy", fcntl(copy, F_GETFD), 0);
	EXPECT("it does not wait", fcntl(copy, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
	expect_page(0, 77, 1);
	static const char zeros[CONFORM_PAGE];
	EXPECT("a page of zeros", memcmp(memory + CONFORM_PAGE, zeros, CONFORM_PAGE), 0);
	expect_page(1000, 1000, 1);
	expect_page(1001, 1001, 2);
	expect_page(2, 2, 3);
	expect_page(PAGES - 1, PAGES - 1, 4);
	conform_pass();
}
