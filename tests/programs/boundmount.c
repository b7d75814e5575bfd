/*
 * A mount namespace of a process's own in which folders and a file of the job's are mounted elsewhere, one over what it shows
 * itself, one read-only; a working directory there; a child in the same namespace, whose working directory is another one.
 */
#include "namespaces.h"
#include <sys/mount.h>

static char *folder;

static void bind_to(const char *from, const char *at)
{
	BUILD(mount(conform_path(from), conform_path(at), NULL, MS_BIND, NULL));
}

static void put(const char *name, const char *text)
{
	close((int)BUILD(open(conform_path(name), O_WRONLY | O_CREAT | O_EXCL, 0600)));
	write_text(conform_path(name), text);
}

static void check_text(const char *path, const char *expected)
{
	char text[64] = "";
	conform_read_file(path, text, sizeof text);
	EXPECT_TEXT(path, text, expected);
}

static void check(void)
{
	struct stat found;
	check_text(conform_path("b/name"), "in a");
	check_text(conform_path("c/name"), "in a");
	check_text(conform_path("a/name"), "in d");
	check_text(conform_path("e"), "in d");
	EXPECT_ERROR("new file in a read-only folder", open(conform_path("c/new"), O_WRONLY | O_CREAT, 0600), EROFS);
	EXPECT_ERROR("file of a folder that is covered", stat(conform_path("b/hidden"), &found), ENOENT);
}

static void check_directory(const char *expected)
{
	char path[4096], wanted[4096];
	BUILD(getcwd(path, sizeof path) != NULL ? 0 : -1);
	snprintf(wanted, sizeof wanted, "%s/%s", folder, expected);
	EXPECT_TEXT("working directory", path, wanted);
}

static void child(void *unused)
{
	(void)unused;
	BUILD(chdir(conform_path("b")));
	conform_mark("child");
	conform_wait();
	check();
	check_directory("b");
	check_text("name", "in a");
	BUILD(mount("none", conform_path("d"), "tmpfs", 0, NULL));
}

int main(int argc, char **argv)
{
	struct stat found;
	conform_start(argc, argv);
	folder = realpath(conform_path("."), NULL);
	for (const char *name = "abcd"; *name != 0; name++) {
		char one[2] = { *name, 0 };
		BUILD(mkdir(conform_path(one), 0700));
	}
	put("a/name", "in a");
	put("b/hidden", "in b");
	put("d/name", "in d");
	put("e", "plain");
	become_inside(0, CLONE_NEWNS);
	bind_to("a", "b");
	bind_to("a", "c");
	BUILD(mount(NULL, conform_path("c"), NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL));
	bind_to("d/name", "e");
	bind_to("d", "a");
	check();
	BUILD(chdir(conform_path("a")));
	pid_t process = conform_spawn(child, NULL);
	conform_await("child");
	conform_ready();
	conform_wait();
	check();
	check_directory("a");
	check_text("name", "in d");
	conform_join(process);
	EXPECT_ERROR("what a child has mounted", stat(conform_path("d/name"), &found), ENOENT);
	conform_pass();
}
