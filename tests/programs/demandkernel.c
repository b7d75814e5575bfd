/*
 * The kernel reads and writes memory that is not filled yet for the program: pinned, locked, populated, waited at, copied
 * from another process.
 * conform: held
 */
#include "demand.inc"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/uio.h>

enum { PAGES = 256, POPULATE_READ = 22, POPULATE_WRITE = 23 };

static char *locked, *read_in, *written_in, *direct, *woken, *spliced, *copied;

static void copy(void *unused)
{
	(void)unused;
	static char pages[8 * PAGE];
	struct iovec own = { pages, sizeof pages }, other = { copied + 20 * PAGE, sizeof pages };
	EXPECT("bytes read", BUILD(process_vm_readv(getppid(), &own, 1, &other, 1, 0)), sizeof pages);
	expect_pages("of another process", pages, 8, 7020);
	conform_fill(pages, PAGE, 1);
	own.iov_len = other.iov_len = 100;
	other.iov_base = copied + 100 * PAGE;
	EXPECT("bytes written", BUILD(process_vm_writev(getppid(), &own, 1, &other, 1, 0)), 100);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	char **all[] = { &locked, &read_in, &written_in, &direct, &woken, &spliced, &copied };
	for (int at = 0; at < 7; at++) {
		*all[at] = anonymous(PAGES);
		put_pages(*all[at], PAGES, 1000 * (at + 1));
	}
	conform_ready();
	conform_wait();

	if (mlock(locked, 16 * PAGE) != 0 && errno != ENOMEM && errno != EPERM)
		conform_fail("mlock: %s", strerror(errno));
	expect_pages("locked", locked, PAGES, 1000);
	if (madvise(read_in, 64 * PAGE, POPULATE_READ) != 0 && errno != EINVAL)
		conform_fail("MADV_POPULATE_READ: %s", strerror(errno));
	expect_pages("read in", read_in, PAGES, 2000);
	if (madvise(written_in, 64 * PAGE, POPULATE_WRITE) != 0 && errno != EINVAL)
		conform_fail("MADV_POPULATE_WRITE: %s", strerror(errno));
	expect_pages("written in", written_in, PAGES, 3000);

	/* A file system may have no direct input and output: then this is an ordinary one. */
	const char *path = conform_path("direct");
	int file = open(path, O_RDWR | O_CREAT | O_DIRECT, 0600);
	if (file < 0)
		file = BUILD(open(path, O_RDWR | O_CREAT, 0600));
	EXPECT("bytes written", BUILD(pwrite(file, direct + 4 * PAGE, 32 * PAGE, 0)), 32 * PAGE);
	EXPECT("bytes read", BUILD(pread(file, direct + 128 * PAGE, 32 * PAGE, 0)), 32 * PAGE);
	expect_pages("read directly", direct + 128 * PAGE, 32, 4004);
	expect_pages("before it", direct, 128, 4000);
	expect_pages("behind it", direct + 160 * PAGE, PAGES - 160, 4160);
	close(file);

	struct timespec moment = { 0, 1000000 };
	char expected[PAGE];
	conform_fill(expected, PAGE, 5009);
	unsigned first;
	memcpy(&first, expected, sizeof first);
	EXPECT_ERROR("a wait for the right value", syscall(SYS_futex, woken + 9 * PAGE, FUTEX_WAIT, first, &moment, NULL, 0),
		     ETIMEDOUT);
	EXPECT_ERROR("a wait for another value", syscall(SYS_futex, woken + 9 * PAGE, FUTEX_WAIT, first + 1, &moment, NULL, 0),
		     EAGAIN);
	expect_pages("waited at", woken, PAGES, 5000);

	int ends[2];
	BUILD(pipe(ends));
	struct iovec vector = { spliced + 30 * PAGE, 4 * PAGE };
	EXPECT("bytes lent", BUILD(vmsplice(ends[1], &vector, 1, 0)), 4 * PAGE);
	static char lent[4 * PAGE];
	conform_read_all(ends[0], lent, sizeof lent);
	expect_pages("lent", lent, 4, 6030);

	conform_join(conform_spawn(copy, NULL));
	conform_fill(expected, PAGE, 7100);
	if (memcmp(copied + 100 * PAGE + 100, expected + 100, PAGE - 100) != 0)
		conform_fail("what another process has not written is other than it was");
	conform_fill(expected, PAGE, 1);
	if (memcmp(copied + 100 * PAGE, expected, 100) != 0)
		conform_fail("what another process has written is not there");
	let_fill();
	expect_pages("copied", copied, 100, 7000);
	conform_pass();
}
