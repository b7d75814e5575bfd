/*
 * When files were last read and modified that travel with the image: a deleted one, a memfd, one that is written in place, a
 * deleted folder, also with an extended attribute.
 * conform: work=/var/tmp
 */
#include "conform.h"
#include <sys/xattr.h>

enum { READ = 1000000000, MODIFIED = 1100000000 };
enum { DELETED, MEMORY, IN_PLACE, FOLDER, ALL };
static const char *const what[ALL] = { "deleted file", "memfd", "file in place", "deleted folder" };

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	const struct timespec times[2] = { { READ, 5 }, { MODIFIED, 7 } };
	int fds[ALL];
	fds[DELETED] = (int)BUILD(open(conform_path("deleted"), O_RDWR | O_CREAT, 0600));
	fds[MEMORY] = (int)BUILD(memfd_create("memory", 0));
	fds[IN_PLACE] = (int)BUILD(open(conform_path("in place"), O_RDWR | O_CREAT, 0600));
	BUILD(mkdir(conform_path("folder"), 0700));
	fds[FOLDER] = (int)BUILD(open(conform_path("folder"), O_RDONLY | O_DIRECTORY));
	bool has_attribute = fsetxattr(fds[FOLDER], "user.word", "value", 5, 0) == 0;
	for (int i = 0; i < FOLDER; i++)
		conform_write_all(fds[i], "content", 7);
	for (int i = 0; i < ALL; i++)
		BUILD(futimens(fds[i], times));
	BUILD(unlink(conform_path("deleted")));
	BUILD(rmdir(conform_path("folder")));
	conform_ready();
	conform_wait();
	for (int i = 0; i < ALL; i++) {
		struct stat found;
		BUILD(fstat(fds[i], &found));
		EXPECT(what[i], found.st_mtim.tv_sec, MODIFIED);
		EXPECT(what[i], found.st_mtim.tv_nsec, 7);
		/* A checkpoint reads the content of a file, which tells of that. */
		if (i != FOLDER && found.st_atim.tv_sec != READ)
			EXPECT_BETWEEN(what[i], found.st_atim.tv_sec, MODIFIED + 1, time(NULL));
		else
			EXPECT(what[i], found.st_atim.tv_sec, READ);
	}
	char value[8] = "";
	if (has_attribute) {
		EXPECT("length of the attribute", fgetxattr(fds[FOLDER], "user.word", value, sizeof value), 5);
		EXPECT_TEXT("attribute", value, "value");
	}
	conform_pass();
}
