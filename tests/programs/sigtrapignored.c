/* A SIGTRAP that is ignored goes on being ignored, and keeps its flags. */
#include "conform.h"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct sigaction found, action = { .sa_handler = SIG_IGN, .sa_flags = SA_RESTART };
	sigaddset(&action.sa_mask, SIGUSR1);
	BUILD(sigaction(SIGTRAP, &action, NULL));
	conform_ready();
	conform_wait();
	BUILD(sigaction(SIGTRAP, NULL, &found));
	EXPECT("SIGTRAP is ignored", found.sa_handler == SIG_IGN, 1);
	EXPECT("flags of its action", found.sa_flags & SA_RESTART, SA_RESTART);
	EXPECT("mask of its action", sigismember(&found.sa_mask, SIGUSR1), 1);
	BUILD(raise(SIGTRAP));
	conform_pass();
}
