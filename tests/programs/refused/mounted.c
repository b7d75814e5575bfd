/*
 * A file system that the job has mounted in the mount namespace that ckptd has made for it.
 * conform: root
 */
#include "../conform.h"
#include <sys/mount.h>

/* Among the machine's own processes there is no such namespace, and the mount would be the machine's. */
static bool is_in_own_namespaces(void)
{
	char name[32] = "";
	int fd = BUILD(open("/proc/1/cmdline", O_RDONLY));
	BUILD(read(fd, name, sizeof name - 1));
	close(fd);
	return strcmp(name, "ckptd-init") == 0;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	if (!is_in_own_namespaces())
		conform_skip("no namespaces of ckptd's own");
	const char *folder = conform_path("mounted");
	BUILD(mkdir(folder, 0700));
	BUILD(mount("none", folder, "tmpfs", 0, NULL));
	int file = BUILD(open(conform_path("mounted/file"), O_RDWR | O_CREAT, 0600));
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	conform_write_all(file, "kept", 4);
	close(file);
	BUILD(umount(folder));
	conform_pass();
}
