/* Files opened for direct access (O_DIRECT): on their own path, in a session directory, and deleted; also O_NOATIME and O_DSYNC. */
#include "conform.h"

enum { BLOCK = 4096, FILES = 2 };

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	static const char *const names[FILES] = { "named", "deleted" };
	int fds[FILES], flags[FILES];
	char *block = conform_map(BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	for (int i = 0; i < FILES; i++) {
		fds[i] = open(conform_path(names[i]), O_RDWR | O_CREAT | O_DIRECT | O_DSYNC | O_NOATIME, 0600);
		if (fds[i] < 0)
			conform_skip("no O_DIRECT here");
		conform_fill(block, BLOCK, (unsigned)i);
		conform_write_all(fds[i], block, BLOCK);
		conform_write_all(fds[i], block, BLOCK);
		BUILD(lseek(fds[i], BLOCK, SEEK_SET));
		flags[i] = (int)BUILD(fcntl(fds[i], F_GETFL));
	}
	BUILD(unlink(conform_path("deleted")));
	conform_ready();
	conform_wait();
	for (int i = 0; i < FILES; i++) {
		EXPECT(names[i], fcntl(fds[i], F_GETFL), flags[i]);
		EXPECT(names[i], read(fds[i], block, BLOCK), BLOCK);
		conform_verify(names[i], block, BLOCK, (unsigned)i);
		EXPECT_ERROR("a read without alignment", pread(fds[i], block + 1, 100, 0), EINVAL);
	}
	conform_pass();
}
