/* Memory that is sealed against any change of its mapping (mseal), beside memory that is not. */
#include "conform.h"
#include <sys/syscall.h>

#ifndef SYS_mseal
#define SYS_mseal 462
#endif

enum { PAGES = 6 };

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	char *memory = conform_map(PAGES * CONFORM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	char *constant = conform_map(CONFORM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	conform_fill(memory, PAGES * CONFORM_PAGE, 3);
	conform_fill(constant, CONFORM_PAGE, 4);
	BUILD(mprotect(constant, CONFORM_PAGE, PROT_READ));
	if (syscall(SYS_mseal, memory + CONFORM_PAGE, 2 * CONFORM_PAGE, 0) != 0)
		conform_skip("there is no mseal here");
	char flags[1 << 16];
	int fd = (int)BUILD(open("/proc/self/smaps", O_RDONLY));
	bool shown = false;
	for (ssize_t size; (size = read(fd, flags, sizeof flags - 1)) > 0;) {
		flags[size] = 0;
		shown = shown || strstr(flags, " sl ") != NULL;
	}
	BUILD(close(fd));
	if (!shown)
		conform_skip("this kernel does not tell what is sealed");
	BUILD(syscall(SYS_mseal, constant, CONFORM_PAGE, 0));
	conform_ready();
	conform_wait();
	conform_verify("memory", memory, PAGES * CONFORM_PAGE, 3);
	conform_verify("constant memory", constant, CONFORM_PAGE, 4);
	EXPECT_ERROR("unmapping of sealed memory", munmap(memory + CONFORM_PAGE, CONFORM_PAGE), EPERM);
	EXPECT_ERROR("another protection of it", mprotect(memory + 2 * CONFORM_PAGE, CONFORM_PAGE, PROT_READ), EPERM);
	EXPECT_ERROR("another protection of constant memory", mprotect(constant, CONFORM_PAGE, PROT_READ | PROT_WRITE), EPERM);
	memory[CONFORM_PAGE] = 1;
	BUILD(munmap(memory, CONFORM_PAGE));
	BUILD(munmap(memory + 3 * CONFORM_PAGE, 3 * CONFORM_PAGE));
	conform_pass();
}
