/*
 * Huge pages of a memfd (MFD_HUGETLB) that are mapped privately, and nobody has the memfd open any more: what they do not have of
 * their own, only root can read.
 * conform: user
 */
#include "conform.h"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	enum { HUGE_SIZE = 2 << 20 };
	int fd = memfd_create("private", MFD_HUGETLB);
	if (fd < 0 || ftruncate(fd, HUGE_SIZE) != 0)
		conform_skip("this kernel has no memfd of huge pages");
	char *huge = mmap(NULL, HUGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (huge == MAP_FAILED)
		conform_skip("this machine has no huge pages to give (vm.nr_hugepages)");
	huge[5] = 7;
	BUILD(close(fd));
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	EXPECT("a byte", huge[5], 7);
	conform_pass();
}
