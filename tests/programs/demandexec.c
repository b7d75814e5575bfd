/*
 * Programs are executed, and end, with memory that is not filled yet; children of vfork(2) and of fork(2) do so, too.
 * conform: held
 */
#include "demand.inc"

enum { PAGES = 4096 };

static char *memory;

static void leave(void *unused)
{
	(void)unused;
	expect_pages("child", memory + 100 * PAGE, 1, 1100);
	_exit(0);
}

static void run(char *word, bool together)
{
	char *words[] = { "/bin/true", word, NULL };
	pid_t child = together ? vfork() : fork();
	if (child == 0) {
		execv(words[0], words);
		_exit(9);
	}
	conform_join(BUILD(child));
}

int main(int argc, char **argv)
{
	if (argc == 3) {
		/* Another program in the same process. */
		argc = 2;
		conform_start(argc, argv);
		char *anew = anonymous(PAGES);
		expect_zeros("another program's memory", anew, PAGES);
		put_pages(anew, PAGES, 3);
		expect_pages("another program's memory", anew, PAGES, 3);
		conform_pass();
	}
	conform_start(argc, argv);
	memory = anonymous(PAGES);
	put_pages(memory, PAGES, 1000);
	conform_ready();
	conform_wait();
	run("vfork", true);
	run("fork", false);
	conform_join(conform_spawn(leave, NULL));
	expect_pages("parent", memory + 200 * PAGE, 1, 1200);
	char *words[] = { argv[0], argv[1], "again", NULL };
	execv(argv[0], words);
	conform_fail("execv: %s", strerror(errno));
}
