/* memfds that are executed (fexecve(3)): one that is open for writing, as it was made, and one that is mapped besides. */
#include "conform.h"
#include <sys/syscall.h>

static const char script[] = "#!/bin/true";

static int make(const char *name)
{
	int fd = BUILD(memfd_create(name, 0));
	conform_write_all(fd, script, sizeof script - 1);
	return fd;
}

static void expect_executed(const char *what, int fd)
{
	int status;
	pid_t child = BUILD(fork());
	if (child == 0) {
		char *arguments[] = {(char *)"true", NULL};
		syscall(SYS_execveat, fd, "", arguments, environ, AT_EMPTY_PATH);
		_exit(errno);
	}
	BUILD(waitpid(child, &status, 0));
	EXPECT(what, status, 0);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int plain = make("plain"), mapped = make("mapped");
	BUILD(ftruncate(mapped, CONFORM_PAGE));
	char *shared = conform_map(CONFORM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, mapped);
	expect_executed("status before", plain);
	expect_executed("status of the mapped one before", mapped);
	conform_ready();
	conform_wait();
	expect_executed("status", plain);
	expect_executed("status of the mapped one", mapped);
	memcpy(shared, "#!/bin/cat", 10);
	char begin[10];
	BUILD(pread(mapped, begin, sizeof begin, 0));
	EXPECT("what is written by way of the mapping", memcmp(begin, shared, sizeof begin), 0);
	conform_pass();
}
