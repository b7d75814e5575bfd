/* /proc/self/exe of a program whose file is deleted: one that an upgrade has replaced, and one that was a memfd. */
#include "conform.h"
#include <sys/syscall.h>

static const char *const argument = "--copied";

static void copy(int to)
{
	static char bytes[1 << 16];
	int from = BUILD(open("/proc/self/exe", O_RDONLY));
	for (ssize_t got; (got = BUILD(read(from, bytes, sizeof bytes))) > 0;)
		conform_write_all(to, bytes, (size_t)got);
	close(from);
}

static void expect_exe(const char *name)
{
	char link[4096] = "";
	BUILD(readlink("/proc/self/exe", link, sizeof link - 1));
	if (strstr(link, name) == NULL || strstr(link, " (deleted)") == NULL)
		conform_fail("/proc/self/exe is %s instead of %s", link, name);
}

/* In the copy, which goes by the name of what it is a copy in. */
static void wait_as(const char *name)
{
	expect_exe(name);
	conform_mark(name);
	conform_wait();
	expect_exe(name);
	int own = BUILD(open("/proc/self/exe", O_RDONLY));
	char head[4] = "";
	conform_read_all(own, head, sizeof head);
	EXPECT("beginning of the program", memcmp(head, "\177ELF", 4), 0);
	exit(0);
}

static pid_t start(int file, const char *directory, const char *name, const char *path)
{
	pid_t child = BUILD(fork());
	char *arguments[] = {(char *)"program", (char *)directory, (char *)argument, (char *)name, NULL};
	if (child != 0)
		return child;
	if (file >= 0)
		syscall(SYS_execveat, file, "", arguments, environ, AT_EMPTY_PATH);
	else
		execv(path, arguments);
	BUILD(-1);
	return child;
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[2], argument) == 0) {
		conform_start(2, argv);
		if (strcmp(argv[3], "replaced") == 0)
			BUILD(unlink(conform_path("replaced-program")));
		wait_as(argv[3]);
	}
	conform_start(argc, argv);
	const char *path = conform_path("replaced-program");
	int file = BUILD(open(path, O_WRONLY | O_CREAT | O_EXCL, 0700));
	copy(file);
	BUILD(fchmod(file, 0700));
	close(file);
	pid_t replaced = start(-1, argv[1], "replaced", path);
	int memory = BUILD(memfd_create("inmemory", MFD_CLOEXEC));
	copy(memory);
	pid_t in_memory = start(memory, argv[1], "inmemory", NULL);
	conform_await("replaced");
	conform_await("inmemory");
	close(memory);
	conform_ready();
	conform_wait();
	conform_join(replaced);
	conform_join(in_memory);
	conform_pass();
}
