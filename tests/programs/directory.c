/* Open directories: as a place for openat, and read half. */
#include "conform.h"
#include <dirent.h>

enum { FILES = 40, READ = 11 };

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	const char *path = conform_path("many");
	bool seen[FILES] = { false };
	int number, found = 0;
	BUILD(mkdir(path, 0700));
	int place = BUILD(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	for (int i = 0; i < FILES; i++) {
		char name[16];
		snprintf(name, sizeof name, "file%d", i);
		close(BUILD(openat(place, name, O_WRONLY | O_CREAT, 0600)));
	}
	DIR *directory = opendir(path);
	struct dirent *entry;
	while (found < READ && (entry = readdir(directory)))
		if (sscanf(entry->d_name, "file%d", &number) == 1)
			seen[number] = true, found++;
	BUILD(fchdir(place));
	conform_ready();
	conform_wait();
	while ((entry = readdir(directory)))
		if (sscanf(entry->d_name, "file%d", &number) == 1) {
			if (seen[number])
				conform_fail("file%d was read twice", number);
			seen[number] = true, found++;
		}
	EXPECT("files read", found, FILES);
	close(BUILD(openat(place, "file7", O_RDONLY)));
	close(BUILD(open("file8", O_RDONLY)));
	EXPECT("close-on-exec", fcntl(place, F_GETFD), FD_CLOEXEC);
	conform_pass();
}
