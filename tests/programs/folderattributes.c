/*
 * Extended attributes and access control lists of closed files and folders in $TMPDIR: after a restart they are what they
 * were at the checkpoint, whatever was set, changed and removed afterwards.
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

static char folder[512];
static long rounds;
static bool has_lists;

static const char *path(const char *name)
{
	static char buffers[4][600];
	static int next;
	char *buffer = buffers[next++ % 4];
	snprintf(buffer, sizeof buffers[0], "%s/%s", folder, name);
	return buffer;
}

/* A list that is another one in each round. */
static struct acl list(long number)
{
	return (struct acl){
		2,
		{
			{ 0x01, 6, UINT32_MAX }, /* its owner */
			{ 0x02, 4, 10000 + (uint32_t)(number % 1000) }, /* a user */
			{ 0x04, 4, UINT32_MAX }, /* its group */
			{ 0x10, 4, UINT32_MAX }, /* the mask */
			{ 0x20, 0, UINT32_MAX }, /* others */
		},
	};
}

static void put(const char *name, const char *attribute)
{
	BUILD(setxattr(path(name), attribute, &rounds, sizeof rounds, 0));
}

static void work(void *unused)
{
	(void)unused;
	char attribute[64];
	rounds++;
	put("file", "user.round");
	put("inside", "user.round");
	put("inside/file", "user.round");
	/* An attribute of this round alone. */
	snprintf(attribute, sizeof attribute, "user.only-%ld", rounds);
	put("file", attribute);
	if (rounds > 1) {
		snprintf(attribute, sizeof attribute, "user.only-%ld", rounds - 1);
		BUILD(removexattr(path("file"), attribute));
	}
	struct acl now = list(rounds);
	if (has_lists) {
		BUILD(setxattr(path("file"), "system.posix_acl_access", &now, sizeof now, 0));
		BUILD(setxattr(path("inside"), "system.posix_acl_default", &now, sizeof now, 0));
	}
}

static void expect_round(const char *name, const char *attribute)
{
	long found = -1;
	EXPECT(name, getxattr(path(name), attribute, &found, sizeof found), sizeof found);
	EXPECT(name, found, rounds);
}

static void expect_list(const char *name, const char *attribute)
{
	struct acl found, wanted = list(rounds);
	EXPECT(name, getxattr(path(name), attribute, &found, sizeof found), sizeof found);
	EXPECT(name, memcmp(&found, &wanted, sizeof found), 0);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct acl first = list(0);
	char attribute[64], names[1024];
	const char *base = getenv("TMPDIR");
	snprintf(folder, sizeof folder, "%s/conform-XXXXXX", base ? base : "/tmp");
	if (!mkdtemp(folder))
		conform_fail("%s: %s", folder, strerror(errno));
	BUILD(mkdir(path("inside"), 0750));
	close((int)BUILD(open(path("file"), O_WRONLY | O_CREAT, 0640)));
	close((int)BUILD(open(path("inside/file"), O_WRONLY | O_CREAT, 0640)));
	if (setxattr(path("file"), "user.kept", "yes", 3, 0) != 0) {
		BUILD(unlink(path("inside/file")));
		BUILD(rmdir(path("inside")));
		BUILD(unlink(path("file")));
		BUILD(rmdir(folder));
		conform_skip("no attributes here");
	}
	has_lists = setxattr(path("file"), "system.posix_acl_access", &first, sizeof first, 0) == 0;
	work(NULL);
	conform_ready();
	conform_wait_with(work, NULL);
	expect_round("file", "user.round");
	expect_round("inside", "user.round");
	expect_round("inside/file", "user.round");
	snprintf(attribute, sizeof attribute, "user.only-%ld", rounds);
	expect_round("file", attribute);
	EXPECT("file", getxattr(path("file"), "user.kept", attribute, sizeof attribute), 3);
	ssize_t length = BUILD(listxattr(path("file"), names, sizeof names));
	int count = 0;
	for (ssize_t i = 0; i < length; i += (ssize_t)strlen(names + i) + 1)
		count += strncmp(names + i, "user.", 5) == 0;
	EXPECT("attributes of the file", count, 3);
	if (has_lists) {
		expect_list("file", "system.posix_acl_access");
		expect_list("inside", "system.posix_acl_default");
		EXPECT_ERROR("inside/file", getxattr(path("inside/file"), "system.posix_acl_access", NULL, 0), ENODATA);
	}
	BUILD(unlink(path("inside/file")));
	BUILD(rmdir(path("inside")));
	BUILD(unlink(path("file")));
	BUILD(rmdir(folder));
	conform_pass();
}
