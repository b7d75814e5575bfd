/* A process that has unmapped the kernel's code and data in it (vdso(7)). */
#include "../conform.h"
#include <sys/syscall.h>
#include <time.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
#if !defined __x86_64__ && !defined __aarch64__
	conform_skip("here the C library's calls, or a checkpoint's, are made elsewhere");
#endif
	static char maps[64 * 1024];
	conform_expect_refusal(getpid(), -1);
	conform_read_file("/proc/self/maps", maps, sizeof maps);
	for (char *line = maps, *end; (end = strchr(line, '\n')); line = end + 1) {
		unsigned long from, to;
		*end = 0;
		bool own = strstr(line, "[vdso]") || strstr(line, "[vvar");
		if (own && sscanf(line, "%lx-%lx", &from, &to) == 2)
			BUILD(syscall(SYS_munmap, from, to - from));
	}
	conform_ready();
	conform_wait();
	conform_pass();
}
