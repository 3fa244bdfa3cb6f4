/*
 * Files that their owner changes while they are opened and served, or that promise more than they
 * hold.
 */
#include "attack.h"

#include "packimg.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char hostile[PATH_MAX], other[PATH_MAX];

static void make(struct stage *stage, enum dataset_kind kind)
{
	strcpy(hostile, attack_dataset(stage->alices, "hostile", kind, ALICE));
}

static void make_jpeg(struct stage *stage)
{
	make(stage, DATASET_JPEG);
}

static void make_indexed(struct stage *stage)
{
	make(stage, DATASET_INDEXED);
}

static void make_raw(struct stage *stage)
{
	make(stage, DATASET_RAW);
}

static void make_zstd(struct stage *stage)
{
	make(stage, DATASET_ZSTD);
}

static void make_two(struct stage *stage)
{
	make(stage, DATASET_RAW);
	strcpy(other, attack_dataset(stage->alices, "other", DATASET_INDEXED, ALICE));
}

struct mapping {
	uint8_t *bytes;
	size_t size;
	int fd;
};

static struct mapping map(const char *path)
{
	struct mapping mapping = {.fd = open(path, O_RDWR | O_CLOEXEC)};
	struct stat status;
	assert_int_equal(fstat(mapping.fd, &status), 0);
	mapping.size = (size_t)status.st_size;
	mapping.bytes = mmap(NULL, mapping.size, PROT_READ | PROT_WRITE, MAP_SHARED, mapping.fd, 0);
	assert_true(mapping.bytes != MAP_FAILED);
	return mapping;
}

/*
 * In a process beside: bytes are changed and changed back as fast as that goes, so that most of
 * what is looked at is right and what is looked at twice differs. `first` bytes of the file get
 * every other change.
 */
static pid_t flicker(const struct mapping *mapping, size_t first)
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (uint64_t n = 0;; n++) {
		size_t at = attack_random() % (n % 2 == 0 ? first : mapping->size);
		uint8_t was = mapping->bytes[at], is = (uint8_t)attack_random();
		for (unsigned i = 0; i < 200; i++) {
			((volatile uint8_t *)mapping->bytes)[at] = is;
			((volatile uint8_t *)mapping->bytes)[at] = was;
		}
		if (n % 8 == 0) /* and this for good, until the file is mended */
			mapping->bytes[at] = is;
	}
}

/* Opens, asks for the facts, takes a few batches; whatever of it goes wrong does. */
static void consume(const struct stage *stage, const char *path, const char *pipeline)
{
	static const char *const fields[] = {"number", "text"};
	struct feed_options options = stage->alice;
	struct feed_batch batch = {.size = sizeof batch};
	struct feed_dataset *facts;
	struct feed *feed;
	options.dataset = path;
	options.pipeline = pipeline;
	options.fields = fields;
	options.field_count = attack_random() % 3;
	if (feed_dataset(stage->fixture.socket, path, &facts, NULL) == 0)
		feed_dataset_free(facts);
	if (feed_open(&options, &feed, NULL) < 0)
		return;
	for (unsigned i = 0; i < 6 && feed_next(feed, 5000, &batch) == 0; i++)
		feed_release(feed, &batch);
	feed_close(feed);
}

static void change_while_served(const struct stage *stage)
{
	struct mapping mapping = map(hostile);
	uint8_t *good = malloc(mapping.size);
	memcpy(good, mapping.bytes, mapping.size);
	for (uint64_t until = attack_deadline(), n = 0; attack_now_ms() < until; n++) {
		pid_t pid = flicker(&mapping, n % 2 ? 4096 : mapping.size);
		for (unsigned i = 0; i < 4; i++)
			consume(stage, hostile, i % 2 ? "random_resized_crop(32)" : "resize(32) center_crop(32)");
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		memcpy(mapping.bytes, good, mapping.size);
	}
}

static void truncate_while_served(const struct stage *stage)
{
	struct mapping mapping = map(hostile);
	uint8_t *good = malloc(mapping.size);
	memcpy(good, mapping.bytes, mapping.size);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;) {
			usleep((useconds_t)(attack_random() % 3000));
			if (ftruncate(mapping.fd, (off_t)(attack_random() % mapping.size)) < 0)
				_exit(1);
			usleep((useconds_t)(attack_random() % 300));
			if (pwrite(mapping.fd, good, mapping.size, 0) != (ssize_t)mapping.size)
				_exit(1);
		}
	}
	for (uint64_t until = attack_deadline(); attack_now_ms() < until;)
		consume(stage, hostile, "random_resized_crop(32)");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* Two good files take each other's place: by name, or byte for byte in the same file. */
static void replace_while_opened(const struct stage *stage)
{
	struct mapping mapping = map(hostile), second = map(other);
	char path[PATH_MAX + 8];
	snprintf(path, sizeof path, "%s.new", hostile);
	uint8_t header[4096];
	memcpy(header, mapping.bytes, sizeof header);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (unsigned n = 0;; n++) {
			memcpy(mapping.bytes, n % 2 ? header : second.bytes, sizeof header);
			if (n % 64 == 0 && (link(other, path) < 0 || rename(path, hostile) < 0))
				unlink(path);
		}
	}
	for (uint64_t until = attack_deadline(); attack_now_ms() < until;)
		consume(stage, hostile, "resize(32) center_crop(32)");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void check_replaced(struct stage *stage)
{
	unlink(hostile);
	unlink(other);
}

const struct attack attacks_on_files[] = {
	{"JPEGs change while they are served", change_while_served, make_jpeg, NULL},
	{"JPEGs and their indexes change", change_while_served, make_indexed, NULL},
	{"raw pixels change", change_while_served, make_raw, NULL},
	{"compressed pixels change", change_while_served, make_zstd, NULL},
	{"a file is cut short and grows again", truncate_while_served, make_indexed, NULL},
	{"two files take each other's place", replace_while_opened, make_two, check_replaced},
	{0},
};
