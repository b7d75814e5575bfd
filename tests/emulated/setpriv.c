/* What the conformance runner asks of setpriv(1): setpriv --reuid=N --regid=N [OTHERS...] -- COMMAND... */
#define _GNU_SOURCE
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	uid_t user = 0;
	gid_t group = 0;
	int at = 1;
	for (; at < argc && strcmp(argv[at], "--") != 0; at++) {
		if (strncmp(argv[at], "--reuid=", 8) == 0)
			user = (uid_t)atol(argv[at] + 8);
		if (strncmp(argv[at], "--regid=", 8) == 0)
			group = (gid_t)atol(argv[at] + 8);
	}
	if (at + 1 >= argc)
		return 2;
	if (setgroups(0, NULL) != 0 || setresgid(group, group, group) != 0 || setresuid(user, user, user) != 0) {
		perror("setpriv");
		return 1;
	}
	execvp(argv[at + 1], argv + at + 1);
	perror(argv[at + 1]);
	return 127;
}
