/* /dev/null and its kin, read, written, and mapped. */
#include "conform.h"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	char bytes[16] = { 1 };
	int null = BUILD(open("/dev/null", O_RDWR | O_APPEND)), zero = BUILD(open("/dev/zero", O_RDWR));
	int full = BUILD(open("/dev/full", O_RDWR)), random = BUILD(open("/dev/urandom", O_RDONLY));
	char *map = conform_map(8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, zero);
	conform_fill(map, 4096, 1);
	conform_ready();
	conform_wait();
	EXPECT("read of /dev/null", read(null, bytes, sizeof bytes), 0);
	EXPECT("write to /dev/null", write(null, bytes, sizeof bytes), sizeof bytes);
	EXPECT("flags of /dev/null", fcntl(null, F_GETFL) & (O_ACCMODE | O_APPEND), O_RDWR | O_APPEND);
	EXPECT("read of /dev/zero", read(zero, bytes, sizeof bytes), sizeof bytes);
	EXPECT("byte of /dev/zero", bytes[0], 0);
	EXPECT_ERROR("write to /dev/full", write(full, bytes, 1), ENOSPC);
	EXPECT("read of /dev/urandom", read(random, bytes, sizeof bytes), sizeof bytes);
	conform_verify("private mapping of /dev/zero", map, 4096, 1);
	EXPECT("untouched byte of /dev/zero's mapping", map[4096], 0);
	conform_pass();
}
