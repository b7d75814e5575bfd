/* Established TCP connections over IPv6. */
#include "tcp.inc"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	live(AF_INET6);
	conform_pass();
}
