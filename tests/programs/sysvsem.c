/*
 * SysV semaphores: values, permissions and numbers, who changed one last, what each process gives back at its end, and
 * processes that wait.
 */
#include "conform.h"
#include <sys/ipc.h>
#include <sys/sem.h>

enum { COUNT = 7, HIGHEST = 32767 };
static int set;

static void change(int index, int by, int flags)
{
	struct sembuf operation = {.sem_num = (unsigned short)index, .sem_op = (short)by, .sem_flg = (short)flags};
	BUILD(semop(set, &operation, 1));
}

static void value(const char *what, int index, int expected)
{
	EXPECT(what, BUILD(semctl(set, index, GETVAL)), expected);
}

/* Owes 5 to one, -3 to the next. */
static void owes(void *unused)
{
	(void)unused;
	change(1, -7, SEM_UNDO);
	change(1, 2, SEM_UNDO);
	change(2, 3, SEM_UNDO);
	/* What cancels out is owed to nobody. */
	change(0, 1, SEM_UNDO);
	change(0, -1, SEM_UNDO);
	conform_mark("owes");
	conform_await("checked");
}

static void waits(void *unused)
{
	(void)unused;
	conform_mark("waits");
	change(3, -1, SEM_UNDO);
	value("a semaphore that was waited for", 3, 0);
}

/* All that can be owed. */
static void owes_most(void *unused)
{
	(void)unused;
	change(5, -HIGHEST, SEM_UNDO);
	change(6, 1, SEM_UNDO);
	conform_mark("most");
	conform_await("checked");
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(semctl((int)BUILD(semget(IPC_PRIVATE, 1, 0600)), 0, IPC_RMID));
	/* The first one that no other run of this program has. */
	key_t key = ftok(argv[1], 'c');
	set = semget(key, COUNT, IPC_CREAT | IPC_EXCL | 0640);
	BUILD(set);
	int other = (int)BUILD(semget(IPC_PRIVATE, 1, 0600));
	BUILD(semctl(other, 0, SETVAL, 42));
	unsigned short values[COUNT] = {4, 10, 0, 0, 9, HIGHEST, HIGHEST - 1};
	BUILD(semctl(set, 0, SETALL, values));
	pid_t debtor = conform_spawn(owes, NULL), waiter = conform_spawn(waits, NULL);
	pid_t most = conform_spawn(owes_most, NULL);
	conform_await("owes");
	conform_await("waits");
	conform_await("most");
	change(4, 1, 0);
	change(4, -2, SEM_UNDO);

	conform_ready();
	conform_wait();

	EXPECT("number by key", semget(key, 0, 0), set);
	struct semid_ds status;
	BUILD(semctl(set, 0, IPC_STAT, &status));
	EXPECT("mode", status.sem_perm.mode & 0777, 0640);
	EXPECT("owner", status.sem_perm.uid, geteuid());
	EXPECT("how many", status.sem_nsems, COUNT);
	value("never used", 0, 4);
	value("taken from", 1, 5);
	value("added to", 2, 3);
	value("waited for", 3, 0);
	value("taken and added", 4, 8);
	EXPECT("last changed by a child", BUILD(semctl(set, 1, GETPID)), debtor);
	EXPECT("last changed by this process", BUILD(semctl(set, 4, GETPID)), getpid());
	EXPECT("of another set", BUILD(semctl(other, 0, GETVAL)), 42);

	change(3, 1, 0);
	conform_join(waiter);
	value("given back by whoever waited", 3, 1);
	conform_mark("checked");
	conform_join(debtor);
	conform_join(most);
	value("nothing given back", 0, 4);
	value("given back", 1, 10);
	value("taken back", 2, 0);
	value("all given back", 5, HIGHEST);
	value("one taken back", 6, HIGHEST - 1);
	BUILD(semctl(set, 0, IPC_RMID));
	BUILD(semctl(other, 0, IPC_RMID));
	conform_pass();
}
