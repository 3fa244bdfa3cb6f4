/*
 * libfeed with a malicious daemon: in each row libfeed reports a clear error, or the attack has no
 * effect.
 */
#include "tests/unit/proto/client/puppet.h"

#include "tests/unit/proto/fake_ring.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

static void ask_beyond(struct puppet *p)
{
	puppet_hear_and_forget(p);
	puppet_ask_for_files(p, UINT32_MAX, 253, false);
	puppet_hear_to_the_end(p);
}

static void ask_for_none(struct puppet *p)
{
	puppet_hear_and_forget(p);
	puppet_ask_for_files(p, 0, 0, false);
	puppet_hear_to_the_end(p);
}

static void ask_again_for_ever(struct puppet *p)
{
	puppet_hear_and_forget(p);
	do {
		puppet_ask_for_files(p, 0, UINT32_MAX, false);
	} while (puppet_hear_and_forget(p));
}

/*
 * Requests the same file alternately without and with O_DIRECT, although a daemon may switch only
 * once.
 */
static void ask_directly_in_turn(struct puppet *p)
{
	puppet_hear_and_forget(p);
	for (unsigned i = 0;; i++) {
		puppet_ask_for_files(p, 0, 1, i % 2 == 1);
		if (!puppet_hear_and_forget(p))
			break;
	}
}

static void ask_for_list(struct puppet *p, uint32_t part, Loaderd__PartFile file, uint32_t first)
{
	Loaderd__NeedFiles need = LOADERD__NEED_FILES__INIT;
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	need.first = first;
	need.most = 1;
	need.part = part;
	need.file = file;
	reply.kind_case = LOADERD__REPLY__KIND_NEED_FILES;
	reply.need_files = &need;
	puppet_tell(p, &reply, NULL, 0);
}

static void ask_for_a_list_for_ever(struct puppet *p)
{
	puppet_hear_and_forget(p);
	do {
		ask_for_list(p, 0, LOADERD__PART_FILE__PART_LIST, 0);
	} while (puppet_hear_and_forget(p));
}

static void ask_for_a_second_list(struct puppet *p)
{
	puppet_hear_and_forget(p);
	ask_for_list(p, 0, LOADERD__PART_FILE__PART_LIST, 1);
	puppet_hear_to_the_end(p);
}

static void ask_for_weights(struct puppet *p)
{
	puppet_hear_and_forget(p);
	ask_for_list(p, 0, LOADERD__PART_FILE__PART_WEIGHTS, 0);
	puppet_hear_to_the_end(p);
}

static void ask_for_what_is_no_list(struct puppet *p)
{
	puppet_hear_and_forget(p);
	ask_for_list(p, 0, (Loaderd__PartFile)INT32_MIN, 0);
	puppet_hear_to_the_end(p);
}

static void ask_for_another_part(struct puppet *p)
{
	puppet_hear_and_forget(p);
	ask_for_list(p, 1, LOADERD__PART_FILE__PART_LIST, 0);
	puppet_hear_to_the_end(p);
}

/* A daemon that knows parts, but no blocks. */
static void open_without_blocks(struct puppet *p)
{
	Loaderd__OpenedPart part = LOADERD__OPENED_PART__INIT, *parts[] = {&part};
	puppet_hear_and_forget(p);
	p->opened = (Loaderd__FeedOpened)LOADERD__FEED_OPENED__INIT;
	p->opened.n_parts = 1;
	p->opened.parts = parts;
	puppet_send_opened(p);
	puppet_hear_to_the_end(p);
}

static int request_order(const struct puppet *p, const struct feed_part *part,
			 uint32_t block_samples, char *error)
{
	const struct feed_order order = {.size = sizeof(order),
					 .parts = &part,
					 .part_count = 1,
					 .block_samples = block_samples,
					 .group_blocks = block_samples};
	struct feed_options options;
	struct feed *feed;
	feed_options_init(&options);
	options.socket = p->socket;
	options.batch_size = BATCH_SIZE;
	options.order = &order;
	int r = feed_open(&options, &feed, error);
	if (r == 0)
		feed_close(feed);
	return r;
}

/* A feed of one part, with a list of samples. */
static int request_listed(const struct puppet *p, char *error)
{
	static const uint64_t samples[] = {3, 1, 2};
	const struct feed_part part = {.size = sizeof(part),
				       .dataset = puppet_dataset,
				       .samples = samples,
				       .sample_count = 3};
	return request_order(p, &part, 0, error);
}

static int request_blocks(const struct puppet *p, char *error)
{
	const struct feed_part part = {.size = sizeof(part), .dataset = puppet_dataset};
	return request_order(p, &part, 4, error);
}

static int request_part(const struct puppet *p, char *error)
{
	const struct feed_part part = {.size = sizeof(part), .dataset = puppet_dataset};
	return request_order(p, &part, 0, error);
}

/* A daemon that ignores blocks would deliver another order. */
TEST(blocks_are_known)
{
	static const struct row rows[] = {
		{"a part", open_without_blocks, request_part, -EPROTO, "without a ring"},
		{"blocks", open_without_blocks, request_blocks, -ENOTSUP,
		 "does not know of blocks: update it"},
	};
	puppet_run_rows(rows, sizeof(rows) / sizeof(*rows));
}

TEST(lists_are_asked_for_once)
{
	static const struct row rows[] = {
		{"the same list for ever", ask_for_a_list_for_ever, request_listed, -EPROTO,
		 "asks for list 1 of part 0 again"},
		{"a second list", ask_for_a_second_list, request_listed, -EPROTO,
		 "which has no such list"},
		{"weights that are not there", ask_for_weights, request_listed, -EPROTO,
		 "asks for list 2 of part 0, which has no such list"},
		{"what is no list", ask_for_what_is_no_list, request_listed, -EPROTO,
		 "which has no such list"},
		{"a list of a part that is not there", ask_for_another_part, request_listed,
		 -EPROTO, "asks for files of part 1"},
	};
	puppet_run_rows(rows, sizeof(rows) / sizeof(*rows));
}

TEST(files_are_asked_for_in_order)
{
	static const struct row rows[] = {
		{"a file beyond the last", ask_beyond, puppet_request_feed, -EPROTO,
		 "asks for file"},
		{"no file at a time", ask_for_none, puppet_request_feed, -EPROTO, "asks for file"},
		{"the same file for ever", ask_again_for_ever, puppet_request_feed, -EPROTO,
		 "asks for file"},
		{"past the page cache and not, in turn", ask_directly_in_turn, puppet_request_feed,
		 -EPROTO, "asks for file"},
		{"the same file of GetDataset for ever", ask_again_for_ever, puppet_request_dataset,
		 -EPROTO, "asks for file"},
		{"files of a request for status", ask_again_for_ever, puppet_request_status,
		 -EPROTO, "but the request has 0"},
	};
	puppet_run_rows(rows, sizeof(rows) / sizeof(*rows));
}

/* ---- error codes that libfeed uses internally ---- */

static void say_no_slot(struct puppet *p)
{
	if (puppet_begin_feed(p, 1))
		puppet_send_error(p, ENOBUFS, "no");
	puppet_hear_to_the_end(p);
}

static void say_not_yet(struct puppet *p)
{
	if (puppet_begin_feed(p, 1))
		puppet_send_error(p, ETIMEDOUT, "not yet");
	puppet_hear_to_the_end(p);
}

static void say_again(struct puppet *p)
{
	if (puppet_begin_feed(p, 1))
		puppet_send_error(p, EAGAIN, "again");
	puppet_hear_to_the_end(p);
}

static void say_nothing(struct puppet *p)
{
	if (puppet_begin_feed(p, 1))
		puppet_send_error(p, 0, "no error");
	puppet_hear_to_the_end(p);
}

/* Replies EAGAIN when the client reconnects. */
static void answer_eagain(struct puppet *p)
{
	if (p->connections == 0) {
		puppet_begin_feed(p, 2);
	} else {
		puppet_hear_and_forget(p);
		puppet_send_error(p, EAGAIN, "again");
		puppet_hear_to_the_end(p);
	}
}

/* Error texts with terminal escape sequences or invalid UTF-8. */
static const char *said;

static void say_text(struct puppet *p)
{
	if (puppet_begin_feed(p, 1))
		puppet_send_error(p, EIO, said);
	puppet_hear_to_the_end(p);
}

TEST(texts_are_made_printable)
{
	static const struct {
		const char *said, *shown;
	} texts[] = {
		{"plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
		 "plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
		{"a\x1b[2Jb\nc\x7f", "a?[2Jb?c?"},
		{"C1 \xc2\x9b", "C1 ??"},
		{"overlong \xc0\x9b \xe0\x80\x9b \xf0\x80\x80\x9b", "overlong ?? ??? ????"},
		{"surrogate \xed\xa0\x80", "surrogate ???"},
		{"beyond \xf4\x90\x80\x80 \xf8\x88\x80\x80\x80 \xff", "beyond ???? ????? ?"},
		{"direction \u202egpj \u2066 \u200e", "direction ???gpj ??? ???"},
		{"alone \x80, cut \xe2\x82", "alone ?, cut ??"},
	};
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		const struct row row = {"a text", say_text, puppet_take_batches, -EIO,
					texts[i].shown};
		said = texts[i].said;
		puppet_run_rows(&row, 1);
	}
}

static void send_long(struct puppet *p)
{
	static char text[20000];
	memset(text, 'x', sizeof(text) - 1);
	if (puppet_begin_feed(p, 1))
		puppet_send_error(p, EIO, text);
	puppet_hear_to_the_end(p);
}

static void open_twice(struct puppet *p)
{
	if (puppet_begin_feed(p, 1))
		puppet_send_opened(p);
	puppet_hear_to_the_end(p);
}

static void ask_while_running(struct puppet *p)
{
	if (puppet_begin_feed(p, 1))
		puppet_ask_for_files(p, 0, 1, true);
	puppet_hear_to_the_end(p);
}

/* Sends unknown field 99. */
static void send_unknown(struct puppet *p)
{
	if (puppet_begin_feed(p, 1)) {
		frame_send(p->fd, (const uint8_t *)"\x9a\x06\x00", 3, NULL, 0, 1000);
		puppet_send_error(p, EIO, "the end");
	}
	puppet_hear_to_the_end(p);
}

TEST(unexpected_messages_end_the_feed)
{
	static const struct row rows[] = {
		{"an error longer than any", send_long, puppet_take_batches, -EPROTO,
		 "Protocol error"},
		{"FeedOpened once more", open_twice, puppet_take_batches, -EPROTO,
		 "Protocol error"},
		{"NeedFiles of a running feed", ask_while_running, puppet_take_batches, -EPROTO,
		 "Protocol error"},
		{"a reply of a later version", send_unknown, puppet_take_batches, -EIO, "the end"},
	};
	puppet_run_rows(rows, sizeof(rows) / sizeof(*rows));
}

TEST(internal_error_codes_are_replaced)
{
	static const struct row rows[] = {
		{"ENOBUFS of a running feed", say_no_slot, puppet_take_batches, -EPROTO, "no"},
		{"ETIMEDOUT of a running feed", say_not_yet, puppet_take_batches, -EPROTO,
		 "not yet"},
		{"EAGAIN of a running feed", say_again, puppet_take_batches, -EPROTO, "again"},
		{"an error without a code", say_nothing, puppet_take_batches, -EPROTO, "no error"},
		{"EAGAIN when the feed is opened again", answer_eagain, puppet_take_batches,
		 -EPROTO, "again"},
	};
	puppet_run_rows(rows, sizeof(rows) / sizeof(*rows));
}

/* ---- fds that are not a ring ---- */

static int memory(unsigned flags, off_t size, int seals)
{
	int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
	if (fd < 0)
		return fd;
	assert_int_equal(ftruncate(fd, size), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

enum { RING_SIZE = 2 << 20, SEALS = F_SEAL_SHRINK | F_SEAL_GROW };

static int open_pipe(void)
{
	int ends[2];
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	close(ends[1]);
	return ends[0];
}

static int open_fifo(void)
{
	char path[64];
	snprintf(path, sizeof(path), "/tmp/loaderd-hostile-fifo-%d", (int)getpid());
	assert_int_equal(mkfifo(path, 0600), 0);
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	unlink(path);
	return fd;
}

/* This file resembles a ring most closely: its header is valid. */
static int unsealed(void)
{
	struct ring_producer ring;
	struct ring_geometry geometry;
	ring_geometry_init(&geometry, SLOTS, BATCH_SIZE, BATCH_SIZE * SIDE * SIDE * 3);
	assert_int_equal(fake_ring_init(&ring, &geometry), 0);
	assert_int_equal(fake_ring_start(&ring), 0);
	off_t size = (off_t)(ring.size - RING_ACK_SIZE);
	int fd = memory(0, size, 0);
	assert_int_equal(pwrite(fd, ring.header, RING_HEADER_SIZE, 0), RING_HEADER_SIZE);
	ring_producer_deinit(&ring);
	return fd;
}

static int open_odd(unsigned kind)
{
	switch (kind) {
	case 0:
		return open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	case 1:
		return open_fifo();
	case 2:
		return open_pipe();
	case 3:
		return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	case 4:
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	case 5:
		return open("/dev/zero", O_RDWR | O_CLOEXEC);
	case 6:
		return open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	case 7:
		return open(puppet_dataset, O_RDWR | O_CLOEXEC);
	case 8:
		return eventfd(0, EFD_CLOEXEC);
	case 9:
		return open("/tmp", O_PATH | O_CLOEXEC);
	case 10:
		return unsealed();
	case 11:
		return memory(0, 0, SEALS);
	case 12:
		return memory(0, RING_SIZE, SEALS);
	case 13:
		return memory(0, RING_SIZE, SEALS | F_SEAL_WRITE);
	case 14: /* 1 TiB, sparse */
		return memory(0, (off_t)1 << 40, SEALS);
	default:
		return memory(MFD_HUGETLB, RING_SIZE, SEALS);
	}
}

static const char *const odd_names[] = {"a directory",
					"a FIFO",
					"a pipe",
					"a socket",
					"/dev/null",
					"/dev/zero",
					"/proc/self/mem",
					"a file",
					"an eventfd",
					"a path",
					"a ring that can shrink",
					"no memory",
					"memory without a header",
					"memory that nobody can write",
					"a tebibyte without a header",
					"huge pages"};
static unsigned odd_kind, odd_place;

static void open_with_odd(struct puppet *p)
{
	if (!puppet_hear_wish(p))
		return;
	assert_int_equal(fake_ring_init(&p->ring, &p->geometry), 0);
	int fds[2] = {p->ring.ring_fd, p->ring.ack_fd}, odd = open_odd(odd_kind);
	assert_true(odd >= 0);
	fds[odd_place] = odd;
	puppet_send_ring(p, fds, 2);
	close(odd);
	if (puppet_hear_and_forget(p))
		puppet_send_opened(p);
	puppet_hear_to_the_end(p);
}

static void open_with_many(struct puppet *p)
{
	int fds[FDS_MAX];
	if (!puppet_hear_wish(p))
		return;
	assert_int_equal(fake_ring_init(&p->ring, &p->geometry), 0);
	for (unsigned i = 0; i < FDS_MAX; i++)
		fds[i] = i % 2 == 0 ? p->ring.ring_fd : p->ring.ack_fd;
	puppet_send_ring(p, fds, odd_kind);
	puppet_hear_to_the_end(p);
}

/* Sends fds with doorbells, which the client must close. */
static void ring_with_descriptors(struct puppet *p)
{
	int fds[FDS_MAX];
	bool there = puppet_begin_feed(p, 2);
	for (unsigned i = 0; i < FDS_MAX; i++)
		fds[i] = p->ring.ring_fd;
	for (unsigned i = 0; there && i < 20; i++)
		frame_send(p->fd, (const uint8_t *)"\x2a\x00", 2, fds, FDS_MAX, 1000);
	if (there && ring_end(&p->ring, "that was all"))
		frame_send(p->fd, (const uint8_t *)"\x2a\x00", 2, NULL, 0, 1000);
	puppet_hear_to_the_end(p);
}

TEST(descriptors_of_all_kinds_are_refused)
{
	static const char no_ring[] = "sent no ring that this library knows";
	for (odd_kind = 0; odd_kind < sizeof(odd_names) / sizeof(*odd_names); odd_kind++) {
		int fd = open_odd(odd_kind);
		if (fd < 0) {
			print_message("%s: not to be had here: skipped\n", odd_names[odd_kind]);
			continue;
		}
		close(fd);
		for (odd_place = 0; odd_place < 2; odd_place++) {
			bool too_much = odd_place == 0 && strstr(odd_names[odd_kind], "a tebibyte");
			const struct row row = {
				odd_names[odd_kind], open_with_odd, puppet_request_feed, -EPROTO,
				too_much ? "more memory for batches than the machine" : no_ring};
			puppet_run_rows(&row, 1);
		}
	}
	static const unsigned counts[] = {0, 1, 3, FDS_MAX};
	for (unsigned i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		const struct row row = {"another number of descriptors", open_with_many,
					puppet_request_feed, -EPROTO,
					"descriptors for a ring, not two"};
		odd_kind = counts[i];
		puppet_run_rows(&row, 1);
	}
	const struct row row = {"descriptors with doorbells", ring_with_descriptors,
				puppet_take_batches, -EBADMSG, "that was all"};
	puppet_run_rows(&row, 1);
}

/* ---- wanted feeds ---- */

enum { WANTS = 2, WANT_COUNT = 3, WANT_EPOCH = 7 };

/*
 * Wants the batches of WANTS epochs from WANT_EPOCH on; with `forget`, forgets them and wants them
 * again. Takes all batches that arrive. Returns the result of feed_next().
 */
static int want_batches(const struct puppet *p, bool forget, char *error)
{
	static const uint64_t samples[WANT_COUNT] = {5, 1, 5};
	struct feed_batch batch = {.size = sizeof(batch)};
	struct feed_options options;
	struct feed *feed;
	feed_options_init(&options);
	options.socket = p->socket;
	options.dataset = puppet_dataset;
	options.batch_size = BATCH_SIZE;
	options.slots = SLOTS;
	options.wanted = 1;
	int r = feed_open(&options, &feed, error);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < (forget ? 2 : 1) * WANTS; i++) {
		if (i == WANTS)
			assert_int_equal(feed_forget(feed), 0);
		assert_int_equal(feed_want(feed, WANT_EPOCH + i % WANTS, samples, WANT_COUNT), 0);
	}
	while ((r = feed_next(feed, -1, &batch)) == 0) {
		assert_in_range(batch.count, 1, WANT_COUNT);
		assert_in_range(batch.epoch, WANT_EPOCH, WANT_EPOCH + WANTS - 1);
		assert_int_equal(feed_release(feed, &batch), 0);
	}
	snprintf(error, FEED_ERROR_MAX, "%s", feed_error(feed));
	feed_close(feed);
	return r;
}

static int take_wanted(const struct puppet *p, char *error)
{
	return want_batches(p, false, error);
}

static int take_after_forget(const struct puppet *p, char *error)
{
	return want_batches(p, true, error);
}

/* Publishes a batch with these values. */
static void publish_wanted(struct puppet *p, uint64_t epoch, uint32_t count, bool last)
{
	struct ring_slot *slot = ring_begin(&p->ring);
	assert_non_null(slot);
	slot->epoch = epoch;
	slot->batch = p->ring.begun - 1;
	slot->count = count;
	slot->height = slot->width = SIDE;
	slot->channels = 3;
	slot->element = RING_U8;
	slot->layout = RING_NHWC;
	slot->last = last;
	if (ring_publish(&p->ring))
		frame_send(p->fd, (const uint8_t *)"\x2a\x00", 2, NULL, 0, 1000);
}

static bool open_wanted(struct puppet *p)
{
	return puppet_hear_wish(p) && puppet_grant(p);
}

static void play_batch(struct puppet *p, uint64_t epoch, uint32_t count, bool last)
{
	if (open_wanted(p))
		publish_wanted(p, epoch, count, last);
	puppet_hear_to_the_end(p);
}

static void too_many_samples(struct puppet *p)
{
	play_batch(p, WANT_EPOCH, WANT_COUNT + 1, false);
}

static void too_few_samples(struct puppet *p)
{
	play_batch(p, WANT_EPOCH, WANT_COUNT - 1, false);
}

static void most_samples(struct puppet *p)
{
	play_batch(p, WANT_EPOCH, UINT32_MAX, false);
}

static void no_sample(struct puppet *p)
{
	play_batch(p, WANT_EPOCH, 0, false);
}

static void another_epoch(struct puppet *p)
{
	play_batch(p, WANT_EPOCH + 1, WANT_COUNT, false);
}

static void an_end_of_an_epoch(struct puppet *p)
{
	play_batch(p, WANT_EPOCH, WANT_COUNT, true);
}

static void the_end(struct puppet *p)
{
	if (open_wanted(p) && ring_end(&p->ring, NULL))
		frame_send(p->fd, (const uint8_t *)"\x2a\x00", 2, NULL, 0, 1000);
	puppet_hear_to_the_end(p);
}

/* Publishes a third batch, which the client does not want. */
static void one_more(struct puppet *p)
{
	if (open_wanted(p))
		for (unsigned i = 0; i < WANTS + 1; i++)
			publish_wanted(p, WANT_EPOCH + i, WANT_COUNT, false);
	puppet_hear_to_the_end(p);
}

/* Publishes invalid data in the forgotten batches, and the other batches as wanted. */
static void lie_in_forgotten(struct puppet *p)
{
	if (open_wanted(p)) {
		publish_wanted(p, UINT64_MAX, UINT32_MAX, true);
		publish_wanted(p, WANT_EPOCH, 0, false);
		publish_wanted(p, WANT_EPOCH, WANT_COUNT, false);
		publish_wanted(p, WANT_EPOCH + 1, WANT_COUNT, false);
	}
	puppet_hear_to_the_end(p);
}

static void grant_changed(struct puppet *p, bool wanted, uint64_t batches, uint64_t samples)
{
	if (puppet_hear_wish(p)) {
		p->opened.wanted = wanted;
		p->opened.batches_per_epoch = batches;
		p->opened.samples = samples;
		puppet_grant(p);
	}
	puppet_hear_to_the_end(p);
}

static void knows_no_wants(struct puppet *p)
{
	grant_changed(p, false, BATCHES, BATCHES * BATCH_SIZE);
}

static void has_an_order(struct puppet *p)
{
	grant_changed(p, true, BATCHES, BATCHES * BATCH_SIZE);
}

static void has_no_samples(struct puppet *p)
{
	grant_changed(p, true, 0, 0);
}

TEST(delivered_batches_must_match_wants)
{
	static const char impossible[] = "with a header that cannot be";
	static const struct row rows[] = {
		{"a daemon without wanted feeds", knows_no_wants, take_wanted, -ENOTSUP,
		 "does not know of wanted feeds"},
		{"a wanted feed with epochs", has_an_order, take_wanted, -EPROTO, "in 10 batches"},
		{"a wanted feed without samples", has_no_samples, take_wanted, -EPROTO,
		 "of 0 samples"},
		{"a sample more than wanted", too_many_samples, take_wanted, -EPROTO, impossible},
		{"a sample less", too_few_samples, take_wanted, -EPROTO, impossible},
		{"2^32 - 1 samples", most_samples, take_wanted, -EPROTO, impossible},
		{"no sample", no_sample, take_wanted, -EPROTO, impossible},
		{"another epoch", another_epoch, take_wanted, -EPROTO, impossible},
		{"the end of an epoch", an_end_of_an_epoch, take_wanted, -EPROTO, impossible},
		{"the end of the feed", the_end, take_wanted, -EPROTO, "ended a feed"},
		{"a batch more than wanted", one_more, take_wanted, -EINVAL, "No batch is wanted"},
		{"lies about forgotten batches", lie_in_forgotten, take_after_forget, -EINVAL,
		 "No batch is wanted"},
	};
	puppet_run_rows(rows, sizeof(rows) / sizeof(*rows));
}

TEST(rows_cannot_wrap_around)
{
	/* 4043312912 x 4562284561 is 2^64 + 16 */
	static const uint32_t start = UINT32_MAX, rows = 4562284561 - UINT32_MAX;
	static const char bytes[16];
	const struct feed_section section = {
		.kind = FEED_RAGGED,
		.row = 4043312912,
		.data = bytes,
		.bytes = sizeof(bytes),
		.starts = &start,
		.rows = &rows,
	};
	const void *found;
	assert_int_equal(feed_rows(&section, 0, &found), -EPROTO);
}

TEST_MAIN(puppet_make_dataset, puppet_remove_dataset)
