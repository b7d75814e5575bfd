/*
 * Files outside of the session directories that are mapped and written, one of them with a name that looks like a line feed as
 * /proc/PID/maps tells it, and one with a line feed in it.
 *
 * conform: work=/var/tmp
 */
#include "conform.h"

static const char *const names[] = {"plain", "a\\012b", "c\nd"};
enum { FILES = sizeof names / sizeof *names };

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int files[FILES];
	char *maps[FILES], byte;
	for (int i = 0; i < FILES; i++) {
		files[i] = (int)BUILD(open(conform_path(names[i]), O_RDWR | O_CREAT, 0644));
		BUILD(ftruncate(files[i], CONFORM_PAGE));
		maps[i] = conform_map(CONFORM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, files[i]);
		maps[i][0] = 'o';
	}
	conform_ready();
	conform_wait();
	for (int i = 0; i < FILES; i++) {
		EXPECT("mapped", maps[i][0], 'o');
		maps[i][0] = 'O';
		EXPECT("bytes that are read", pread(files[i], &byte, 1, 0), 1);
		EXPECT("written to the open file", byte, 'O');
		int again = (int)BUILD(open(conform_path(names[i]), O_RDONLY));
		EXPECT("bytes that are read", pread(again, &byte, 1, 0), 1);
		EXPECT("written to the named file", byte, 'O');
		BUILD(close(again));
		maps[i][0] = 'o';
	}
	conform_pass();
}
