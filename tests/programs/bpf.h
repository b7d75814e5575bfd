/* Maps of bpf(2). */
#ifndef BPF_H
#define BPF_H
#include "conform.h"
#include <linux/bpf.h>
#include <sys/syscall.h>

static inline long bpf(int command, union bpf_attr *attributes)
{
	return syscall(SYS_bpf, command, attributes, sizeof *attributes);
}

static inline int new_map(unsigned type, unsigned key, unsigned value, unsigned room, unsigned flags, const char *name)
{
	union bpf_attr attributes = { .map_type = type, .key_size = key, .value_size = value, .max_entries = room,
				      .map_flags = flags };
	snprintf(attributes.map_name, sizeof attributes.map_name, "%s", name);
	int fd = (int)bpf(BPF_MAP_CREATE, &attributes);
	if (fd < 0)
		conform_skip("this kernel or user has no such map");
	return fd;
}

static inline long put(int map, const void *key, const void *value)
{
	union bpf_attr attributes = { .map_fd = (unsigned)map, .key = (uintptr_t)key, .value = (uintptr_t)value };
	return bpf(BPF_MAP_UPDATE_ELEM, &attributes);
}

static inline long look_up(int map, const void *key, void *value)
{
	union bpf_attr attributes = { .map_fd = (unsigned)map, .key = (uintptr_t)key, .value = (uintptr_t)value };
	return bpf(BPF_MAP_LOOKUP_ELEM, &attributes);
}
#endif
