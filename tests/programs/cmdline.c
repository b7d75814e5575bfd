/* Arguments, environment, auxiliary vector, executable: as /proc shows them, and as the program overwrote them. */
#include "conform.h"

enum { MOST = 64 * 1024 };

struct view {
	size_t cmdline_length, environ_length, auxv_length;
	char cmdline[MOST], environ[MOST], auxv[MOST], exe[4096];
};

static void look(struct view *view)
{
	memset(view, 0, sizeof *view);
	view->cmdline_length = conform_read_file("/proc/self/cmdline", view->cmdline, MOST);
	view->environ_length = conform_read_file("/proc/self/environ", view->environ, MOST);
	view->auxv_length = conform_read_file("/proc/self/auxv", view->auxv, MOST);
	BUILD(readlink("/proc/self/exe", view->exe, sizeof view->exe - 1));
}

int main(int argc, char **argv)
{
	static struct view before, after;
	conform_start(argc, argv);
	look(&before);
	/* As setproctitle() does it. */
	memset(argv[0], 'x', strlen(argv[0]));
	look(&before);
	conform_ready();
	conform_wait();
	look(&after);
	EXPECT("length of cmdline", after.cmdline_length, before.cmdline_length);
	EXPECT("cmdline", memcmp(after.cmdline, before.cmdline, before.cmdline_length), 0);
	EXPECT("length of environ", after.environ_length, before.environ_length);
	EXPECT("environ", memcmp(after.environ, before.environ, before.environ_length), 0);
	EXPECT("length of auxv", after.auxv_length, before.auxv_length);
	EXPECT("auxv", memcmp(after.auxv, before.auxv, before.auxv_length), 0);
	EXPECT_TEXT("exe", after.exe, before.exe);
	conform_pass();
}
