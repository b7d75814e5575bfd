/*
 * A /proc of a PID namespace of the program's own, in a mount namespace that came with it: whom it shows, by which numbers; its
 * first process leads a session.
 */
#include "namespaces.h"
#include <dirent.h>
#include <sys/mount.h>

static pid_t others[3];

/* The processes that /proc shows are these alone. */
static void check_shown(void)
{
	int shown = 0;
	DIR *folder = opendir("/proc");
	for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
		int number = atoi(entry->d_name);
		if (number <= 0)
			continue;
		EXPECT("number in /proc", number == 1 || number == others[0] || number == others[1] || number == others[2], 1);
		shown++;
	}
	closedir(folder);
	EXPECT("processes in /proc", shown, 4);
}

static void check_self(pid_t number)
{
	char link[16] = "", status[4096];
	BUILD(readlink("/proc/self", link, sizeof link - 1));
	EXPECT("own number in /proc", atoi(link), number);
	conform_read_file("/proc/self/status", status, sizeof status);
	EXPECT("numbers in status", strstr(status, "\nNSpid:\t") != NULL, 1);
	EXPECT("own number in status", atoi(strstr(status, "\nNSpid:\t") + 8), number);
}

static void other(void *unused)
{
	pid_t number = getpid();
	(void)unused;
	check_self(number);
	conform_wait();
	check_self(number);
	EXPECT("parent", getppid(), 1);
	conform_await("shown");
}

static void first(void *unused)
{
	(void)unused;
	BUILD(setsid());
	BUILD(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	BUILD(mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL));
	for (int i = 0; i < 3; i++)
		others[i] = conform_spawn(other, NULL);
	check_shown();
	check_self(1);
	conform_mark("in-ready");
	conform_wait();
	check_shown();
	check_self(1);
	EXPECT("session", getsid(0), 1);
	conform_mark("shown");
	for (int i = 0; i < 3; i++)
		conform_join(others[i]);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pid_t maker = fork();
	if (maker == 0) {
		become_inside(0, CLONE_NEWPID | CLONE_NEWNS);
		pid_t child = conform_spawn(first, NULL);
		conform_join(child);
		_exit(0);
	}
	BUILD(maker);
	conform_await("in-ready");
	conform_ready();
	conform_wait();
	conform_join(maker);
	conform_pass();
}
