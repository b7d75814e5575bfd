/* The memory of a parent's context of asynchronous input and output, which a child has without the context (fork(2)). */
#include "../aio.inc"

static void child(void *argument)
{
	(void)argument;
	conform_mark("child");
	while (!conform_gone())
		conform_sleep_ms(5);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	aio_context_t context = aio_make(8);
	pid_t pid = conform_spawn(child, NULL);
	conform_await("child");
	conform_expect_refusal(pid, -1);
	conform_ready();
	conform_wait();
	EXPECT("places", aio_ring(context)->places > 8, 1);
	conform_join(pid);
	BUILD(syscall(SYS_io_destroy, context));
	conform_pass();
}
