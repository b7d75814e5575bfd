/*
 * A BPF map with a value for each processor: another machine has others.
 */
#include "../bpf.h"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int fd = new_map(BPF_MAP_TYPE_PERCPU_ARRAY, 4, 8, 1, 0, "");
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	EXPECT("descriptor is still open", fcntl(fd, F_GETFD) >= 0, 1);
	conform_pass();
}
