/* The nice value of a session's group (/proc/PID/autogroup), of one of the job's own and of one that a child has made. */
#include "conform.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int has_groups;

static int nice_of_group(void)
{
	char text[64] = "";
	int fd = open("/proc/self/autogroup", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t length = read(fd, text, sizeof text - 1);
	close(fd);
	char *nice = length > 0 ? strstr(text, "nice ") : NULL;
	has_groups = nice != NULL;
	return nice ? atoi(nice + 5) : 0;
}

static void set_group(const char *nice)
{
	int fd = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	/* An ordinary user may do so every tenth of a second. */
	while (write(fd, nice, strlen(nice)) < 0 && errno == EAGAIN)
		conform_sleep_ms(20);
	close(fd);
}

static void child(void *unused)
{
	(void)unused;
	BUILD(setsid());
	set_group("11");
	int wanted = nice_of_group();
	conform_mark("child");
	conform_wait();
	EXPECT("its own group", nice_of_group(), wanted);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pid_t other = conform_spawn(child, NULL);
	conform_await("child");
	BUILD(setsid() < 0 && errno != EPERM ? -1 : 0);
	set_group("5");
	int wanted = nice_of_group();
	if (has_groups)
		EXPECT("group before", wanted, 5);
	conform_ready();
	conform_wait();
	EXPECT("group", nice_of_group(), wanted);
	conform_join(other);
	conform_pass();
}
