/* A directory that is watched by F_NOTIFY. */
#include "conform.h"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int fd = (int)BUILD(open(conform_path("."), O_RDONLY | O_DIRECTORY));
	BUILD(fcntl(fd, F_SETSIG, SIGRTMIN));
	BUILD(signal(SIGRTMIN, SIG_IGN) == SIG_ERR ? -1 : 0);
	BUILD(fcntl(fd, F_NOTIFY, DN_RENAME | DN_MULTISHOT));
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	conform_pass();
}
