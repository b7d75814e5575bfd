/*
 * A file without a name that has set-user-ID and set-group-ID bits: whoever restarts the job makes it, and must not give
 * rights with it, so it comes back without them.
 */
#include "conform.h"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	const char *path = conform_path("file");
	int fd = (int)BUILD(open(path, O_RDWR | O_CREAT, 0700));
	conform_write_all(fd, "program", 7);
	BUILD(fchmod(fd, 06755));
	BUILD(unlink(path));
	struct stat before, now;
	BUILD(fstat(fd, &before));
	EXPECT("bits that were set", before.st_mode & 07777, 06755);
	conform_ready();
	conform_wait();
	BUILD(fstat(fd, &now));
	/* Nobody can set a change time: with the old one it is the old file. */
	bool same = now.st_ctim.tv_sec == before.st_ctim.tv_sec && now.st_ctim.tv_nsec == before.st_ctim.tv_nsec;
	EXPECT("permissions", now.st_mode & 07777, same ? 06755 : 0755);
	EXPECT("length", now.st_size, 7);
	conform_pass();
}
