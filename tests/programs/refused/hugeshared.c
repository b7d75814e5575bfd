/* Memory of huge pages (hugetlbfs) that is shared. */
#include "conform.h"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	enum { HUGE_SIZE = 2 << 20 };
	char *huge = mmap(NULL, HUGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	if (huge == MAP_FAILED)
		conform_skip("this machine has no huge pages to give (vm.nr_hugepages)");
	huge[5] = 7;
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	EXPECT("a byte", huge[5], 7);
	conform_pass();
}
