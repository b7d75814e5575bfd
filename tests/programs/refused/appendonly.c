/*
 * A file that can only be appended to (chattr +a): a restart could not give it the content that it had.
 *
 * conform: root
 */
#include "../conform.h"
#include <linux/fs.h>
#include <sys/ioctl.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int file = (int)BUILD(open(conform_path("file"), O_CREAT | O_RDWR | O_APPEND, 0600));
	int flags = FS_APPEND_FL;
	if (ioctl(file, FS_IOC_SETFLAGS, &flags) != 0)
		conform_skip("no such attributes here");
	conform_expect_refusal(getpid(), file);
	conform_ready();
	conform_wait();
	conform_write_all(file, "x", 1);
	flags = 0;
	BUILD(ioctl(file, FS_IOC_SETFLAGS, &flags));
	conform_pass();
}
