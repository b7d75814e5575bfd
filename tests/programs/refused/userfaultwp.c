/* A userfaultfd that is told of writes. */
#include "conform.h"
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1);
	if (fd < 0)
		conform_skip("this kernel or user has none");
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP };
	char *memory = conform_map(CONFORM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	struct uffdio_register range = { .range = { (uintptr_t)memory, CONFORM_PAGE }, .mode = UFFDIO_REGISTER_MODE_WP };
	if (ioctl(fd, UFFDIO_API, &api) != 0 || ioctl(fd, UFFDIO_REGISTER, &range) != 0)
		conform_skip("this kernel tells no writes");
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	memory[0] = 1;
	conform_pass();
}
