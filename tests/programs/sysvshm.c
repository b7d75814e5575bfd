/*
 * SysV shared memory: a segment with a key and one that is marked for destruction, each attached by two processes,
 * for reading, for writing, twice, and in part; one that nobody has attached.
 */
#include "conform.h"
#include <sys/ipc.h>
#include <sys/shm.h>

enum { PAGE = CONFORM_PAGE, SIZE = 40 * PAGE + 100, SPARE = 3 * PAGE };
static int keyed, marked;
/* The key is this run's alone: without an IPC namespace, two that run at once meet in the machine's table. */
static key_t key;
static char *first;

static void other(void *unused)
{
	(void)unused;
	/* One attachment is inherited, the other one its own, for reading alone. */
	const char *reading = shmat(keyed, NULL, SHM_RDONLY);
	BUILD(reading == (void *)-1 ? -1 : 0);
	conform_mark("attached");
	conform_wait();
	conform_verify("the segment in the child", first, SIZE, 1);
	conform_verify("the second attachment of it", reading, SIZE, 1);
	EXPECT("it is for reading alone", conform_faults((volatile char *)reading, true), 1);
	conform_mark("verified");
	conform_await("parent has written");
	conform_verify("what the parent wrote", reading, PAGE, 7);
	BUILD(shmdt(reading));
	BUILD(shmdt(first));
	conform_mark("detached");
}

static struct shmid_ds look(int number)
{
	struct shmid_ds state;
	BUILD(shmctl(number, IPC_STAT, &state));
	return state;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	key = 0x5e000000 | (key_t)getpid();
	/* Numbers that are not the first ones of a new namespace. */
	for (int i = 0; i < 70; i++)
		BUILD(shmctl((int)BUILD(shmget(IPC_PRIVATE, 1, 0600)), IPC_RMID, NULL));
	keyed = (int)BUILD(shmget(key, SIZE, IPC_CREAT | IPC_EXCL | 0640));
	marked = (int)BUILD(shmget(IPC_PRIVATE, 8 * PAGE, 0666));
	int spare = (int)BUILD(shmget(IPC_PRIVATE, SPARE, 0600));

	char *passing = shmat(spare, NULL, 0);
	BUILD(passing == (void *)-1 ? -1 : 0);
	conform_fill(passing, SPARE, 3);
	BUILD(shmdt(passing));

	first = shmat(keyed, NULL, 0);
	BUILD(first == (void *)-1 ? -1 : 0);
	conform_fill(first, SIZE, 1);
	/* Two of eight pages are left, one of them not to be written. */
	char *part = shmat(marked, NULL, 0);
	BUILD(part == (void *)-1 ? -1 : 0);
	conform_fill(part, 8 * PAGE, 2);
	BUILD(shmctl(marked, IPC_RMID, NULL));
	BUILD(munmap(part, 2 * PAGE));
	BUILD(munmap(part + 4 * PAGE, 4 * PAGE));
	BUILD(mprotect(part + 3 * PAGE, PAGE, PROT_READ));

	pid_t child = conform_spawn(other, NULL);
	conform_await("attached");
	conform_ready();
	conform_wait();

	EXPECT("the segment's number", shmget(key, 0, 0), keyed);
	struct shmid_ds state = look(keyed);
	EXPECT("its size", state.shm_segsz, SIZE);
	EXPECT("its permissions", state.shm_perm.mode, 0640);
	EXPECT("its owner", state.shm_perm.uid, getuid());
	EXPECT("its maker", state.shm_perm.cuid, getuid());
	conform_await("verified");
	EXPECT("who has attached it", look(keyed).shm_nattch, 3);
	conform_verify("the segment", first, SIZE, 1);
	conform_fill(first, PAGE, 7);
	conform_mark("parent has written");
	conform_await("detached");
	conform_join(child);
	EXPECT("who is left", look(keyed).shm_nattch, 1);
	BUILD(shmdt(first));
	BUILD(shmctl(keyed, IPC_RMID, NULL));
	EXPECT_ERROR("the segment after its end", shmctl(keyed, IPC_STAT, &state), EINVAL);

	EXPECT("the other is marked", look(marked).shm_perm.mode & SHM_DEST, SHM_DEST);
	char *whole = shmat(marked, NULL, 0);
	BUILD(whole == (void *)-1 ? -1 : 0);
	conform_verify("all of the other segment", whole, 8 * PAGE, 2);
	EXPECT("a part of it", memcmp(whole + 2 * PAGE, part + 2 * PAGE, 2 * PAGE), 0);
	part[2 * PAGE]++;
	EXPECT("one page for both", whole[2 * PAGE], part[2 * PAGE]);
	EXPECT("a page that is not to be written", conform_faults(part + 3 * PAGE, true), 1);
	EXPECT("a page that is not there", conform_faults(part + 4 * PAGE, false), 1);
	BUILD(shmdt(whole));
	BUILD(munmap(part + 2 * PAGE, 2 * PAGE));
	EXPECT_ERROR("the marked segment after its last holder", shmctl(marked, IPC_STAT, &state), EINVAL);

	passing = shmat(spare, NULL, SHM_RDONLY);
	BUILD(passing == (void *)-1 ? -1 : 0);
	conform_verify("the segment that nobody had attached", passing, SPARE, 3);
	BUILD(shmdt(passing));
	BUILD(shmctl(spare, IPC_RMID, NULL));
	conform_pass();
}
