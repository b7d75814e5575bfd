/*
 * A context of asynchronous input and output (io_setup): what is in flight in it can't be seen.
 */
#include "conform.h"
#include <linux/aio_abi.h>
#include <sys/syscall.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	aio_context_t context = 0;
	if (syscall(SYS_io_setup, 8, &context) != 0 && errno == ENOSYS)
		conform_skip("this kernel has no io_setup");
	EXPECT("there is a context", context != 0, 1);
	char bytes[4] = "";
	int fd = (int)BUILD(open(conform_path("file"), O_RDWR | O_CREAT, 0600));
	conform_write_all(fd, "abcd", 4);
	struct iocb order = { .aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = (uint32_t)fd,
			      .aio_buf = (uintptr_t)bytes, .aio_nbytes = 4 };
	struct iocb *orders[] = { &order };
	BUILD(syscall(SYS_io_submit, context, 1, orders));
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	struct io_event event;
	EXPECT("events", syscall(SYS_io_getevents, context, 1, 1, &event, NULL), 1);
	EXPECT("bytes read", event.res, 4);
	EXPECT_TEXT("what was read", bytes[0] == 'a' && bytes[3] == 'd' ? "abcd" : "others", "abcd");
	BUILD(syscall(SYS_io_destroy, context));
	conform_pass();
}
