/*
 * Processes that nobody may look into (PR_SET_DUMPABLE): with memory that one shares with a child until one of them writes,
 * threads, a file, a pipe, memory that is not inherited, SIGTRAP ignored, a descriptor of a relative; one of them has
 * been stopped (SIGSTOP).
 */
#include "conform.h"
#include <pthread.h>
#include <sys/prctl.h>

enum { SIZE = 256 * CONFORM_PAGE, SOME = 8 * CONFORM_PAGE };

/* What is there for root alone is so in /proc. */
static void expect_hidden(const char *what)
{
	EXPECT(what, prctl(PR_GET_DUMPABLE), 0);
}

static void *thread(void *memory)
{
	conform_mark("thread");
	conform_wait();
	expect_hidden("dumpable, thread");
	conform_verify("the memory of a thread", memory, SIZE, 11);
	return NULL;
}

static void child(void *memory)
{
	pthread_t other;
	int pipes[2], fd;
	char *own = conform_map(SOME, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	conform_fill(own, SOME, 5);
	BUILD(madvise(own, SOME, MADV_DONTFORK));
	BUILD(pipe(pipes));
	conform_write_all(pipes[1], "under way", 9);
	fd = BUILD(open(conform_path("file"), O_RDWR | O_CREAT, 0600));
	conform_write_all(fd, "written", 7);
	signal(SIGTRAP, SIG_IGN);
	BUILD0(pthread_create(&other, NULL, thread, memory));
	conform_await("thread");
	conform_mark("child");
	conform_wait();
	expect_hidden("dumpable, child");
	conform_verify("the child's memory", memory, SIZE, 11);
	conform_verify("memory that no child inherits", own, SOME, 5);
	close(pipes[1]);
	conform_expect_bytes("pipe", pipes[0], "under way");
	EXPECT("offset", lseek(fd, 0, SEEK_CUR), 7);
	BUILD0(pthread_join(other, NULL));
	/* It would end by that. */
	BUILD(raise(SIGTRAP));
}

static void stopped(void *unused)
{
	(void)unused;
	conform_mark("stopped");
	BUILD(raise(SIGSTOP));
	expect_hidden("dumpable, stopped");
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	char *memory = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	conform_fill(memory, SIZE, 11);
	BUILD(prctl(PR_SET_DUMPABLE, 0));
	pid_t pid = conform_spawn(child, memory), halted = conform_spawn(stopped, NULL);
	conform_await("child");
	conform_await("stopped");
	int status;
	BUILD(waitpid(halted, &status, WUNTRACED));
	EXPECT("it has stopped", WIFSTOPPED(status), 1);
	conform_ready();
	conform_wait();
	expect_hidden("dumpable");
	conform_verify("memory", memory, SIZE, 11);
	BUILD(kill(halted, SIGCONT));
	conform_join(halted);
	conform_join(pid);
	conform_pass();
}
