/*
 * io_urings with large requests and completions, without an array of places, of a single thread: what lies where in
 * the memory depends on it, and is nowhere told outright.
 */
#include "uring.inc"

static const struct {
	unsigned entries, flags;
} kinds[] = {
	{ 4, IORING_SETUP_SQE128 },
	{ 4, IORING_SETUP_CQE32 },
	{ 8, IORING_SETUP_SQE128 | IORING_SETUP_CQE32 },
	{ 128, URING_NO_SQARRAY },
	{ 128, URING_NO_SQARRAY | IORING_SETUP_SQE128 },
	{ 8, URING_NO_SQARRAY },
	{ 8, URING_NO_SQARRAY | IORING_SETUP_SQE128 | IORING_SETUP_CQE32 },
	{ 8, URING_SINGLE_ISSUER | URING_DEFER_TASKRUN },
	{ 8, IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL },
	{ 8, IORING_SETUP_CLAMP },
};

enum { KINDS = sizeof kinds / sizeof *kinds };

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct ring rings[KINDS];
	bool made[KINDS];
	for (unsigned i = 0; i < KINDS; i++) {
		made[i] = ring_try(&rings[i], kinds[i].entries, 0, kinds[i].flags);
		if (!made[i])
			continue;
		ring_idle(&rings[i], 13);
		ring_queue(&rings[i], IORING_OP_NOP, -1, NULL, 0, 0, 41);
		ring_submit(&rings[i], 1);
		ring_queue(&rings[i], IORING_OP_NOP, -1, NULL, 0, 0, 42);
	}
	conform_ready();
	conform_wait();
	for (unsigned i = 0; i < KINDS; i++) {
		if (!made[i])
			continue;
		ring_expect(&rings[i], 41, 0);
		ring_submit(&rings[i], 1);
		ring_expect(&rings[i], 42, 0);
		ring_idle(&rings[i], 200);
		EXPECT("requests taken", ring_get(rings[i].head), 215);
	}
	conform_pass();
}
