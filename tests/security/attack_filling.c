/*
 * Attacks by files that are said to be filled: turns and pages that change at random, wake-ups in a
 * storm, wishes that nobody grants, memory files that are none or can be cut.
 */
#include "proto/filling.h"
#include "proto/framing.h"
#include "tests/security/attack.h"
#include "tests/test.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { SAMPLES = 60 /* of the stage's dataset */, FILES = 6, FEEDS = 8 };
enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static int memory_file(off_t size, int seals)
{
	int fd = memfd_create("filling", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, size), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static struct feed_filling filling_files(void)
{
	return (struct feed_filling){sizeof(struct feed_filling), memory_file(SAMPLES, SEALS),
				     memory_file(FILLING_PAGE_SIZE, SEALS)};
}

static void *map_shared(int fd, size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	return memory;
}

/* Writes at random to both files, makes holes, and wakes the worker all the time. */
static void scribble_for_ever(const struct feed_filling *files)
{
	uint8_t *turns = map_shared(files->map, SAMPLES);
	uint64_t *words = map_shared(files->page, FILLING_PAGE_SIZE);
	struct filling_page *page = (struct filling_page *)words;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		uint64_t value = attack_random();
		/* Odd turns mostly, so that samples are made, and made again. */
		__atomic_store_n(&turns[value % SAMPLES], (uint8_t)(value >> 8 | (value >> 16) % 4),
				 __ATOMIC_RELAXED);
		__atomic_store_n(&words[value % (FILLING_PAGE_SIZE / sizeof(*words))], value >> 3,
				 __ATOMIC_RELAXED);
		if (value >> 20 & 1)
			syscall(SYS_futex, &page->arrived, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
		if ((value >> 24 & 63) == 0)
			(void)!fallocate(files->page, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
					 FILLING_PAGE_SIZE);
		if ((value >> 32 & 63) == 0)
			(void)!fallocate(files->map, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
					 SAMPLES);
	}
}

static struct feed_options options_of(const struct stage *stage, const struct feed_filling *files)
{
	struct feed_options options = stage->alice;
	options.filling = files;
	options.batch_size = 4;
	options.slots = 4;
	options.bad = FEED_BAD_SKIP;
	return options;
}

/* Takes batches of a feed whose files another process scribbles on. The feed may fail or stall. */
static void scribble(const struct stage *stage)
{
	struct feed_filling files = filling_files();
	struct feed_options options = options_of(stage, &files);
	int status;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		scribble_for_ever(&files);
	for (uint64_t until_ms = attack_deadline(); attack_now_ms() < until_ms;) {
		struct feed *feed = attack_open_feed(&options);
		struct feed_batch batch = {.size = sizeof(batch)};
		for (unsigned i = 0; i < 20 && feed_next(feed, 20, &batch) == 0; i++) {
			for (uint32_t k = 0; k < batch.count; k++)
				assert_true(batch.samples[k] < SAMPLES);
			assert_int_equal(feed_release(feed, &batch), 0);
		}
		feed_close(feed);
	}
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	close(files.map);
	close(files.page);
}

/* More feeds than the pool has threads and standbys wait, while the last one gets its batches. */
static void grant_no_wish(const struct stage *stage)
{
	struct feed_filling files[FEEDS];
	struct feed *feeds[FEEDS], *local;
	struct feed_options options = options_of(stage, NULL);
	uint64_t until_ms = attack_deadline();
	for (unsigned i = 0; i < FEEDS; i++) {
		files[i] = filling_files();
		options.filling = &files[i];
		feeds[i] = attack_open_feed(&options);
	}
	options.filling = NULL;
	local = attack_open_feed(&options);
	do
		assert_true(fixture_hash(local, 10) != 0);
	while (attack_now_ms() < until_ms);
	feed_close(local);
	for (unsigned i = 0; i < FEEDS; i++) {
		struct feed_batch batch = {.size = sizeof(batch)};
		assert_int_equal(feed_next(feeds[i], 0, &batch), -ETIMEDOUT);
		feed_close(feeds[i]);
		close(files[i].map);
		close(files[i].page);
	}
}

static int ask(const struct stage *stage, int images, int map, int page)
{
	Loaderd__OpenFeed open = LOADERD__OPEN_FEED__INIT;
	const int files[FILES] = {images, -1, -1, -1, map, page};
	int socket = -1;
	open.version = PROTO_VERSION;
	open.dataset = (char *)stage->images;
	open.pipeline = (char *)"random_resized_crop(32)";
	open.batch_size = 4;
	open.slots = 2;
	open.filling = FILLING_VERSION;
	int code = attack_open_order(stage, &open, files, &socket);
	if (code == 0)
		close(socket);
	return code;
}

/* Memory files that are not as they should be. */
static void offer_others(const struct stage *stage)
{
	const int images = open(stage->images, O_RDONLY | O_CLOEXEC);
	const int map = memory_file(SAMPLES, SEALS), page = memory_file(FILLING_PAGE_SIZE, SEALS);
	const int huge = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
	char path[64];
	int ring[2], pair[2];
	assert_true(images >= 0);
	/* A ring and its ack page, which the daemon has sealed otherwise. */
	int socket = attack_take_ring(stage, images, "random_resized_crop(32)", ring);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", page);
	const int read_only = open(path, O_RDONLY | O_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", map);
	const int write_only = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(read_only >= 0 && write_only >= 0);
	assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
	const int maps[] = {memory_file(SAMPLES, F_SEAL_SHRINK | F_SEAL_SEAL),
			    memory_file(SAMPLES - 1, SEALS),
			    memory_file(0, SEALS),
			    write_only,
			    images,
			    ring[0],
			    page,
			    pair[0],
			    huge};
	const int pages[] = {memory_file(FILLING_PAGE_SIZE, F_SEAL_GROW | F_SEAL_SEAL),
			     memory_file(2 * FILLING_PAGE_SIZE, SEALS),
			     memory_file(FILLING_PAGE_SIZE, SEALS | F_SEAL_WRITE),
			     read_only,
			     images,
			     ring[0],
			     ring[1],
			     map,
			     pair[1],
			     huge};
	for (unsigned i = 0; i < sizeof(maps) / sizeof(*maps); i++)
		if (maps[i] >= 0)
			assert_int_equal(ask(stage, images, maps[i], page), EINVAL);
	for (unsigned i = 0; i < sizeof(pages) / sizeof(*pages); i++)
		if (pages[i] >= 0)
			assert_int_equal(ask(stage, images, map, pages[i]), EINVAL);
	/* They cannot be cut, whoever tries. */
	assert_int_equal(ask(stage, images, map, page), 0);
	assert_int_equal(ftruncate(map, 0), -1);
	assert_int_equal(ftruncate(page, 0), -1);
	close(socket);
}

const struct attack attacks_on_filling[] = {
	{"turns and page that change at random", scribble, NULL, NULL, .processes = 2},
	{"wishes that nobody grants", grant_no_wish, NULL, NULL},
	{"memory files that are none", offer_others, NULL, NULL},
	{0},
};
