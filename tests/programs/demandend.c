/*
 * A job ends, and some of its processes before it, with memory that is not filled yet.
 * conform: held
 */
#include "demand.inc"

enum { PAGES = 4096 };

static char *memory;

static void wait_for_word(void *unused)
{
	(void)unused;
	conform_wait();
	expect_pages("child", memory + 300 * PAGE, 2, 1300);
	kill(getpid(), SIGKILL);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	memory = anonymous(PAGES);
	put_pages(memory, PAGES, 1000);
	pid_t child = conform_spawn(wait_for_word, NULL);
	conform_ready();
	conform_wait();
	int status;
	BUILD(waitpid(child, &status, 0));
	EXPECT("the child's end", WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, 1);
	expect_pages("parent", memory + 700 * PAGE, 2, 1700);
	conform_pass();
}
