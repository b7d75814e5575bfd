/* A file whose path is longer than any that a call takes (PATH_MAX). */
#include "../conform.h"

enum { DEPTH = 25, LENGTH = 200 };

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	char name[LENGTH + 1];
	memset(name, 'd', LENGTH);
	name[LENGTH] = 0;
	BUILD(chdir(conform_path(".")));
	for (int i = 0; i < DEPTH; i++) {
		BUILD(mkdir(name, 0700));
		BUILD(chdir(name));
	}
	int file = (int)BUILD(open("file", O_RDWR | O_CREAT, 0600));
	conform_write_all(file, "deep", 4);
	BUILD(chdir("/"));
	conform_expect_refusal(getpid(), file);
	conform_ready();
	conform_wait();
	BUILD(lseek(file, 0, SEEK_SET));
	conform_expect_bytes("the file", file, "deep");
	conform_pass();
}
