/* memfds as they are made by default, and sealed in other ways: mode, seals, what may still be written, executables. */
#include "conform.h"
#include <sys/syscall.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x10
#endif
#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x20
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif
#ifndef MFD_EXEC
#define MFD_EXEC 0x10U
#endif

enum { COUNT = 7, SIZE = 3 * CONFORM_PAGE };
static struct {
	const char *name;
	unsigned flags;
	int seals;
	bool writable;
	int mode;
} all[COUNT] = {
	{ "default", 0, 0, true, 0 },
	{ "executable", MFD_EXEC | MFD_ALLOW_SEALING, F_SEAL_SEAL, true, 0 },
	{ "executable-for-good", MFD_EXEC | MFD_ALLOW_SEALING, F_SEAL_EXEC, false, 0 },
	{ "executable-future", MFD_EXEC | MFD_ALLOW_SEALING, F_SEAL_FUTURE_WRITE, false, 0 },
	{ "data", MFD_NOEXEC_SEAL, F_SEAL_GROW, true, 0 },
	{ "data-of-others", MFD_NOEXEC_SEAL, F_SEAL_SEAL, true, 0644 },
	{ "unsealable-mode", 0, 0, true, 0510 },
};
/* What was found before. */
static struct stat before[COUNT];
static int seals[COUNT], fds[COUNT];

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	static char contents[SIZE];
	for (int i = 0; i < COUNT; i++) {
		int fd = memfd_create(all[i].name, all[i].flags);
		if (fd < 0 && errno == EINVAL)
			conform_skip("this kernel knows no memfds that are (not) executable");
		fds[i] = (int)BUILD(fd);
		conform_fill(contents, SIZE, (unsigned)i);
		conform_write_all(fd, contents, SIZE);
		if (all[i].mode)
			BUILD(fchmod(fd, (mode_t)all[i].mode));
		if (all[i].seals)
			BUILD(fcntl(fd, F_ADD_SEALS, all[i].seals));
		seals[i] = (int)BUILD(fcntl(fd, F_GET_SEALS));
		BUILD(fstat(fd, &before[i]));
	}
	/* One that was sealed with a writable mapping in place, which goes on being one. */
	char *mapped = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0]);
	char *executable = conform_map(SIZE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fds[1]);
	conform_ready();
	conform_wait();
	for (int i = 0; i < COUNT; i++) {
		struct stat status;
		int fd = fds[i];
		BUILD(fstat(fd, &status));
		EXPECT(all[i].name, status.st_mode, before[i].st_mode);
		EXPECT(all[i].name, status.st_uid, before[i].st_uid);
		EXPECT(all[i].name, status.st_size, before[i].st_size);
		EXPECT("seals", fcntl(fd, F_GET_SEALS), seals[i]);
		EXPECT("access mode", fcntl(fd, F_GETFL) & O_ACCMODE, O_RDWR);
		BUILD(pread(fd, contents, SIZE, 0));
		conform_verify(all[i].name, contents, SIZE, (unsigned)i);
		if (all[i].writable)
			EXPECT(all[i].name, pwrite(fd, contents, 10, 0), 10);
		else
			EXPECT_ERROR(all[i].name, pwrite(fd, contents, 10, 0), EPERM);
		if (seals[i] & F_SEAL_EXEC)
			EXPECT_ERROR("mode of a sealed memfd", fchmod(fd, status.st_mode ^ 0111), EPERM);
	}
	conform_verify("mapping", mapped, SIZE, 0);
	mapped[17]++;
	char byte;
	BUILD(pread(fds[0], &byte, 1, 17));
	EXPECT("a byte written through the mapping", byte, mapped[17]);
	conform_verify("executable mapping", executable, SIZE, 1);
	conform_pass();
}
