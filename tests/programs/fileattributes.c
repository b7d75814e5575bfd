/*
 * Extended attributes and access control lists of files that the image carries: deleted ones, with and without a name in a
 * session directory, memfds. Those that a file system has none of are left out.
 */
#include "conform.h"
#include <sys/xattr.h>

/* The value of system.posix_acl_access (include/uapi/linux/posix_acl_xattr.h): a version, then tag, permissions, id. */
struct acl_entry {
	uint16_t tag, permissions;
	uint32_t id;
};
struct acl {
	uint32_t version;
	struct acl_entry entries[5];
};
static const struct acl list = {
	2,
	{
		{ 0x01, 6, UINT32_MAX }, /* its owner */
		{ 0x02, 4, 12345 }, /* a user */
		{ 0x04, 4, UINT32_MAX }, /* its group */
		{ 0x10, 4, UINT32_MAX }, /* the mask */
		{ 0x20, 0, UINT32_MAX }, /* others */
	},
};
static char large[3000];

enum { DELETED, NAMED, MEMORY, BARE, FILES };
static const char *const what[FILES] = { "deleted file", "file of a session directory", "memfd", "without any" };

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int fds[FILES];
	bool has_attributes[FILES], has_lists[FILES];
	conform_fill(large, sizeof large, 1);
	fds[DELETED] = (int)BUILD(open(conform_path("deleted"), O_RDWR | O_CREAT, 0640));
	fds[NAMED] = (int)BUILD(open(conform_path("named"), O_RDWR | O_CREAT, 0640));
	fds[MEMORY] = (int)BUILD(memfd_create("attributes", 0));
	fds[BARE] = (int)BUILD(open(conform_path("bare"), O_RDWR | O_CREAT, 0640));
	for (int i = 0; i < BARE; i++) {
		conform_write_all(fds[i], "content", 7);
		has_attributes[i] = fsetxattr(fds[i], "user.short", "value", 5, 0) == 0;
		if (has_attributes[i]) {
			BUILD(fsetxattr(fds[i], "user.empty", "", 0, 0));
			BUILD(fsetxattr(fds[i], "user.large", large, sizeof large, 0));
		}
		has_lists[i] = fsetxattr(fds[i], "system.posix_acl_access", &list, sizeof list, 0) == 0;
	}
	if (!has_attributes[NAMED] && !has_attributes[DELETED])
		conform_skip("no attributes here");
	BUILD(unlink(conform_path("deleted")));
	conform_ready();
	conform_wait();
	for (int i = 0; i < BARE; i++) {
		char value[sizeof large + 1], names[256];
		struct acl found;
		struct stat stat;
		BUILD(fstat(fds[i], &stat));
		if (has_attributes[i]) {
			EXPECT(what[i], fgetxattr(fds[i], "user.short", value, sizeof value), 5);
			EXPECT(what[i], memcmp(value, "value", 5), 0);
			EXPECT(what[i], fgetxattr(fds[i], "user.empty", value, sizeof value), 0);
			EXPECT(what[i], fgetxattr(fds[i], "user.large", value, sizeof value), sizeof large);
			conform_verify(what[i], value, sizeof large, 1);
		}
		if (has_lists[i]) {
			EXPECT(what[i], fgetxattr(fds[i], "system.posix_acl_access", &found, sizeof found), sizeof list);
			EXPECT(what[i], memcmp(&found, &list, sizeof list), 0);
			EXPECT(what[i], stat.st_mode & 0777, 0640);
		}
		if (!has_attributes[i] && !has_lists[i])
			EXPECT(what[i], flistxattr(fds[i], names, sizeof names), 0);
	}
	EXPECT_ERROR(what[BARE], fgetxattr(fds[BARE], "user.short", NULL, 0), ENODATA);
	conform_pass();
}
