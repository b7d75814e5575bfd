/* A folder that is being read, in a file system in memory that a process has mounted for itself. */
#include "../namespaces.h"
#include <dirent.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	mount_inside("mounted");
	BUILD(mkdir(conform_path("mounted/folder"), 0700));
	DIR *list = opendir(conform_path("mounted"));
	BUILD(list && readdir(list) ? 0 : -1);
	conform_expect_refusal(getpid(), dirfd(list));
	conform_ready();
	conform_wait();
	closedir(list);
	conform_pass();
}
