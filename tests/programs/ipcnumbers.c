/*
 * Three IPC namespaces, the job's among them, whose objects have the same numbers and keys: a segment that is attached in each,
 * by several processes, a semaphore that somebody owes, and a message queue. A process in another one has the job's
 * segment attached still that has a number of its own.
 */
#include "namespaces.h"
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

enum { PAGE = CONFORM_PAGE, SIZE = 3 * PAGE, SPARE = 5 };
struct message {
	long kind;
	char text[16];
};
struct objects {
	int segment, set, queue, spare;
	char *memory;
};
static key_t key;
static char *jobs;

static char *attach(int segment)
{
	char *memory = shmat(segment, NULL, 0);
	BUILD(memory == (void *)-1 ? -1 : 0);
	return memory;
}

/* Objects of an empty namespace; `seed` tells them from others. */
static struct objects make(unsigned seed)
{
	struct objects made = {
		.segment = (int)BUILD(shmget(key, SIZE, IPC_CREAT | IPC_EXCL | 0600)),
		.set = (int)BUILD(semget(key, 1, IPC_CREAT | IPC_EXCL | 0600)),
		.queue = (int)BUILD(msgget(key, IPC_CREAT | IPC_EXCL | 0600)),
		.spare = (int)BUILD(shmget(IPC_PRIVATE, PAGE, 0600)),
	};
	struct sembuf take = { .sem_op = -1, .sem_flg = SEM_UNDO };
	struct message message = { .kind = (long)seed };
	made.memory = attach(made.segment);
	conform_fill(made.memory, SIZE, seed);
	conform_fill(attach(made.spare), PAGE, seed + SPARE);
	/* Whoever attaches it last destroys it. */
	BUILD(shmctl(made.spare, IPC_RMID, NULL));
	BUILD(semctl(made.set, 0, SETVAL, (int)seed));
	BUILD(semop(made.set, &take, 1));
	snprintf(message.text, sizeof message.text, "message %u", seed);
	BUILD(msgsnd(made.queue, &message, sizeof message.text, 0));
	return made;
}

static void check(struct objects *made, unsigned seed)
{
	struct message message;
	struct shmid_ds state;
	char expected[16];
	EXPECT("segment by key", shmget(key, 0, 0), made->segment);
	EXPECT("set by key", semget(key, 0, 0), made->set);
	EXPECT("queue by key", msgget(key, 0), made->queue);
	conform_verify("attached segment", made->memory, SIZE, seed);
	BUILD(shmctl(made->spare, IPC_STAT, &state));
	EXPECT("marked segment", state.shm_perm.mode & SHM_DEST, SHM_DEST);
	char *spare = attach(made->spare);
	conform_verify("marked segment", spare, PAGE, seed + SPARE);
	BUILD(shmdt(spare));
	EXPECT("semaphore", BUILD(semctl(made->set, 0, GETVAL)), seed - 1);
	BUILD(msgrcv(made->queue, &message, sizeof message.text, 0, IPC_NOWAIT));
	snprintf(expected, sizeof expected, "message %u", seed);
	EXPECT_TEXT("message", message.text, expected);
	EXPECT("type", message.kind, seed);
}

static void shares(void *argument)
{
	struct objects *made = argument;
	conform_mark("shares");
	conform_await("checked");
	EXPECT("what the parent has written", *(volatile int *)made->memory, 77);
	conform_verify("job's segment", jobs, PAGE, 9);
}

static void second(void *unused)
{
	(void)unused;
	BUILD(unshare(CLONE_NEWIPC));
	struct objects made = make(20);
	conform_mark("second");
	conform_wait();
	check(&made, 20);
	conform_verify("job's segment", jobs, PAGE, 9);
}

static void first(void *unused)
{
	(void)unused;
	become_inside(0, CLONE_NEWIPC);
	pid_t other = conform_spawn(second, NULL);
	conform_await("second");
	struct objects made = make(30);
	pid_t child = conform_spawn(shares, &made);
	conform_await("shares");
	conform_mark("first");
	conform_wait();
	check(&made, 30);
	*(volatile int *)made.memory = 77;
	conform_mark("checked");
	conform_join(child);
	conform_join(other);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	key = 0x5c000000 | (key_t)getpid();
	/* Its number is none of the others'. */
	int before[3];
	for (int i = 0; i < 3; i++)
		before[i] = (int)BUILD(shmget(IPC_PRIVATE, PAGE, 0600));
	int apart = (int)BUILD(shmget(IPC_PRIVATE, PAGE, 0600));
	for (int i = 0; i < 3; i++)
		BUILD(shmctl(before[i], IPC_RMID, NULL));
	jobs = attach(apart);
	conform_fill(jobs, PAGE, 9);
	pid_t process = conform_spawn(first, NULL);
	conform_await("first");
	struct objects made = make(10);
	conform_ready();
	conform_wait();
	check(&made, 10);
	conform_verify("job's segment", jobs, PAGE, 9);
	conform_join(process);
	struct shmid_ds state;
	BUILD(shmctl(apart, IPC_STAT, &state));
	EXPECT("who has it attached", state.shm_nattch, 1);
	BUILD(shmctl(apart, IPC_RMID, NULL));
	BUILD(shmctl(made.segment, IPC_RMID, NULL));
	BUILD(semctl(made.set, 0, IPC_RMID));
	BUILD(msgctl(made.queue, IPC_RMID, NULL));
	conform_pass();
}
