/* Tens of thousands of mappings, as a program of many small libraries, heaps and stacks may have. */
#include "conform.h"

enum { PAIRS = 10000 };
static unsigned char *pages[PAIRS];

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char text[32] = "65530";
	conform_read_file("/proc/sys/vm/max_map_count", text, sizeof text);
	if (atol(text) < 3 * PAIRS)
		conform_skip("this machine allows fewer mappings (vm.max_map_count)");
	for (int i = 0; i < PAIRS; i++) {
		/* Neighbours differ, or they would be one. */
		pages[i] = conform_map(2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
		pages[i][0] = (unsigned char)(i * 7);
		pages[i][page] = (unsigned char)(i * 11);
		BUILD(mprotect(pages[i], page, PROT_READ));
	}
	conform_ready();
	conform_wait();
	for (int i = 0; i < PAIRS; i++) {
		EXPECT("a page that is only read", pages[i][0], (unsigned char)(i * 7));
		EXPECT("a page that is written, too", pages[i][page]++, (unsigned char)(i * 11));
	}
	EXPECT("what is only read is written", conform_faults((volatile char *)pages[PAIRS / 2], true), 1);
	conform_pass();
}
