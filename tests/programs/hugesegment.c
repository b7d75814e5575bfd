/*
 * SysV shared memory of huge pages (SHM_HUGETLB), not a whole number of them: attached by a child, too, and one that nobody has
 * attached. Where a machine lacks such pages at the restart, ordinary ones take their place.
 */
#include "conform.h"
#include <sys/ipc.h>
#include <sys/shm.h>

enum { HUGE_PAGE = 2 << 20, SIZE = 3 * HUGE_PAGE - 5000 };
static unsigned char *shared;

static void child(void *unused)
{
	(void)unused;
	conform_await("checked");
	conform_verify("the child's view", shared + HUGE_PAGE, HUGE_PAGE, 31);
	shared[7] = 77;
}

static int make(void)
{
	int number = shmget(IPC_PRIVATE, SIZE, SHM_HUGETLB | IPC_CREAT | 0600);
	if (number < 0)
		conform_skip("no huge pages, or no right to them (vm.nr_overcommit_hugepages, vm.hugetlb_shm_group)");
	return number;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int number = make();
	shared = shmat(number, NULL, 0);
	BUILD(shared == (void *)-1 ? -1 : 0);
	BUILD(shmctl(number, IPC_RMID, NULL));
	conform_fill(shared + HUGE_PAGE, HUGE_PAGE, 31);
	int apart = make();
	unsigned char *moment = shmat(apart, NULL, 0);
	BUILD(moment == (void *)-1 ? -1 : 0);
	conform_fill(moment + 100, 5000, 32);
	BUILD(shmdt(moment));
	pid_t pid = conform_spawn(child, NULL);

	conform_ready();
	conform_wait();

	conform_verify("what was written", shared + HUGE_PAGE, HUGE_PAGE, 31);
	EXPECT("a byte that nobody wrote", shared[3 * HUGE_PAGE - 1], 0);
	conform_mark("checked");
	conform_join(pid);
	EXPECT("what the child wrote", shared[7], 77);
	struct shmid_ds told;
	BUILD(shmctl(number, IPC_STAT, &told));
	EXPECT("how many have attached it", told.shm_nattch, 1);
	EXPECT("its size", told.shm_segsz, SIZE);
	moment = shmat(apart, NULL, SHM_RDONLY);
	BUILD(moment == (void *)-1 ? -1 : 0);
	conform_verify("the one that nobody had attached", moment + 100, 5000, 32);
	BUILD(shmctl(apart, IPC_RMID, NULL));
	conform_pass();
}
