/* A stopped process with a second SIGSTOP pending, which does nothing but wait to be discarded. */
#include "conform.h"

static void child(void *name)
{
	conform_mark(name);
	conform_wait();
}

static char state(pid_t process)
{
	char path[64], stat[1024];
	snprintf(path, sizeof path, "/proc/%d/stat", process);
	conform_read_file(path, stat, sizeof stat);
	return strrchr(stat, ')')[2];
}

int main(int argc, char **argv)
{
	int status;
	conform_start(argc, argv);
	pid_t twice = conform_spawn(child, "twice");
	conform_await("twice");
	BUILD(kill(twice, SIGSTOP));
	EXPECT("stop", waitpid(twice, &status, WUNTRACED), twice);
	BUILD(kill(twice, SIGSTOP));
	conform_ready();
	conform_wait();
	/* It is about to stop where it has not been on a processor yet. */
	while (state(twice) != 'T')
		conform_sleep_ms(1);
	BUILD(kill(twice, SIGCONT));
	conform_join(twice);
	conform_pass();
}
