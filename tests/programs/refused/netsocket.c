/* A socket in a network namespace of a process's own. */
#include "../namespaces.h"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	become_inside(0, CLONE_NEWNET);
	int fd = (int)BUILD(socket(AF_INET, SOCK_STREAM, 0));
	struct sockaddr any = { .sa_family = AF_INET };
	BUILD(bind(fd, &any, sizeof any + 0));
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	conform_pass();
}
