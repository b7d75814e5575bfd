/* An io_uring that tells an eventfd of its completions, and one in an epoll instance. */
#include "uring.inc"
#include <sys/epoll.h>
#include <sys/eventfd.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct ring ring = ring_make(4, 0, 0), watched = ring_make(4, 0, 0);
	int event = (int)BUILD(eventfd(0, EFD_NONBLOCK)), poll = (int)BUILD(epoll_create1(0));
	BUILD(syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_EVENTFD, &event, 1));
	struct epoll_event wanted = { .events = EPOLLIN, .data.u64 = 5 }, found;
	BUILD(epoll_ctl(poll, EPOLL_CTL_ADD, watched.fd, &wanted));
	ring_idle(&ring, 3);
	ring_idle(&watched, 3);
	conform_ready();
	conform_wait();
	uint64_t value = 0;
	BUILD(read(event, &value, 8));
	EXPECT("completions told", value, 3);
	ring_idle(&ring, 2);
	BUILD(read(event, &value, 8));
	EXPECT("completions told afterwards", value, 2);
	EXPECT("nothing to read", epoll_wait(poll, &found, 1, 0), 0);
	ring_queue(&watched, IORING_OP_NOP, -1, NULL, 0, 0, 9);
	ring_submit(&watched, 0);
	EXPECT("something to read", epoll_wait(poll, &found, 1, 0), 1);
	EXPECT("which", found.data.u64, 5);
	ring_expect(&watched, 9, 0);
	conform_pass();
}
