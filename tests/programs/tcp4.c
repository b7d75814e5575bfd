/* Established TCP connections over IPv4. */
#include "tcp.inc"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	live(AF_INET);
	conform_pass();
}
