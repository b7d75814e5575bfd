/*
 * Files that grow while checkpoints are taken: after a restart each goes on where the process was, without a line
 * lost or repeated. One is referred to by its path, one lies in the session directory.
 * conform: work=/var/tmp
 */
#include "conform.h"

static int files[2];
static long lines;

static void append(void *unused)
{
	(void)unused;
	char line[32];
	int length = snprintf(line, sizeof line, "%ld\n", lines++);
	for (int i = 0; i < 2; i++)
		conform_write_all(files[i], line, (size_t)length);
}

static void check(const char *what, const char *path)
{
	FILE *file = fopen(path, "r");
	long found, expected = 0;
	if (!file)
		conform_fail("%s: %s", what, strerror(errno));
	while (fscanf(file, "%ld", &found) == 1)
		EXPECT(what, found, expected++);
	EXPECT(what, expected, lines);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	char temporary[] = "/tmp/ckptd-conform-XXXXXX";
	const char *path = conform_path("grows");
	files[0] = BUILD(open(path, O_WRONLY | O_CREAT | O_APPEND, 0600));
	files[1] = BUILD(mkstemp(temporary));
	append(NULL);
	conform_ready();
	conform_wait_with(append, NULL);
	check("line of the file referred to by path", path);
	check("line of the file in /tmp", temporary);
	unlink(temporary);
	conform_pass();
}
