/* Unix sockets that were bound in a folder which is removed by now: a restart leaves none there. */
#include "conform.h"
#include <sys/socket.h>
#include <sys/un.h>

static struct sockaddr_un named(const char *folder, const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", folder, name);
	return address;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	const char *folder = conform_path("folder");
	struct sockaddr_un first = named(folder, "first"), second = named(folder, "second"), found;
	int to = BUILD(socket(AF_UNIX, SOCK_DGRAM, 0)), from = BUILD(socket(AF_UNIX, SOCK_DGRAM, 0));
	BUILD(mkdir(folder, 0700));
	BUILD(bind(to, (struct sockaddr *)&first, sizeof first));
	BUILD(bind(from, (struct sockaddr *)&second, sizeof second));
	BUILD(connect(from, (struct sockaddr *)&first, sizeof first));
	BUILD(unlink(first.sun_path));
	BUILD(unlink(second.sun_path));
	BUILD(rmdir(folder));
	conform_ready();
	conform_wait();
	EXPECT_ERROR("the folder", access(folder, F_OK), ENOENT);
	BUILD(send(from, "hello", 5, 0));
	char text[6] = "";
	socklen_t length = sizeof found;
	BUILD(recvfrom(to, text, 5, 0, (struct sockaddr *)&found, &length));
	EXPECT_TEXT("what was sent", text, "hello");
	EXPECT_TEXT("by whom", found.sun_path, second.sun_path);
	conform_pass();
}
