/*
 * Maps of bpf: a hash, an array that is frozen, a trie; one that several descriptions are of, one of them for reading
 * alone, and that a child shares.
 */
#include "bpf.h"

enum { ENTRIES = 100, TIMES = 7, ADDED = 1234, CHANGED = 4321 };

static int hash, again, reading, array, trie;
static struct { uint32_t length; uint8_t address[4]; } net = { 16, { 10, 1, 0, 0 } }, host = { 32, { 10, 1, 2, 3 } };

static struct bpf_map_info info_of(int map)
{
	struct bpf_map_info info = { 0 };
	union bpf_attr attributes = { .info = { .bpf_fd = (unsigned)map, .info_len = sizeof info,
						.info = (uintptr_t)&info } };
	BUILD(bpf(BPF_OBJ_GET_INFO_BY_FD, &attributes));
	return info;
}

static int open_by_number(unsigned id, unsigned flags)
{
	union bpf_attr attributes = { .map_id = id, .open_flags = flags };
	return (int)BUILD(bpf(BPF_MAP_GET_FD_BY_ID, &attributes));
}

static void check_hash(int map, uint64_t last)
{
	uint64_t value;
	for (uint32_t key = 0; key < ENTRIES; key++) {
		BUILD(look_up(map, &key, &value));
		EXPECT("value in the hash", value, key == ENTRIES - 1 ? last : (uint64_t)key * TIMES);
	}
}

/* Which memory node a map is on, nobody is told: it must be the only one. */
static unsigned of_node(void)
{
	char nodes[16] = "";
	int fd = open("/sys/devices/system/node/online", O_RDONLY);
	ssize_t length = fd < 0 ? 2 : BUILD(read(fd, nodes, sizeof nodes));
	return length == 2 ? BPF_F_NUMA_NODE : 0;
}

static void child(void *unused)
{
	(void)unused;
	uint32_t key = ENTRIES - 1;
	uint64_t value = CHANGED;
	conform_mark("child");
	conform_wait();
	conform_await("checked");
	BUILD(put(hash, &key, &value));
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	hash = new_map(BPF_MAP_TYPE_HASH, 4, 8, 2 * ENTRIES, BPF_F_NO_PREALLOC, "numbers");
	array = new_map(BPF_MAP_TYPE_ARRAY, 4, 8, 3, BPF_F_RDONLY_PROG | of_node(), "");
	trie = new_map(BPF_MAP_TYPE_LPM_TRIE, sizeof net, 1, 10, BPF_F_NO_PREALLOC, "nets");
	again = open_by_number(info_of(hash).id, 0);
	reading = open_by_number(info_of(hash).id, BPF_F_RDONLY);
	for (uint32_t key = 0; key < ENTRIES; key++) {
		uint64_t value = (uint64_t)key * TIMES;
		BUILD(put(hash, &key, &value));
	}
	uint32_t one = 1, four = 4;
	uint64_t value = 0x1122334455667788;
	BUILD(put(array, &one, &value));
	union bpf_attr freeze = { .map_fd = (unsigned)array };
	BUILD(bpf(BPF_MAP_FREEZE, &freeze));
	uint8_t which = 42;
	BUILD(put(trie, &net, &which));
	pid_t other = conform_spawn(child, NULL);
	conform_await("child");
	conform_ready();
	conform_wait();

	check_hash(hash, (uint64_t)(ENTRIES - 1) * TIMES);
	check_hash(reading, (uint64_t)(ENTRIES - 1) * TIMES);
	uint32_t key = ENTRIES;
	EXPECT_ERROR("entry that is not there", look_up(hash, &key, &value), ENOENT);
	EXPECT_ERROR("change by a description for reading", put(reading, &key, &value), EPERM);
	struct bpf_map_info info = info_of(hash);
	EXPECT("type", info.type, BPF_MAP_TYPE_HASH);
	EXPECT("room", info.max_entries, 2 * ENTRIES);
	EXPECT("flags", info.map_flags, BPF_F_NO_PREALLOC);
	EXPECT_TEXT("name", info.name, "numbers");
	EXPECT("number of the other description's map", info_of(again).id, info.id);
	EXPECT("number of the reading description's map", info_of(reading).id, info.id);
	value = ADDED;
	BUILD(put(again, &key, &value));
	value = 0;
	BUILD(look_up(hash, &key, &value));
	EXPECT("entry that another description has made", value, ADDED);
	conform_mark("checked");
	conform_join(other);
	check_hash(hash, CHANGED);

	for (uint32_t i = 0; i < 3; i++) {
		BUILD(look_up(array, &i, &value));
		EXPECT("value in the array", value, i == 1 ? 0x1122334455667788 : 0);
	}
	EXPECT_ERROR("change of a frozen map", put(array, &one, &value), EPERM);
	EXPECT_ERROR("entry behind the end", look_up(array, &four, &value), ENOENT);
	EXPECT("flags of the array", info_of(array).map_flags, BPF_F_RDONLY_PROG | of_node());
	which = 0;
	BUILD(look_up(trie, &host, &which));
	EXPECT("net of a host", which, 42);
	conform_pass();
}
