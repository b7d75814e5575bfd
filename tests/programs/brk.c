/* The heap's end (brk) and contents; it grows and shrinks from where it was. */
#include "conform.h"
#include <sys/syscall.h>

enum { SIZE = 1 << 20 };

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	char *start = sbrk(0);
	BUILD((long)sbrk(SIZE + 123));
	conform_fill(start, SIZE + 123, 1);
	conform_ready();
	conform_wait();
	char *end = (char *)syscall(SYS_brk, 0);
	EXPECT("end of the heap", end - start, SIZE + 123);
	conform_verify("heap", start, SIZE + 123, 1);
	EXPECT("growing the heap", (char *)sbrk(SIZE) - start, SIZE + 123);
	conform_fill(start + SIZE, SIZE, 2);
	conform_verify("grown heap", start + SIZE, SIZE, 2);
	BUILD((long)sbrk(-SIZE - 123));
	EXPECT("end of the shrunk heap", (char *)sbrk(0) - start, SIZE);
	conform_pass();
}
