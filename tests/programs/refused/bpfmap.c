/*
 * A BPF map: an object of this kernel.
 */
#include "conform.h"
#include <linux/bpf.h>
#include <sys/syscall.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	union bpf_attr attributes = { .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 8, .max_entries = 1 };
	int fd = (int)syscall(SYS_bpf, BPF_MAP_CREATE, &attributes, sizeof attributes);
	if (fd < 0)
		conform_skip("this kernel or user has none");
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	EXPECT("descriptor is still open", fcntl(fd, F_GETFD) >= 0, 1);
	conform_pass();
}
