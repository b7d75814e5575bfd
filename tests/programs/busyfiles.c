/*
 * Files of $TMPDIR that change in every way while checkpoints are taken, some at once again and some after a rest:
 * a process finds in each what it wrote last, whatever of it was read before the process stood still.
 */
#include "conform.h"

#define FILES 24
#define MOST (512 * 1024)

static struct file {
	char path[600];
	/* What it must have. */
	unsigned char *content;
	size_t size;
	/* Open for as long as the program runs, or -1. */
	int held;
	/* How long it rests, and until when. */
	int64_t rest, until;
} files[FILES];

static char folder[512];
static unsigned long long seed = 88172645463325252ULL;

static unsigned chance(unsigned below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (unsigned)((seed >> 20) % below);
}

static int open_of(struct file *file)
{
	return file->held >= 0 ? file->held : (int)BUILD(open(file->path, O_RDWR));
}

static void close_of(struct file *file, int fd)
{
	if (file->held < 0)
		BUILD(close(fd));
}

static void check(struct file *file)
{
	static unsigned char found[MOST];
	struct stat stat_;
	int fd = open_of(file);
	BUILD(fstat(fd, &stat_));
	EXPECT(file->path, stat_.st_size, file->size);
	for (size_t done = 0; done < file->size;) {
		long count = BUILD(pread(fd, found + done, file->size - done, (off_t)done));
		if (count == 0)
			conform_fail("%s ends after %zu bytes", file->path, done);
		done += (size_t)count;
	}
	for (size_t at = 0; at < file->size; at++)
		if (found[at] != file->content[at])
			conform_fail("%s: byte %zu: expected %d, found %d", file->path, at, file->content[at], found[at]);
	close_of(file, fd);
}

static void write_at(int fd, const unsigned char *bytes, size_t size, size_t offset)
{
	for (size_t done = 0; done < size;)
		done += (size_t)BUILD(pwrite(fd, bytes + done, size - done, (off_t)(offset + done)));
}

/* Through a mapping that is there for this one write, of a page that was read before. */
static void write_mapped(int fd, struct file *file, size_t at, unsigned char byte)
{
	unsigned char *memory = mmap(NULL, file->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		conform_fail("mmap of %s: %s", file->path, strerror(errno));
	EXPECT(file->path, memory[at], file->content[at]);
	memory[at] = byte;
	BUILD(munmap(memory, file->size));
}

/* Another file of the same size and with the same time of its last change takes its place. */
static void replace(struct file *file)
{
	char path[700];
	struct stat before;
	snprintf(path, sizeof path, "%s.new", file->path);
	BUILD(stat(file->path, &before));
	int fd = (int)BUILD(open(path, O_RDWR | O_CREAT | O_EXCL, 0600));
	write_at(fd, file->content, file->size, 0);
	struct timespec times[2] = {before.st_mtim, before.st_mtim};
	BUILD(futimens(fd, times));
	BUILD(close(fd));
	BUILD(rename(path, file->path));
}

static void change(struct file *file)
{
	size_t at = chance((unsigned)file->size);
	unsigned char byte = (unsigned char)chance(256);
	int fd = open_of(file);
	switch (chance(file->held < 0 ? 6 : 5)) {
	case 0:
		file->content[at] = byte;
		write_at(fd, file->content + at, 1, at);
		break;
	case 1:
		write_mapped(fd, file, at, byte);
		file->content[at] = byte;
		break;
	case 2:
		file->size = at + 1;
		BUILD(ftruncate(fd, (off_t)file->size));
		break;
	case 3:
		memset(file->content, byte, MOST);
		file->size = MOST;
		write_at(fd, file->content, file->size, 0);
		break;
	case 4: {
		struct stat before;
		BUILD(fstat(fd, &before));
		file->content[at] = byte;
		write_at(fd, file->content + at, 1, at);
		struct timespec times[2] = {before.st_mtim, before.st_mtim};
		BUILD(futimens(fd, times));
		break;
	}
	default:
		file->content[at] = byte;
		replace(file);
	}
	close_of(file, fd);
}

static void make(struct file *file, int number)
{
	snprintf(file->path, sizeof file->path, "%s/file-%d", folder, number);
	file->content = conform_map(MOST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	file->size = 1 + chance(MOST - 1);
	int fd = (int)BUILD(open(file->path, O_RDWR | O_CREAT | O_EXCL, 0600));
	BUILD(ftruncate(fd, (off_t)file->size));
	file->held = number % 2 ? fd : -1;
	close_of(file, fd);
	/* A third changes all the time; the others rest for longer than change times lag. */
	file->rest = number % 3 == 0 ? 0 : number % 3 == 1 ? 120000000 : 600000000;
}

static void change_one(void)
{
	struct file *file = &files[chance(FILES)];
	int64_t now = conform_clock(CLOCK_MONOTONIC);
	if (now < file->until)
		return;
	check(file);
	change(file);
	file->until = now + file->rest;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	const char *base = getenv("TMPDIR");
	snprintf(folder, sizeof folder, "%s/conform-XXXXXX", base ? base : "/tmp");
	if (!mkdtemp(folder))
		conform_fail("%s: %s", folder, strerror(errno));
	for (int number = 0; number < FILES; number++)
		make(&files[number], number);
	/* At the first checkpoint some have rested. */
	for (int64_t end = conform_clock(CLOCK_MONOTONIC) + 700000000; conform_clock(CLOCK_MONOTONIC) < end;)
		change_one();
	conform_ready();
	while (!conform_gone())
		change_one();
	for (int number = 0; number < FILES; number++) {
		check(&files[number]);
		BUILD(unlink(files[number].path));
	}
	BUILD(rmdir(folder));
	conform_pass();
}
