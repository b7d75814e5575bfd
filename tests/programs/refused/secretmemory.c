/* Memory that the kernel itself cannot read (memfd_secret). */
#include "conform.h"
#include <sys/syscall.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
#ifndef SYS_memfd_secret
	conform_skip("this processor has no memfd_secret");
#else
	int fd = (int)syscall(SYS_memfd_secret, 0);
	if (fd < 0)
		conform_skip("this kernel has no memfd_secret");
	BUILD(ftruncate(fd, CONFORM_PAGE));
	char *secret = conform_map(CONFORM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	secret[5] = 7;
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	EXPECT("a byte", secret[5], 7);
	conform_pass();
#endif
}
