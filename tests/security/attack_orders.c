/*
 * Attacks by the order of a feed: lists that change while the worker reads them, filters that take
 * minutes, numbers at the limits of their types, as many parts and stages as there may be.
 */
#include "proto/framing.h"
#include "tests/integration/loaderd/control_client.h"
#include "tests/security/attack.h"
#include "tests/test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { PARTS_MAX = 1024, STAGES_MAX = 1024, LISTS = 4 /* one of each PartFile */ };

/* A feed of parts of one dataset, with one choice. */
struct ordered {
	Loaderd__OpenFeed open;
	Loaderd__Choice choice;
	Loaderd__Part part;
	Loaderd__Part *parts[PARTS_MAX + 1];
	Loaderd__Stage stages[STAGES_MAX + 1];
	Loaderd__Stage *stage_list[STAGES_MAX + 1];
	uint32_t shares[PARTS_MAX + 1];
	Loaderd__Bucket buckets[2];
	Loaderd__Bucket *bucket_list[257];
};

static void ordered_init(struct ordered *ordered, const struct stage *stage)
{
	loaderd__open_feed__init(&ordered->open);
	loaderd__choice__init(&ordered->choice);
	loaderd__part__init(&ordered->part);
	for (unsigned b = 0; b < 2; b++)
		loaderd__bucket__init(&ordered->buckets[b]);
	for (unsigned b = 0; b < 257; b++)
		ordered->bucket_list[b] = &ordered->buckets[b % 2];
	ordered->part.dataset = (char *)stage->images;
	ordered->part.choice = &ordered->choice;
	for (unsigned p = 0; p <= PARTS_MAX; p++)
		ordered->parts[p] = &ordered->part;
	for (unsigned s = 0; s <= STAGES_MAX; s++) {
		loaderd__stage__init(&ordered->stages[s]);
		ordered->stages[s].from = s;
		ordered->stages[s].shares = ordered->shares;
		ordered->stage_list[s] = &ordered->stages[s];
	}
	ordered->open.version = PROTO_VERSION;
	ordered->open.pipeline = (char *)"random_resized_crop(32)";
	ordered->open.batch_size = 4;
	ordered->open.slots = 2;
	ordered->open.parts = ordered->parts;
	ordered->open.n_parts = 1;
	ordered->open.stages = ordered->stage_list;
	ordered->open.buckets = ordered->bucket_list;
}

static int open_images(const struct stage *stage)
{
	int fd = open(stage->images, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

/* Returns a memory file of so many bytes of zeros: entries of sample 0, or weights of 0. */
static int zeros(off_t size)
{
	int fd = memfd_create("list", MFD_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, size), 0);
	return fd;
}

/* Any answer is good but one that is none. */
static void open_and_leave(const struct stage *stage, const Loaderd__OpenFeed *open,
			   const int *lists)
{
	int socket = -1;
	if (attack_open_order(stage, open, lists, &socket) == 0)
		close(socket);
}

static void change_for_ever(int fd, off_t size)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		uint64_t value = attack_random();
		ssize_t n = pwrite(fd, &value, sizeof(value), (off_t)(value % (uint64_t)size));
		(void)n;
		(void)!ftruncate(fd, value % 3 == 0 ? size : (off_t)(value % (uint64_t)size));
		(void)!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, size / 2);
	}
}

/* Sends lists that another process writes, cuts, grows and punches all the time. */
static void change_lists(const struct stage *stage)
{
	enum { SIZE = 1 << 20 };
	struct ordered *ordered = calloc(1, sizeof(*ordered));
	int list = zeros(SIZE), status;
	const int lists[LISTS] = {open_images(stage), list, list, list};
	ordered_init(ordered, stage);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		change_for_ever(list, SIZE);
	for (uint64_t until_ms = attack_deadline(), i = 0; attack_now_ms() < until_ms; i++) {
		ordered->choice.listed = i % 4 != 1;
		ordered->choice.weighted = i % 4 == 1 || i % 4 == 2;
		ordered->choice.class_weighted = i % 4 == 3;
		open_and_leave(stage, &ordered->open, lists);
	}
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	free(ordered);
}

/* Returns a filter that costs about 100,000 comparisons of characters, and then does not hold. */
static char *slow_filter(void)
{
	static const char term[] = "key like \"*?*?*?*?*?*?*?*?*?*?*?*?x*y*z\" or ";
	enum { TERMS = 4000, LENGTH = sizeof(term) - 1 };
	char *filter = malloc(TERMS * LENGTH + sizeof("sample < 0"));
	assert_non_null(filter);
	for (unsigned i = 0; i < TERMS; i++)
		memcpy(filter + i * LENGTH, term, LENGTH);
	strcpy(filter + TERMS * LENGTH, "sample < 0");
	return filter;
}

/* Asks for a feed of a list, sends the files, and does not wait for the answer. */
static int begin_listed(const struct stage *stage, const Loaderd__OpenFeed *open, int images,
			int list)
{
	int socket = attack_connect(stage);
	if (socket < 0 || !attack_send_open(socket, open))
		return socket;
	for (unsigned i = 0; i < 2; i++) {
		Loaderd__Reply *reply = attack_reply(socket, NULL);
		if (reply && reply->kind_case == LOADERD__REPLY__KIND_NEED_FILES)
			(void)attack_part_file(socket, reply->need_files, i == 0 ? images : list);
		loaderd__reply__free_unpacked(reply, NULL);
	}
	return socket;
}

/* Asks for filters that take minutes, and hangs up: the worker must notice, and serve others. */
static void leave_while_filtering(const struct stage *stage)
{
	enum { ENTRIES = 1 << 22, CLIENTS = 8 };
	struct ordered *ordered = calloc(1, sizeof(*ordered));
	char *filter = slow_filter();
	int images = open_images(stage), list = zeros(ENTRIES * (off_t)sizeof(uint64_t));
	ordered_init(ordered, stage);
	ordered->choice.listed = true;
	ordered->choice.where = filter;
	uint64_t until_ms = attack_deadline();
	do {
		int sockets[CLIENTS];
		for (unsigned i = 0; i < CLIENTS; i++)
			sockets[i] = begin_listed(stage, &ordered->open, images, list);
		usleep(attack_ms() * 250);
		for (unsigned i = 0; i < CLIENTS; i++)
			close(sockets[i]);
	} while (attack_now_ms() < until_ms);
	/* The next one is served, instead of waiting for those. */
	uint64_t start_ms = attack_now_ms();
	const int lists[LISTS] = {images, list, -1, -1};
	ordered->choice.where = (char *)"";
	uint64_t patience_ms = 10000u * (sanitized() ? 10 : 1);
	int r;
	/* They count against the user's limit of feeds until their jobs have ended. */
	while ((r = attack_open_order(stage, &ordered->open, lists, NULL)) == EDQUOT &&
	       attack_now_ms() - start_ms < patience_ms)
		usleep(10000);
	assert_int_equal(r, 0);
	assert_true(attack_now_ms() - start_ms < patience_ms);
	free(filter);
	free(ordered);
}

static uint64_t kib_before;

static uint64_t worker_kib(const struct stage *stage)
{
	return anonymous_kib(fixture_worker_of(&stage->fixture, ALICE));
}

static void note_memory(struct stage *stage)
{
	kib_before = worker_kib(stage);
}

/* Opens feeds of long lists at the same time, within the user's limit of memory. */
static void hold_long_lists(const struct stage *stage)
{
	enum { ENTRIES = 1 << 20, LONGEST = 7 << 20, FEEDS = 7 };
	struct ordered *ordered = calloc(1, sizeof(*ordered));
	const int list = zeros(ENTRIES * (off_t)sizeof(uint64_t));
	const int lists[LISTS] = {open_images(stage), list, -1, -1};
	ordered_init(ordered, stage);
	ordered->choice.listed = true;
	/* What glibc has once unmapped, up to 32 MiB, it keeps from then on when it is freed. */
	assert_int_equal(ftruncate(list, LONGEST * (off_t)sizeof(uint64_t)), 0);
	open_and_leave(stage, &ordered->open, lists);
	assert_int_equal(ftruncate(list, ENTRIES * (off_t)sizeof(uint64_t)), 0);
	for (uint64_t until_ms = attack_deadline(); attack_now_ms() < until_ms;) {
		int sockets[FEEDS];
		unsigned count = 0;
		while (count < FEEDS &&
		       attack_open_order(stage, &ordered->open, lists, &sockets[count]) == 0)
			count++;
		while (count > 0)
			close(sockets[--count]);
	}
	free(ordered);
}

/* The tables of the lists are given back, not only accounted as if they were. */
static void check_memory(struct stage *stage)
{
	enum {
		GROWTH_MAX_KIB = 28 << 10,
		/* with what its threads keep to decode */ BACK_WITHIN_MS = 20000
	};
	uint64_t kib = 0;
	if (sanitized()) /* it keeps memory that was freed */
		return;
	for (uint64_t until_ms = attack_now_ms() + BACK_WITHIN_MS; attack_now_ms() < until_ms;) {
		kib = worker_kib(stage);
		if (kib <= kib_before + GROWTH_MAX_KIB)
			return;
		usleep(10000);
	}
	fail_msg("ALICE's worker had %llu KiB and keeps %llu for lists of closed feeds",
		 (unsigned long long)kib_before, (unsigned long long)kib);
}

/* Returns a number that is small, or near the limit of a type. */
static uint64_t extreme(void)
{
	static const uint64_t numbers[] = {0,          1,
					   2,          3,
					   4,          60,
					   65535,      65536,
					   UINT32_MAX, 1ull << 32,
					   1ull << 56, 1ull << 62,
					   INT64_MAX,  UINT64_MAX - 1,
					   UINT64_MAX};
	return numbers[attack_random() % (sizeof(numbers) / sizeof(*numbers))];
}

static void choose_extremes(struct ordered *ordered)
{
	static const size_t parts[] = {1, 1, 2, 3},
			    stages[] = {0, 1, 2, 64, STAGES_MAX, STAGES_MAX + 1};
	static const char *const filters[] = {"", "", "sample >= 0", "label = 1 or key like '*'",
					      "("};
	Loaderd__OpenFeed *open = &ordered->open;
	uint64_t bits = attack_random();
	open->n_parts = parts[bits % 4];
	open->n_stages = stages[bits / 4 % 6];
	open->n_buckets = bits / 32 % 8 == 0 ? extreme() % 258 : 0;
	open->epoch_samples = bits / 256 % 2 ? extreme() : 0;
	open->part_batches = bits / 512 % 2;
	open->shuffle = bits / 1024 % 2;
	open->repeats = bits / 2048 % 2 ? (uint32_t)extreme() % 257 : 0;
	open->world = bits / 4096 % 2 ? (uint32_t)extreme() : 0;
	open->epoch = bits / 8192 % 2 ? extreme() : 0;
	open->batch = bits / 16384 % 4 ? 0 : extreme();
	open->ends = bits / 65536 % 2 ? LOADERD__ENDS__ENDS_LAST : LOADERD__ENDS__ENDS_FIRST;
	ordered->choice.listed = bits >> 20 & 1;
	ordered->choice.weighted = (bits >> 21 & 7) == 0;
	ordered->choice.balanced = (bits >> 24 & 3) == 0;
	ordered->choice.classes_per_batch = (bits >> 26 & 7) == 0 ? (uint32_t)extreme() : 0;
	ordered->choice.where = (char *)filters[(bits >> 30) % 5];
	for (unsigned p = 0; p <= PARTS_MAX; p++)
		ordered->shares[p] = bits >> 40 & 1 ? (uint32_t)extreme() : p;
	for (unsigned s = 0; s <= STAGES_MAX; s++) {
		ordered->stages[s].n_shares = open->n_parts > 1 ? open->n_parts : 0;
		ordered->stages[s].from = s < 2 ? s * extreme() : s;
	}
	for (unsigned b = 0; b < 2; b++) {
		ordered->buckets[b].width = (uint32_t)extreme();
		ordered->buckets[b].height = (uint32_t)extreme();
	}
	bool packed = bits >> 41 & 1;
	open->patches = true;
	open->batch_tokens = packed ? (uint32_t)extreme() : 0;
	open->tokens_field = (char *)(bits >> 42 & 1 ? "absent" : "");
	open->pipeline = (char *)(open->n_buckets > 0 ? "bucket_resize"
				  : packed ? "patch_resize(4, max_tokens=9, min_tokens=4)"
					   : "resize(8x8)");
}

/* Asks for orders that mostly cannot be, and takes a few batches of those that can. */
static void ask_for_extremes(const struct stage *stage)
{
	struct ordered *ordered = calloc(1, sizeof(*ordered));
	const int images = open_images(stage),
		  lists[LISTS] = {images, zeros(480), zeros(240), zeros(240)};
	float ones[60];
	for (unsigned i = 0; i < 60; i++)
		ones[i] = 1;
	assert_int_equal(pwrite(lists[2], ones, sizeof(ones), 0), sizeof(ones));
	ordered_init(ordered, stage);
	for (uint64_t until_ms = attack_deadline(); attack_now_ms() < until_ms;) {
		choose_extremes(ordered);
		open_and_leave(stage, &ordered->open, lists);
	}
	free(ordered);
}

/* As many parts and stages as a feed may have, and one more. */
static void ask_for_many(const struct stage *stage)
{
	struct ordered *ordered = calloc(1, sizeof(*ordered));
	const int lists[LISTS] = {open_images(stage), zeros(480), zeros(240), zeros(240)};
	ordered_init(ordered, stage);
	ordered->open.n_parts = PARTS_MAX + 1;
	assert_int_equal(attack_open_order(stage, &ordered->open, lists, NULL), EINVAL);
	ordered->open.n_parts = PARTS_MAX;
	assert_int_equal(attack_open_order(stage, &ordered->open, lists, NULL), EINVAL);
	for (unsigned p = 0; p < PARTS_MAX; p++)
		ordered->shares[p] = p % 64;
	ordered->stages[0].n_shares = PARTS_MAX;
	ordered->open.n_stages = 1;
	ordered->open.epoch_samples = 1000;
	uint64_t until_ms = attack_deadline();
	do
		open_and_leave(stage, &ordered->open, lists);
	while (attack_now_ms() < until_ms);
	free(ordered);
}

const struct attack attacks_by_orders[] = {
	{"lists that change while they are read", change_lists, NULL, NULL, .processes = 2},
	{"long lists", hold_long_lists, note_memory, check_memory},
	{"filters that take minutes", leave_while_filtering, NULL, NULL},
	{"orders with extreme numbers", ask_for_extremes, NULL, NULL},
	{"1,024 parts", ask_for_many, NULL, NULL},
	{0},
};
