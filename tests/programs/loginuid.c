/*
 * Who has logged in (/proc/self/loginuid), where the job itself has set that.
 * conform: root
 */
#include "conform.h"

static const char *const file = "/proc/self/loginuid";

static unsigned login(void)
{
	char text[16] = "";
	int fd = BUILD(open(file, O_RDONLY));
	BUILD(read(fd, text, sizeof text - 1));
	close(fd);
	return (unsigned)strtoul(text, NULL, 10);
}

static void inherits(void *unused)
{
	(void)unused;
	conform_mark("inherits");
	conform_wait();
	EXPECT("who has logged in, of a child", login(), 54321);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int fd = open(file, O_WRONLY);
	if (fd < 0)
		conform_skip("no audit log here");
	if (write(fd, "54321", 5) != 5)
		conform_skip("nobody may say here who has logged in");
	close(fd);
	pid_t child = conform_spawn(inherits, NULL);
	conform_await("inherits");
	conform_ready();
	conform_wait();
	EXPECT("who has logged in", login(), 54321);
	conform_join(child);
	conform_pass();
}
