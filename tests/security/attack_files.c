/*
 * Files that their owner modifies while they are opened and served, or that declare more data than
 * they contain.
 */
#include "tests/integration/loaderd/control_client.h"
#include "tests/security/attack.h"

#include "format/layout.h"
#include "format/packimg.h"
#include "tests/dataset.h"
#include "tests/test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <xxhash.h>

static char hostile[PATH_MAX];

static void make(struct stage *stage, enum dataset_kind kind)
{
	strcpy(hostile, attack_dataset(stage->alice_folder, "hostile", kind, ALICE));
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

static void make_sets(struct stage *stage)
{
	attack_dataset(stage->alice_folder, "large", DATASET_SET, ALICE);
	attack_dataset(stage->alice_folder, "small", DATASET_SMALL_SET, ALICE);
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

enum { PLACES_MAX = 4096 };

/*
 * Chooses bytes that control how other bytes are read: the counts in every JPEG's Huffman tables.
 * Adds arbitrary bytes if there are too few.
 */
static unsigned choose(const struct mapping *mapping, size_t places[PLACES_MAX])
{
	unsigned count = 0;
	for (size_t i = 0; i + 32 < mapping->size && count < PLACES_MAX; i++)
		if (mapping->bytes[i] == 0xff && mapping->bytes[i + 1] == 0xc4)
			places[count++] = i + 5 + attack_random() % 16;
	while (count < 16)
		places[count++] = attack_random() % mapping->size;
	return count;
}

/*
 * Starts a process that changes bytes and restores them as fast as possible, so that most reads see
 * correct data and two reads of a byte may differ. It changes any of the first `first` bytes or, if
 * that is 0, the bytes chosen by choose().
 */
static pid_t start_flipping(const struct mapping *mapping, size_t first)
{
	static size_t places[PLACES_MAX];
	static uint8_t was[PLACES_MAX];
	volatile uint8_t *bytes = mapping->bytes;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		unsigned count = 1;
		places[0] = attack_random() % mapping->size;
		if (first != 0)
			places[0] %= first;
		else
			count = choose(mapping, places);
		for (unsigned i = 0; i < count; i++)
			was[i] = bytes[places[i]];
		for (unsigned round = 0; round < 2000; round++) {
			for (unsigned i = 0; i < count; i++)
				bytes[places[i]] = 0xff;
			for (unsigned i = 0; i < count; i++)
				bytes[places[i]] = was[i];
		}
	}
}

static struct feed *try_feed(const struct stage *stage, const char *path)
{
	static const char *const fields[] = {"number", "text"};
	struct feed_options options = stage->alice;
	struct feed *feed;
	options.dataset = path;
	options.fields = fields;
	options.field_count = attack_random() % 3;
	return feed_open(&options, &feed, NULL) < 0 ? NULL : feed;
}

/* Takes `count` batches; returns false if the feed ends for any reason. */
static bool take(struct feed *feed, unsigned count)
{
	struct feed_batch batch = {.size = sizeof(batch)};
	for (unsigned i = 0; i < count; i++) {
		if (feed_next(feed, 5000, &batch) != 0)
			return false;
		feed_release(feed, &batch);
	}
	return true;
}

/* Opens the dataset, requests its description and takes a few batches; ignores errors. */
static void consume(const struct stage *stage, const char *path)
{
	struct feed_dataset *facts;
	if (feed_dataset(stage->fixture.socket, path, &facts, NULL) == 0)
		feed_dataset_free(facts);
	struct feed *feed = try_feed(stage, path);
	if (!feed)
		return;
	(void)take(feed, 6);
	feed_close(feed);
}

/* Modifies the file while it is opened repeatedly, then after its checksums were verified. */
static void change_while_served(const struct stage *stage)
{
	struct mapping mapping = map(hostile);
	uint8_t *good = malloc(mapping.size);
	memcpy(good, mapping.bytes, mapping.size);
	pid_t pid = start_flipping(&mapping, 4096);
	for (unsigned i = 0; i < 20; i++)
		consume(stage, hostile);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	memcpy(mapping.bytes, good, mapping.size);
	for (uint64_t until = attack_deadline(); attack_now_ms() < until;) {
		struct feed *feed = try_feed(stage, hostile);
		assert_non_null(feed);
		/* several epochs, so that all checksums have been verified */
		assert_true(take(feed, 12));
		pid = start_flipping(&mapping, 0);
		(void)take(feed, 24);
		feed_close(feed);
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
		consume(stage, hostile);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void replace(const char *folder, const char *from, const char *name)
{
	char source[PATH_MAX], passing[PATH_MAX], target[PATH_MAX];
	for (unsigned shard = 0; shard < 2; shard++) {
		snprintf(source, sizeof(source), "%.200s/%s-%05u-of-00002.pimg", folder, from,
			 shard);
		snprintf(target, sizeof(target), "%.200s/%s-%05u-of-00002.pimg", folder, name,
			 shard);
		snprintf(passing, sizeof(passing), "%.200s/passing", folder);
		if (link(source, passing) == 0 && rename(passing, target) < 0)
			unlink(passing);
	}
}

/* Two valid sets with different numbers of images and classes replace each other. */
static void replace_while_opened(const struct stage *stage)
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%.200s/changing.pimg", stage->alice_folder);
	replace(stage->alice_folder, "large", "changing");
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (unsigned n = 0;; n++)
			replace(stage->alice_folder, n % 2 ? "large" : "small", "changing");
	}
	for (uint64_t until = attack_deadline(); attack_now_ms() < until;)
		consume(stage, path);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

enum {
	LARGE_SIDE = 12288, /* pixels; the image has 453 MB but is stored in a few kilobytes */
	TALL_WIDTH = 8,
	TALL_HEIGHT = 20000,
	GROWTH_MAX_KIB = 256 << 10, /* growth of the memory of ALICE's worker that may remain */
	BACK_WITHIN_MS =
		20000, /* the worker finishes the image that it has begun, which takes a while */
};

static uint64_t kib_before;

/* Anonymous memory of ALICE's worker, in KiB. */
static uint64_t worker_kib(const struct stage *stage)
{
	return anonymous_kib(fixture_worker_of(&stage->fixture, ALICE));
}

/* Writes black images, which compress well. */
static void make_black(struct stage *stage, const char *name, uint32_t width, uint32_t height)
{
	struct test_dataset data;
	kib_before = worker_kib(stage);
	snprintf(hostile, sizeof(hostile), "%.200s/%s.pimg", stage->alice_folder, name);
	if (access(hostile, F_OK) == 0)
		return;
	uint8_t *pixels = calloc(1, (size_t)width * height * 3);
	assert_non_null(pixels);
	struct packimg_item item = test_item(pixels, width, height);
	item.codec = PACKIMG_CODEC_RAW_ZSTD;
	test_dataset_begin(&data, hostile, 0);
	assert_int_equal(packimg_encode_zstd(data.encoder, pixels, item.data_size, 1, &item.data,
					     &item.data_size),
			 0);
	for (unsigned i = 0; i < 8; i++)
		test_dataset_add(&data, &item);
	test_dataset_finish(&data);
	free(pixels);
	assert_int_equal(chown(hostile, ALICE, ALICE), 0);
}

static void make_large(struct stage *stage)
{
	make_black(stage, "large", LARGE_SIDE, LARGE_SIDE);
}

static void make_tall(struct stage *stage)
{
	make_black(stage, "tall", TALL_WIDTH, TALL_HEIGHT);
}

static void serve_through(const struct stage *stage, const char *pipeline)
{
	struct feed_options options = stage->alice;
	struct feed_batch batch = {.size = sizeof(batch)};
	struct feed *feed;
	options.dataset = hostile;
	options.pipeline = pipeline;
	options.batch_size = 1;
	if (feed_open(&options, &feed, NULL) < 0)
		return; /* refusing the feed is also correct */
	for (uint64_t until = attack_deadline(); attack_now_ms() < until;) {
		if (feed_next(feed, 5000, &batch) != 0)
			break;
		feed_release(feed, &batch);
	}
	feed_close(feed);
}

static void serve_large(const struct stage *stage)
{
	serve_through(stage, "random_resized_crop(32)");
}

/* The intermediate image between the two resize passes has 246 MB. */
static void serve_tall(const struct stage *stage)
{
	serve_through(stage, "resize(4096x1, interpolation=bicubic)");
}

static void check_memory(struct stage *stage)
{
	uint64_t kib = 0;
	if (sanitized()) /* it keeps memory that was freed */
		return;
	for (uint64_t until_ms = attack_now_ms() + BACK_WITHIN_MS; attack_now_ms() < until_ms;) {
		kib = worker_kib(stage);
		if (kib <= kib_before + GROWTH_MAX_KIB)
			return;
		usleep(10000);
	}
	fail_msg("ALICE's worker had %llu KiB and keeps %llu for the images of %s, which nobody "
		 "asks for any more",
		 (unsigned long long)kib_before, (unsigned long long)kib, hostile);
}

enum {
	WIDE_WIDTH = 16384, /* pixels; a sample has 256 MB but is stored as a hole */
	WIDE_HEIGHT = 5461,
	WIDE_BYTES = WIDE_WIDTH * WIDE_HEIGHT * 3,
	WIDE_EACH = 4, /* every fourth sample is such a sample */
};

/*
 * Places the side data inside the sample's data. A reader that takes the end of the side data for
 * the end of the sample reads some kilobytes, and then accesses 256 MB.
 */
static void put_side_data_inside(struct mapping *mapping, uint64_t data_offset)
{
	struct pimg_header *header = (struct pimg_header *)mapping->bytes;
	struct pimg_section *index = &header->sections[0];
	assert_int_equal(index->type, PIMG_SECTION_INDEX);
	struct pimg_record *records = (struct pimg_record *)(mapping->bytes + index->offset);
	for (uint64_t i = 0; i < header->sample_count; i += WIDE_EACH) {
		records[i].data_offset = data_offset;
		records[i].data_size = WIDE_BYTES;
		records[i].side_offset = data_offset + PIMG_ALIGN;
		records[i].side_size = sizeof(struct pimg_side_item);
		records[i].side_xxh3 = 1;
		records[i].width = WIDE_WIDTH;
		records[i].height = WIDE_HEIGHT;
		records[i].codec = PACKIMG_CODEC_RAW;
	}
	index->xxh3 = XXH3_64bits(records, index->size);
	header->file_size = data_offset + WIDE_BYTES + PIMG_TAIL;
	header->header_xxh3 = XXH3_64bits(header, offsetof(struct pimg_header, header_xxh3));
}

static void make_side_data_inside(struct stage *stage)
{
	make(stage, DATASET_JPEG);
	struct mapping mapping = map(hostile);
	uint64_t data_offset = (mapping.size + PIMG_ALIGN - 1) / PIMG_ALIGN * PIMG_ALIGN;
	put_side_data_inside(&mapping, data_offset);
	assert_int_equal(ftruncate(mapping.fd, (off_t)(data_offset + WIDE_BYTES + PIMG_TAIL)), 0);
	munmap(mapping.bytes, mapping.size);
	close(mapping.fd);
}

/*
 * Takes a batch and asserts that other samples replace the bad ones, whose indices are divisible by
 * WIDE_EACH.
 */
static void take_substituted(struct feed *feed)
{
	struct feed_batch batch = {.size = sizeof(batch)};
	int r = feed_next(feed, 60000, &batch);
	if (r < 0)
		fail_msg("the feed over %s ends: %s", hostile, feed_error(feed));
	for (uint32_t i = 0; i < batch.count; i++)
		assert_true(batch.samples[i] % WIDE_EACH != 0);
	assert_int_equal(feed_release(feed, &batch), 0);
}

/*
 * ALICE's own feed of a valid dataset is the control: it must deliver all batches, and correct
 * ones.
 */
static void serve_side_data_inside(const struct stage *stage)
{
	enum { BATCHES = 8 };
	struct feed *clean = attack_open_feed(&stage->alice);
	uint64_t hash = fixture_hash(clean, BATCHES);
	feed_close(clean);
	struct feed_options options = stage->alice;
	options.dataset = hostile;
	for (uint64_t until = attack_deadline(); attack_now_ms() < until;) {
		clean = attack_open_feed(&stage->alice);
		struct feed *feed = attack_open_feed(&options);
		for (unsigned i = 0; i < BATCHES; i++)
			take_substituted(feed);
		assert_int_equal(fixture_hash(clean, BATCHES), hash);
		feed_close(feed);
		feed_close(clean);
	}
}

const struct attack attacks_on_files[] = {
	{"JPEGs change while they are served", change_while_served, make_jpeg, NULL},
	{"JPEGs and their indexes change", change_while_served, make_indexed, NULL},
	{"raw pixels change", change_while_served, make_raw, NULL},
	{"compressed pixels change", change_while_served, make_zstd, NULL},
	{"a file is truncated and grows again", truncate_while_served, make_indexed, NULL},
	{"two sets are exchanged", replace_while_opened, make_sets, NULL},
	{"small files that decode to gigabytes", serve_large, make_large, check_memory},
	{"tall images that become wide", serve_tall, make_tall, check_memory},
	{"side data inside the data", serve_side_data_inside, make_side_data_inside, NULL},
	{0},
};
