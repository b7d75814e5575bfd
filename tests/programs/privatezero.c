/*
 * A private mapping of shared anonymous memory, which /proc names "/dev/zero (deleted)", beside one of the device.
 * conform: root
 */
#include "conform.h"

enum { PAGE = CONFORM_PAGE, SIZE = 4 * PAGE };

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	char *shared = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
	conform_fill(shared, SIZE, 5);
	char path[128];
	snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", (unsigned long)shared, (unsigned long)shared + SIZE);
	int fd = open(path, O_RDWR);
	if (fd < 0)
		conform_skip("no /proc/self/map_files");
	char *private = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd);
	BUILD(munmap(shared, SIZE));
	BUILD(close(fd));
	fd = BUILD(open("/dev/zero", O_RDWR));
	char *device = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd);
	device[PAGE] = 1;
	conform_ready();
	conform_wait();
	conform_verify("private mapping of shared memory", private, SIZE, 5);
	EXPECT("byte of the device's mapping", device[PAGE], 1);
	EXPECT("byte of an untouched page of it", device[0], 0);
	BUILD(madvise(device, SIZE, MADV_DONTNEED));
	EXPECT("byte of a page that was given up", device[PAGE], 0);
	conform_pass();
}
