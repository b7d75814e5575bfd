/*
 * Edge-triggered registrations (EPOLLET) whose edges were told are not told again, but new ones are: of a pipe, a pair of
 * sockets and an eventfd; one whose edge was not told yet in an instance of its own. And parameters of busy
 * polling (EPIOCSPARAMS).
 */
#include "conform.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

struct parameters {
	uint32_t microseconds;
	uint16_t budget;
	uint8_t preferred, padding;
};
#define SET_PARAMETERS _IOW(0x8a, 1, struct parameters)
#define GET_PARAMETERS _IOR(0x8a, 2, struct parameters)

static void watch(int epoll, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event event = { .events = events | EPOLLET, .data.u64 = data };
	BUILD(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
}

int main(int argc, char **argv)
{
	int pipes[2], pair[2], fresh[2];
	struct epoll_event events[8];
	struct parameters parameters = { .microseconds = 40, .budget = 6 };
	conform_start(argc, argv);
	BUILD(pipe(pipes));
	BUILD(pipe(fresh));
	BUILD(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	int told = (int)BUILD(epoll_create1(0)), untold = (int)BUILD(epoll_create1(0));
	int counter = (int)BUILD(eventfd(3, 0));
	watch(told, pipes[0], EPOLLIN, 1);
	watch(told, pair[0], EPOLLIN | EPOLLOUT | EPOLLRDHUP, 2);
	watch(told, counter, EPOLLIN, 3);
	watch(untold, fresh[0], EPOLLIN, 4);
	BUILD(write(pipes[1], "x", 1));
	BUILD(write(fresh[1], "x", 1));
	bool has_parameters = ioctl(told, SET_PARAMETERS, &parameters) == 0;
	EXPECT("edges that are told", epoll_wait(told, events, 8, 0), 3);
	conform_ready();
	conform_wait();
	EXPECT("edges that are told again", epoll_wait(told, events, 8, 0), 0);
	BUILD(write(pipes[1], "y", 1));
	EXPECT("new edge of a pipe", epoll_wait(told, events, 8, 0), 1);
	EXPECT("whose", events[0].data.u64, 1);
	BUILD(shutdown(pair[1], SHUT_WR));
	EXPECT("new edge of a socket", epoll_wait(told, events, 8, 0), 1);
	EXPECT("which", events[0].events, EPOLLIN | EPOLLOUT | EPOLLRDHUP);
	BUILD(eventfd_write(counter, 1));
	EXPECT("new edge of an eventfd", epoll_wait(told, events, 8, 0), 1);
	EXPECT("edge that was not told", epoll_wait(untold, events, 8, 0), 1);
	EXPECT("that edge again", epoll_wait(untold, events, 8, 0), 0);
	if (has_parameters) {
		memset(&parameters, 0, sizeof parameters);
		BUILD(ioctl(told, GET_PARAMETERS, &parameters));
		EXPECT("microseconds of busy polling", parameters.microseconds, 40);
		EXPECT("packets at once", parameters.budget, 6);
	}
	conform_pass();
}
