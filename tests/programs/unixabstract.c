/* A Unix stream socket with an abstract name, listening, with connections, and reached again by its name. */
#include "unix.inc"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	address.sun_family = AF_UNIX;
	int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "%s", conform_unique());
	address_length = (socklen_t)offsetof(struct sockaddr_un, sun_path) + 1 + (socklen_t)length;
	live();
	conform_pass();
}
