/*
 * Attacks of a client on a worker: requests, files, the ring's ack page, and files that change
 * while they are read. The input is one of:
 * - a plain file, opened with a few pipelines;
 * - 'R', a byte with the length of a script, the script, and the file;
 * - 'C' instead of 'R': the worker copies from the file instead of mapping it, as in a daemon for
 * several users.
 * A step of the script is one byte (operation, which of two clients, whether the worker runs before
 * the next step), followed by operands; after the end of the script, bytes read as zero. A change
 * of the file takes effect immediately or after a number of lookups and checks by the worker, so
 * that inputs are reproducible.
 */
#include "format/packimg.h"
#include "loaderd/worker/storage.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/support/mutate.h"
#include "tests/fuzz/support/script.h"
#include "tests/fuzz/support/whole_file.h"
#include "tests/fuzz/support/wish.h"
#include "tests/fuzz/support/worker_alone.h"

#include "proto/feed.pb-c.h"
#include "proto/framing.h"
#include "proto/ring.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	CLIENTS = 2,
	STEPS_MAX = 64,
	CHANGES_MAX = 8,
	FILE_MAX = 1 << 17, /* largest file whose checksums are repaired */
	SCRIPT_MAX = 255,
	SEEDS_MAX = 64,
	SEED_MAX = 1 << 14, /* largest seed file in bytes */
	SEED_EVERY = 4,     /* one in this many mutations starts from a seed */
	BYTES_MAX = 64,     /* maximum bytes of a frame or text spelt out in the script */
	CLAIMS_MAX = 31,
};

/* The operation, in the low bits of a step's first byte. */
enum step {
	OPEN,
	WORK,
	TAKE,
	CHANGE,
	DESCRIBE,
	FILES,
	MAPPED,
	SCRIBBLE,
	RAW,
	STATUS,
	DOORBELL,
	HANG_UP,
	SHUT_DOWN,
	WANT,
	FORGET,
	ORDER,
	STEPS
};
enum {
	STEP_HOLD = 0x40,
	STEP_OTHER = 0x80
}; /* STEP_HOLD: the worker does not run after the step; STEP_OTHER: the second client acts */
enum {
	OPEN_SHUFFLE = 1,
	OPEN_SHORT = 2,
	OPEN_WRITABLE = 4,
	OPEN_BY_HAND = 8,
	OPEN_SPELT = 16,
	OPEN_VERSION = 32,
	OPEN_BAD = 6
};
enum { CHANGE_LATER = 1, CHANGE_HEADER = 2, CHANGE_WORD = 4, CHANGE_REPAIR = 8, CHANGE_CUT = 16 };

static const char *const pipelines[] = {
	"",
	"random_resized_crop(16) hflip",
	"resize(16x16)",
	"random_resized_crop(24, chroma=fast) hflip normalize(imagenet) to(f16)",
	"resize(20) center_crop(16) normalize(dataset) to(f32) layout(nchw)",
	"center_crop(40)",
	"random_crop(16, padding=4, fill=reflect) hflip(alternate)",
	"pad(3) resize(12x9) to(bf16)",
	"resize(8@0;16@1;24@2)",
	"resize(16x16) rand_augment",
	"resize(16x16) trivial_augment_wide",
	"resize(16x16) auto_augment(cifar10, interpolation=bilinear)",
	"resize(16x16) aug_mix",
	"random_affine(30, translate=0.2, scale=0.5:1.5, shear=10, interpolation=bilinear) "
	"resize(16x16)",
	"random_rotation(45, fill=1:2:3) center_crop(9x11)",
	"resize(16x16) gaussian_blur(5) color_jitter(0.4, 0.4, 0.4, 0.1)",
	"color_jitter(0.4, hue=0.5) random_resized_crop(8, chroma=fast)",
	"random_equalize(1) random_autocontrast(1) resize(10x10) random_erasing(1, value=random)",
	"random_adjust_sharpness(2, p=1) random_posterize(3) random_solarize(100) center_crop(12)",
	"center_crop(16) normalize(mean=1:2:3, std=4:5:6) to(f32) random_erasing(1) cutout(4)",
	"center_crop(16) random_grayscale(1) random_invert(1) vflip to(f16) layout(nchw)",
	"resize(60x3, chroma=fast)",
	"resize(1)",
	"resize(300)",
	"resize(20, interpolation=bicubic) center_crop(16)",
};
/* Bytes from VIEWS_FIRST on choose one of these, of views, mixed batches, buckets and patches. */
static const char *const view_pipelines[] = {
	"hflip view a(2) { random_resized_crop(16) vflip } view b(3) { random_resized_crop(5) }",
	"view a { resize(8@0;16@1) } view b(9) { resize(3x2, chroma=fast) } view c { resize(40) }",
	"view a(16) { random_crop(16, padding=9) }",
	"normalize(dataset) view a { } view b { resize(9x8) random_affine(30) }",
	"random_resized_crop(12) to(bf16) mixup(0.4) cutmix targets(num_classes=5, "
	"label_smoothing=0.1)",
	"resize(16x16) layout(nchw) cutmix targets(pairs)",
	"bucket_resize mixup(1) targets(num_classes=300)",
	"bucket_resize(crop=random) hflip to(f16)",
	"patch_resize(4, max_tokens=9, min_tokens=2) hflip",
	"hflip patch_resize(16, max_tokens=64) normalize(dataset) to(bf16)",
};
enum {
	PIPELINES = sizeof(pipelines) / sizeof(*pipelines),
	VIEW_PIPELINES = sizeof(view_pipelines) / sizeof(*view_pipelines),
	VIEWS_FIRST = 0xf0
};

/* The golden files and make_corpus.c use the first four names. */
static const char *const field_names[] = {"id",      "score", "blob",    "note",        "depth",
					  "caption", "",      "__key__", "__deferred__"};
enum { FIELD_NAMES = sizeof(field_names) / sizeof(*field_names) };

struct client {
	int socket; /* -1 if not connected */
	struct frame_reader reader;
	bool by_hand; /* the script supplies all answers to NeedFiles */
	bool asked;
	uint32_t first, part;
	Loaderd__PartFile part_file;
	bool direct;
	int ring_fds[2]; /* -1 until the ring arrives */
	bool has_ring;
	struct ring_consumer ring;
};

struct change {
	uint32_t after; /* checks left before the change; 0 if no change is pending */
	uint32_t at;
	uint8_t value, how;
};

static struct client clients[CLIENTS];
static struct wish wishes[CLIENTS];
static struct change changes[CHANGES_MAX];
static bool playing; /* a step runs and the file is not being changed, so checks count */
static int file = -1;
static size_t file_size;

static void repair_file(void)
{
	static uint8_t bytes[FILE_MAX];
	ssize_t size = pread(file, bytes, sizeof(bytes), 0);
	if (size <= 0)
		return;
	whole_file_repair(bytes, (size_t)size);
	ssize_t n = pwrite(file, bytes, (size_t)size, 0);
	(void)n;
}

static void make_change(const struct change *change)
{
	enum { HEADER = 1024 };
	uint8_t bytes[8];
	size_t room = change->how & CHANGE_HEADER && file_size > HEADER ? HEADER : file_size;
	off_t at = (off_t)(change->at % (room + 1));
	playing = false; /* do not count the checks in our own checksum computations */
	memset(bytes, change->value, sizeof(bytes));
	if (change->how & CHANGE_CUT) {
		if (ftruncate(file, at) < 0)
			abort();
	} else {
		ssize_t n = pwrite(file, bytes, change->how & CHANGE_WORD ? 8 : 1, at);
		(void)n;
	}
	if (change->how & CHANGE_REPAIR)
		repair_file();
	playing = true;
}

static void at_check(void)
{
	if (!playing)
		return;
	for (unsigned i = 0; i < CHANGES_MAX; i++)
		if (changes[i].after > 0 && --changes[i].after == 0)
			make_change(&changes[i]);
}

static void plan_change(struct script *script)
{
	struct change change = {.how = script_next(script)};
	change.at = script_next(script);
	change.at |= (uint32_t)script_next(script) << 8;
	change.value = script_next(script);
	if (!(change.how & CHANGE_LATER)) {
		make_change(&change);
		return;
	}
	change.after = 1u + script_next(script);
	for (unsigned i = 0; i < CHANGES_MAX; i++)
		if (changes[i].after == 0) {
			changes[i] = change;
			return;
		}
}

static void connect_client(struct client *client)
{
	if (client->socket >= 0)
		return;
	*client = (struct client){.socket = worker_alone_connect(), .ring_fds = {-1, -1}};
	frame_reader_init(&client->reader);
}

static void drop_ring_fds(struct client *client)
{
	for (unsigned i = 0; i < 2; i++) {
		if (client->ring_fds[i] >= 0)
			close(client->ring_fds[i]);
		client->ring_fds[i] = -1;
	}
}

static void hang_up(struct client *client)
{
	if (client->socket < 0)
		return;
	ring_consumer_deinit(&client->ring); /* mapped before the feed is open */
	drop_ring_fds(client);
	frame_reader_deinit(&client->reader);
	close(client->socket);
	client->socket = -1;
	client->has_ring = false;
}

static void send_bytes(struct client *client, const uint8_t *bytes, size_t size, const int *fds,
		       unsigned fd_count)
{
	connect_client(client);
	if (client->socket >= 0 && size > 0)
		(void)frame_send(client->socket, bytes, size, fds, fd_count, 0);
}

static void send_request(struct client *client, const Loaderd__Request *request, const int *fds,
			 unsigned fd_count)
{
	uint8_t message[2048];
	if (loaderd__request__get_packed_size(request) <= sizeof(message))
		send_bytes(client, message, loaderd__request__pack(request, message), fds,
			   fd_count);
}

/* Returns a read-only fd of the file, as a client opens it, or an fd of another kind. */
static int descriptor(unsigned kind)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	switch (kind) {
	case 1:
		return open("/dev/null", O_RDONLY | O_CLOEXEC);
	case 2:
		return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	case 3:
		return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	case 4:
		return open(path, O_RDWR | O_CLOEXEC);
	case 5:
		return open(path, O_PATH | O_CLOEXEC);
	case 6:
		return memfd_create("empty", MFD_CLOEXEC);
	default:
		return open(path, O_RDONLY | O_CLOEXEC);
	}
}

static int file_for(const struct client *client, unsigned kind)
{
	const struct wish *wish = &wishes[client - clients];
	if (client->part_file == LOADERD__PART_FILE__PART_DATASET || kind != 0)
		return descriptor(kind);
	return wish->kind == 0 ? wish_list_file(wish, client->part_file) : descriptor(wish->kind);
}

static void send_files(struct client *client, const Loaderd__Files *part, unsigned kind,
		       unsigned count)
{
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	Loaderd__Files files = *part;
	int fds[3] = {-1, -1, -1};
	unsigned have = 0;
	while (have < count && have < 3 && (fds[have] = file_for(client, kind)) >= 0)
		have++;
	request.kind_case = LOADERD__REQUEST__KIND_FILES;
	request.files = &files;
	send_request(client, &request, fds, have);
	while (have > 0)
		close(fds[--have]);
	client->asked = false;
}

static void answer(struct client *client)
{
	Loaderd__Files files = LOADERD__FILES__INIT;
	files.first = client->first;
	files.total = 1;
	files.direct = client->direct;
	files.part = client->part;
	files.file = client->part_file;
	send_files(client, &files, 0, 1);
}

/* Answers NeedFiles with the requested files, or with invalid values. */
static void send_files_by_hand(struct client *client, struct script *script)
{
	Loaderd__Files files = LOADERD__FILES__INIT;
	uint8_t lies = script_next(script), value = script_next(script);
	files.first = client->first + (lies & 1 ? value : 0);
	files.total = lies & 2 ? value * 0x01010101u : 1u + (lies & 4 ? value % 4u : 0u);
	files.direct = client->direct ^ (lies & 8 ? 1 : 0);
	files.part = client->part + (lies & 64 ? value : 0);
	files.file = (Loaderd__PartFile)((unsigned)client->part_file + (lies & 128 ? value : 0));
	send_files(client, &files, lies & 16 ? value % 8 : 0, lies & 32 ? value / 16 % 4 : 1);
}

static void send_plain(struct client *client, Loaderd__Request__KindCase kind)
{
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	Loaderd__GetStatus status = LOADERD__GET_STATUS__INIT;
	Loaderd__Shutdown shutdown = LOADERD__SHUTDOWN__INIT;
	Loaderd__GetDataset dataset = LOADERD__GET_DATASET__INIT;
	Loaderd__Forget forget = LOADERD__FORGET__INIT;
	Loaderd__Doorbell doorbell = LOADERD__DOORBELL__INIT;
	Loaderd__RingMapped mapped = LOADERD__RING_MAPPED__INIT;
	request.kind_case = kind;
	if (kind == LOADERD__REQUEST__KIND_FORGET)
		request.forget = &forget;
	else if (kind == LOADERD__REQUEST__KIND_DOORBELL)
		request.doorbell = &doorbell;
	else if (kind == LOADERD__REQUEST__KIND_RING_MAPPED)
		request.ring_mapped = &mapped;
	else if (kind == LOADERD__REQUEST__KIND_GET_STATUS)
		request.get_status = &status;
	else if (kind == LOADERD__REQUEST__KIND_SHUTDOWN)
		request.shutdown = &shutdown;
	else
		request.get_dataset = &dataset;
	dataset.version = PROTO_VERSION_OLDEST;
	dataset.path = (char *)"/fuzz.pimg";
	send_request(client, &request, NULL, 0);
}

static void open_feed(struct client *client, struct script *script)
{
	Loaderd__OpenFeed open = LOADERD__OPEN_FEED__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	char *fields[FIELD_NAMES], text[BYTES_MAX + 1];
	uint8_t pipeline = script_next(script), how = script_next(script);
	open.version = how & OPEN_VERSION ? script_next(script) : PROTO_VERSION_OLDEST;
	open.dataset = (char *)"/fuzz.pimg";
	open.pipeline =
		(char *)(pipeline < VIEWS_FIRST ? pipelines[pipeline % PIPELINES]
						: view_pipelines[pipeline % VIEW_PIPELINES]);
	open.views = open.targets = open.patches = true;
	open.shuffle = how & OPEN_SHUFFLE;
	open.last =
		how & OPEN_SHORT ? LOADERD__LAST_BATCH__LAST_SHORT : LOADERD__LAST_BATCH__LAST_DROP;
	open.writable = (how & OPEN_WRITABLE) != 0;
	open.bad = (Loaderd__BadSample)(how >> OPEN_BAD);
	client->by_hand = (how & OPEN_BY_HAND) != 0;
	open.batch_size = (uint32_t)script_number((uint8_t)(script_next(script) + 1));
	open.slots = (uint32_t)script_number(script_next(script));
	open.epoch = script_number(script_next(script));
	open.batch = script_number(script_next(script));
	open.epoch_end = script_number(script_next(script));
	uint8_t ranks = script_next(script), which = script_next(script);
	open.rank = ranks & 15;
	open.world = ranks >> 4;
	uint8_t room = script_next(script);
	open.field_bytes = (uint32_t)script_number(room);
	open.whole_values = (room & 0x10) != 0;
	open.text_fields = (room & 0x20) != 0;
	open.wanted = (room & 0x40) != 0;
	if (!(how & OPEN_VERSION) && (room & 0x80))
		open.version = PROTO_VERSION;
	size_t *count = open.version == PROTO_VERSION ? &open.n_values : &open.n_fields;
	for (unsigned i = 0; i < FIELD_NAMES; i++)
		if (which >> i & 1)
			fields[(*count)++] = (char *)field_names[i];
	open.fields = open.values = fields;
	if (how & OPEN_SPELT) {
		unsigned length = pipeline % (BYTES_MAX + 1);
		for (unsigned i = 0; i < length; i++)
			text[i] = (char)script_next(script);
		text[length] = '\0';
		open.pipeline = text;
	}
	if (wishes[client - clients].parts > 0)
		wish_ask(&wishes[client - clients], &open);
	request.kind_case = LOADERD__REQUEST__KIND_OPEN_FEED;
	request.open_feed = &open;
	send_request(client, &request, NULL, 0);
}

/* Names samples, mostly of the dataset, and epochs and counts, mostly extreme. */
static void send_want(struct client *client, struct script *script)
{
	enum { SAMPLES_MAX = 64 };
	Loaderd__Want want = LOADERD__WANT__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	uint64_t samples[SAMPLES_MAX];
	uint8_t how = script_next(script);
	want.epoch = script_number(script_next(script));
	want.samples = samples;
	want.n_samples = how % SAMPLES_MAX;
	for (size_t i = 0; i < want.n_samples; i++)
		samples[i] = how & 0x80 ? script_number(script_next(script))
					: i % (1u + (how >> 4 & 7u));
	request.kind_case = LOADERD__REQUEST__KIND_WANT;
	request.want = &want;
	send_request(client, &request, NULL, 0);
}

static void send_raw(struct client *client, struct script *script)
{
	uint8_t bytes[BYTES_MAX + 1], how = script_next(script);
	size_t size = how % BYTES_MAX;
	int fd = how & 0x80 ? descriptor(0) : -1;
	for (size_t i = 0; i < size; i++)
		bytes[i] = script_next(script);
	send_bytes(client, bytes, size, &fd, fd >= 0);
	if (fd >= 0)
		close(fd);
}

/* Returns true if all rows of a batch lie in the section. */
static bool rows_fit(const struct ring_geometry *layout, const struct ring_slot *slot, uint32_t s,
		     const struct ring_extent *extent)
{
	const struct ring_section *section = &layout->sections[s];
	const uint32_t *starts = (const uint32_t *)((const char *)slot + section->offset);
	const uint32_t *rows = starts + layout->batch_size_max;
	uint64_t size = extent->bytes - ring_ragged_offset(layout->batch_size_max);
	for (uint32_t i = 0; section->kind == RING_RAGGED && i < slot->count; i++)
		if (((uint64_t)starts[i] + rows[i]) * section->row > size)
			return false;
	return true;
}

/* Returns true if a batch fits into its slot. */
static bool batch_fits(struct client *client, const struct ring_slot *slot)
{
	const struct ring_geometry *layout = &client->ring.layout;
	uint64_t pixels = (uint64_t)slot->height * slot->width * slot->channels;
	if (layout->version == RING_VERSION_1)
		return slot->count <= layout->batch_size_max &&
		       slot->count * pixels <= layout->sections[RING_IMAGES].room;
	if (slot->count == 0)
		return true; /* forgotten */
	const struct ring_extent *extents = ring_check_extents(&client->ring, slot, slot->count);
	for (uint32_t s = 0; extents && s < layout->section_count; s++)
		if (!rows_fit(layout, slot, s, &extents[s]))
			return false;
	return extents;
}

/* Takes and releases up to `count` batches, and checks that each fits into its slot. */
static void take(struct client *client, unsigned count)
{
	const struct ring_slot *slot;
	int wanted = 0;
	while (client->has_ring && count-- > 0 && (slot = ring_take(&client->ring))) {
		if (!batch_fits(client, slot))
			abort();
		wanted |= ring_ack(&client->ring, slot->number);
	}
	if (wanted == 1)
		send_plain(client, LOADERD__REQUEST__KIND_DOORBELL);
}

static void scribble(struct client *client, struct script *script)
{
	uint8_t at = script_next(script), value = script_next(script);
	if (client->has_ring)
		((_Atomic uint32_t *)client->ring.ack)[at * 4u % (RING_ACK_SIZE / 4)] =
			value & 0x80 ? value * 0x01010101u : value;
}

static void map_ring(struct client *client)
{
	const int *fds = client->ring_fds;
	if (fds[0] < 0 || fds[1] < 0 || client->ring.header ||
	    ring_consumer_map(&client->ring, fds[0], fds[1], RING_MAP_WRITABLE) < 0)
		abort();
	drop_ring_fds(client);
	if (!client->by_hand)
		send_plain(client, LOADERD__REQUEST__KIND_RING_MAPPED);
}

static void handle_reply(struct client *client, const uint8_t *data, size_t size)
{
	Loaderd__Reply *reply = loaderd__reply__unpack(NULL, size, data);
	if (!reply)
		abort();
	switch (reply->kind_case) {
	case LOADERD__REPLY__KIND_NEED_FILES:
		client->asked = true;
		client->first = reply->need_files->first;
		client->direct = reply->need_files->direct;
		client->part = reply->need_files->part;
		client->part_file = reply->need_files->file;
		if (!client->by_hand)
			answer(client);
		break;
	case LOADERD__REPLY__KIND_RING:
		for (unsigned i = 0; i < 2; i++)
			client->ring_fds[i] = frame_take_fd(&client->reader, i);
		map_ring(client);
		break;
	case LOADERD__REPLY__KIND_FEED_OPENED:
		if (ring_consumer_check(&client->ring) < 0)
			abort();
		client->has_ring = true;
		break;
	default:
		break;
	}
	loaderd__reply__free_unpacked(reply, NULL);
}

static bool read_reply(struct client *client)
{
	const uint8_t *data;
	size_t size;
	if (client->socket < 0)
		return false;
	int r = frame_receive(&client->reader, client->socket, &data, &size);
	if (r < 0)
		hang_up(client);
	else if (r == 1)
		handle_reply(client, data, size);
	return r == 1;
}

/* Runs the worker and the clients until none of them has work left. */
static void settle(void)
{
	bool busy;
	do {
		busy = worker_alone_turn();
		for (unsigned i = 0; i < CLIENTS; i++)
			busy |= read_reply(&clients[i]);
	} while (busy);
}

static void do_step(struct client *client, enum step step, struct script *script)
{
	static const Loaderd__Request__KindCase plain[STEPS] = {
		[DESCRIBE] = LOADERD__REQUEST__KIND_GET_DATASET,
		[MAPPED] = LOADERD__REQUEST__KIND_RING_MAPPED,
		[STATUS] = LOADERD__REQUEST__KIND_GET_STATUS,
		[DOORBELL] = LOADERD__REQUEST__KIND_DOORBELL,
		[FORGET] = LOADERD__REQUEST__KIND_FORGET,
		[SHUT_DOWN] = LOADERD__REQUEST__KIND_SHUTDOWN,
	};
	if (plain[step] != 0) {
		send_plain(client, plain[step]);
		return;
	}
	switch (step) {
	case OPEN:
		open_feed(client, script);
		break;
	case WORK:
		worker_alone_work(1 + script_next(script) % CLAIMS_MAX);
		break;
	case TAKE:
		take(client, 1 + script_next(script) % 8);
		break;
	case CHANGE:
		plan_change(script);
		break;
	case FILES:
		send_files_by_hand(client, script);
		break;
	case SCRIBBLE:
		scribble(client, script);
		break;
	case RAW:
		send_raw(client, script);
		break;
	case WANT:
		send_want(client, script);
		break;
	case ORDER:
		wish_plan(&wishes[client - clients], script);
		break;
	default:
		hang_up(client);
		break;
	}
}

static void play(struct script script)
{
	playing = true;
	for (unsigned i = 0; i < STEPS_MAX && script.left > 0; i++) {
		uint8_t step = script_next(&script);
		do_step(&clients[step & STEP_OTHER ? 1 : 0], (enum step)((step & 15) % STEPS),
			&script);
		if (!(step & STEP_HOLD))
			settle();
	}
	for (unsigned i = 0; i < CLIENTS; i++)
		hang_up(&clients[i]);
	worker_alone_expect_empty();
	playing = false;
}

/*
 * Default script for inputs without one: a regular client with eleven feeds, two of views, three of
 * mixed batches, three with orders, and one of files of six samples that are being filled.
 */
static const uint8_t ordinary[] = {
	DESCRIBE, OPEN,    1,    0x01, 1,       0,       0,       0,       0,       0,       0x0f,
	0,        WORK,    9,    TAKE, 3,       WORK,    9,       STATUS,  HANG_UP, OPEN,    4,
	0x42,     2,       2,    1,    0,       3,       0,       0x0f,    3,       WORK,    9,
	TAKE,     3,       WORK, 9,    HANG_UP, OPEN,    17,      0x00,    0,       3,       0,
	1,        0,       0,    0,    0,       WORK,    9,       TAKE,    9,       HANG_UP, OPEN,
	0xf0,     0x01,    2,    3,    0,       0,       2,       0,       0,       0x80,    WORK,
	30,       TAKE,    2,    WORK, 30,      TAKE,    9,       HANG_UP, OPEN,    0xf1,    0x42,
	1,        3,       0,    0,    2,       0,       0x10,    0x80,    WORK,    30,      TAKE,
	9,        HANG_UP, OPEN, 0xf4, 0x01,    3,       3,       0,       0,       2,       0,
	0,        0x80,    WORK, 30,   TAKE,    9,       HANG_UP, OPEN,    0xf5,    0x42,    3,
	3,        0,       0,    2,    0,       0,       0x80,    WORK,    30,      TAKE,    9,
	HANG_UP,  ORDER,   5,    0,    6,       1,       16,      0x23,    1,       0,       2,
	1,        OPEN,    1,    0x03, 3,       3,       0,       0,       2,       0,       0,
	0x80,     WORK,    30,   TAKE, 9,       HANG_UP, ORDER,   0,       7,       0,       0,
	16,       0x08,    OPEN, 1,    0x01,    3,       3,       0,       0,       2,       0,
	0,        0,       WORK, 30,   TAKE,    9,       HANG_UP, ORDER,   0x20,    0,       0,
	0,        16,      0,    3,    4,       8,       2,       OPEN,    0xf6,    0x03,    3,
	3,        0,       0,    2,    0,       0,       0x80,    WORK,    30,      TAKE,    9,
	HANG_UP,  ORDER,   0,    0,    6,       0,       0xe1,    0x80,    OPEN,    1,       0x01,
	3,        3,       0,    0,    2,       0,       0,       0x80,    WORK,    30,      TAKE,
	9,        HANG_UP,
};

static size_t script_size(const uint8_t *data, size_t size)
{
	return size < 2u + data[1] ? size - 2 : data[1];
}

static bool has_script(const uint8_t *data, size_t size)
{
	return size >= 2 && (data[0] == 'R' || data[0] == 'C');
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t size_max) __attribute__((weak));
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed);

/*
 * Files from the seed folder. Some mutations restart from a seed, so that inputs stay close to
 * valid files.
 */
struct seed {
	uint8_t bytes[SEED_MAX];
	size_t size;
};
static struct seed seeds[SEEDS_MAX];
static unsigned seed_count;

static void read_seed(const char *path)
{
	uint8_t bytes[2 + SCRIPT_MAX + SEED_MAX];
	struct seed *seed = &seeds[seed_count];
	FILE *input = fopen(path, "rbe");
	size_t size = !input ? 0 : fread(bytes, 1, sizeof(bytes), input), script = 0;
	if (input)
		fclose(input);
	if (has_script(bytes, size))
		script = 2 + script_size(bytes, size);
	if (size <= script || size - script > SEED_MAX)
		return;
	seed->size = size - script;
	memcpy(seed->bytes, bytes + script, seed->size);
	seed_count++;
}

int LLVMFuzzerInitialize(int *argc, char ***argv);

/* libFuzzer calls this at the start. The last argument is the seed folder. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const char *folder = (*argv)[*argc - 1];
	char path[PATH_MAX];
	DIR *listing = opendir(folder);
	if (!listing)
		return 0;
	for (struct dirent *entry; seed_count < SEEDS_MAX && (entry = readdir(listing));) {
		if (entry->d_name[0] != '.' && snprintf(path, sizeof(path), "%s/%s", folder,
							entry->d_name) < (int)sizeof(path))
			read_seed(path);
	}
	closedir(listing);
	return 0;
}

/* Copies a seed after the first `kept` bytes. Returns the total size, or 0 if it does not fit. */
static size_t put_seed(uint8_t *data, size_t kept, size_t size_max, unsigned number)
{
	const struct seed *seed = &seeds[number % seed_count];
	if (seed->size > size_max - kept)
		return 0;
	memcpy(data + kept, seed->bytes, seed->size);
	return kept + seed->size;
}

/*
 * Usually adds a script to a file without one. If there is a script, mutates script and file
 * equally often.
 */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed)
{
	uint8_t script[SCRIPT_MAX];
	if (!has_script(data, size)) {
		if (seed % 4 == 0 || size + 2 + sizeof(ordinary) > size_max)
			return whole_file_mutate(data, size, size_max, seed / 4, LLVMFuzzerMutate);
		memmove(data + 2 + sizeof(ordinary), data, size);
		memcpy(data + 2, ordinary, sizeof(ordinary));
		data[0] = seed % 8 == 1 ? 'C' : 'R';
		data[1] = sizeof(ordinary);
		size += 2 + sizeof(ordinary);
	}
	size_t length = script_size(data, size), rest = size - 2 - length;
	uint64_t state = seed;
	if (seed_count > 0 && mutate_random(&state) % SEED_EVERY == 0) {
		size_t whole =
			put_seed(data, 2 + length, size_max, (unsigned)mutate_random(&state));
		if (whole > 0)
			rest = whole - 2 - length;
	}
	if (seed % 2 == 0)
		return 2 + length +
		       whole_file_mutate(data + 2 + length, rest, size_max - 2 - length, seed / 2,
					 LLVMFuzzerMutate);
	memcpy(script, data + 2, length);
	size_t room = size_max - 2 - rest < SCRIPT_MAX ? size_max - 2 - rest : SCRIPT_MAX;
	size_t changed = LLVMFuzzerMutate(script, length, room);
	memmove(data + 2 + changed, data + 2 + length, rest);
	memcpy(data + 2, script, changed);
	data[1] = (uint8_t)changed;
	return 2 + changed + rest;
}

static void start(void)
{
	static bool started;
	if (started)
		return;
	started = true;
	for (unsigned i = 0; i < CLIENTS; i++)
		clients[i].socket = -1;
	if (worker_alone_start() < 0)
		abort();
	worker_alone_hook(at_check);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script script = {ordinary, sizeof(ordinary)};
	start();
	storage_init(has_script(data, size) && data[0] == 'C');
	if (has_script(data, size)) {
		script = (struct script){data + 2, script_size(data, size)};
		data += 2 + script.left;
		size -= 2 + script.left;
	}
	memset(changes, 0, sizeof(changes));
	memset(wishes, 0, sizeof(wishes));
	file = memfd_create("fuzz", MFD_CLOEXEC);
	file_size = size;
	if (file < 0 || write(file, data, size) != (ssize_t)size)
		abort();
	play(script);
	close(file);
	return 0;
}
