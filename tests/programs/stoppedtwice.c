/* A stopped process with a second SIGSTOP pending, which does nothing but wait to be discarded. */
#include "conform.h"

static void child(void *name)
{
	conform_mark(name);
	conform_wait();
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
	while (conform_state(twice) != 'T')
		conform_sleep_ms(1);
	BUILD(kill(twice, SIGCONT));
	conform_join(twice);
	conform_pass();
}
