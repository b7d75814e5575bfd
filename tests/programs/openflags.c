/*
 * Flags of open(2) that F_GETFL goes on telling: of folders, one of them removed and one known by its place alone, and of a file that
 * is no symbolic link.
 *
 * conform: work=/var/tmp
 */
#include "conform.h"

enum { FILES = 5 };

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(mkdir(conform_path("folder"), 0700));
	BUILD(mkdir(conform_path("removed"), 0700));
	int files[FILES] = {
		(int)BUILD(open(conform_path("folder"), O_RDONLY | O_DIRECTORY)),
		(int)BUILD(open(conform_path("folder"), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK)),
		(int)BUILD(open(conform_path("removed"), O_RDONLY | O_DIRECTORY)),
		(int)BUILD(open(conform_path("folder"), O_PATH | O_DIRECTORY)),
		(int)BUILD(open(conform_path("file"), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600)),
	};
	int flags[FILES];
	for (int i = 0; i < FILES; i++)
		flags[i] = (int)BUILD(fcntl(files[i], F_GETFL));
	BUILD(rmdir(conform_path("removed")));
	conform_ready();
	conform_wait();
	for (int i = 0; i < FILES; i++)
		EXPECT("flags", fcntl(files[i], F_GETFL), flags[i]);
	conform_pass();
}
