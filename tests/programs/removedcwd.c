/* Processes whose working directory has been removed, one of them in a directory that is there again. */
#include "conform.h"

static void leave(const char *name)
{
	BUILD(mkdir(conform_path(name), 0751));
	BUILD(chdir(conform_path(name)));
	BUILD(rmdir(conform_path(name)));
}

static void check(void)
{
	char path[4096];
	EXPECT("a path of it", getcwd(path, sizeof path) == NULL, 1);
	EXPECT("why there is none", errno, ENOENT);
	struct stat status;
	BUILD(stat(".", &status));
	EXPECT("links", status.st_nlink, 0);
	EXPECT("mode", status.st_mode & 07777, 0751);
	EXPECT_ERROR("a file is made in it", open("new", O_WRONLY | O_CREAT, 0600), ENOENT);
}

static void replaced(void *unused)
{
	(void)unused;
	umask(0);
	leave("again");
	BUILD(mkdir(conform_path("again"), 0700));
	conform_mark("left");
	conform_wait();
	check();
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	umask(0);
	leave("gone");
	pid_t child = conform_spawn(replaced, NULL);
	conform_await("left");
	conform_ready();
	conform_wait();
	check();
	conform_join(child);
	BUILD(rmdir(conform_path("again")));
	conform_pass();
}
