/* A Unix stream socket bound to a path, listening, with connections, and reached again by its path. */
#include "unix.inc"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	address.sun_family = AF_UNIX;
	snprintf(address.sun_path, sizeof address.sun_path, "%s", conform_path("s"));
	address_length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(address.sun_path) + 1);
	live();
	conform_pass();
}
