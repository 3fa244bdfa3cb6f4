#include "tests/security/attack.h"

#include "format/packimg.h"
#include "proto/framing.h"
#include "proto/ring.h"
#include "tests/dataset.h"
#include "tests/test.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

unsigned attack_ms(void)
{
	const char *text = getenv("LOADERD_TEST_ATTACK_MS");
	return text ? (unsigned)atoi(text) : 250;
}

uint64_t attack_now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint64_t attack_deadline(void)
{
	return attack_now_ms() + attack_ms();
}

uint64_t attack_random(void)
{
	static uint64_t seed = 0x9e3779b97f4a7c15;
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static void encode(struct test_dataset *data, enum dataset_kind kind, struct packimg_item *item)
{
	if (kind == DATASET_ZSTD) {
		item->codec = PACKIMG_CODEC_RAW_ZSTD;
		assert_int_equal(packimg_encode_zstd(data->encoder, item->data, item->data_size, 1,
						     &item->data, &item->data_size),
				 0);
	}
	if (kind == DATASET_JPEG || kind == DATASET_INDEXED)
		test_item_to_jpeg(data, item, 90);
	if (kind == DATASET_INDEXED)
		test_item_index(data, item);
}

static void add_image(struct test_dataset *data, const uint32_t fields[2], enum dataset_kind kind,
		      uint32_t number)
{
	enum { SIDE = 96 };
	static uint8_t pixels[SIDE * SIDE * 3];
	struct packimg_value text = {.present = true, .bytes = "forty-two bytes", .size = 15};
	struct packimg_value value = {.present = true, .int64 = number};
	struct packimg_item item = test_item(pixels, SIDE, SIDE);
	item.label = kind == DATASET_SMALL_SET ? 0 : (int32_t)(number % 10);
	for (size_t i = 0; i < sizeof(pixels); i++)
		pixels[i] = (uint8_t)((i * number) >> 4 ^ (attack_random() & 15));
	encode(data, kind, &item);
	test_dataset_add(data, &item);
	assert_int_equal(packimg_writer_value(data->writer, fields[0], &value, NULL), 0);
	assert_int_equal(packimg_writer_value(data->writer, fields[1], &text, NULL), 0);
}

static void give_to_owner(const char *path, uid_t owner)
{
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(chown(path, owner, owner), 0);
}

const char *attack_dataset(const char *folder, const char *name, enum dataset_kind kind,
			   uid_t owner)
{
	enum { IMAGES = 60, FEW_IMAGES = 36, CLASSES = 10 };
	const bool is_set = kind == DATASET_SET || kind == DATASET_SMALL_SET;
	const bool small = kind == DATASET_SMALL_SET;
	static const char *const classes[CLASSES] = {"ape", "bee", "cat", "dog",  "eel",
						     "fly", "gnu", "hen", "ibis", "jay"};
	static char path[PATH_MAX];
	struct test_dataset data;
	uint32_t fields[2];
	assert_true(snprintf(path, sizeof(path), "%s/%s.pimg", folder, name) < (int)sizeof(path));
	test_dataset_begin(&data, path, is_set ? 900 << 10 : 0);
	assert_int_equal(
		packimg_writer_field(data.writer, "number", PACKIMG_FIELD_INT64, &fields[0], NULL),
		0);
	assert_int_equal(
		packimg_writer_field(data.writer, "text", PACKIMG_FIELD_BYTES, &fields[1], NULL),
		0);
	for (uint32_t i = 0; i < (small ? FEW_IMAGES : IMAGES); i++)
		add_image(&data, fields, kind, i);
	assert_int_equal(packimg_writer_classes(data.writer, classes, small ? 1 : CLASSES, NULL),
			 0);
	assert_int_equal(packimg_writer_metadata(data.writer, "owner", name, NULL), 0);
	test_dataset_finish(&data);
	if (!is_set) {
		give_to_owner(path, owner);
		return path;
	}
	for (unsigned shard = 0; shard < 2; shard++) {
		char name_of_shard[PATH_MAX];
		snprintf(name_of_shard, sizeof(name_of_shard), "%.200s/%s-%05u-of-00002.pimg",
			 folder, name, shard);
		give_to_owner(name_of_shard, owner);
	}
	return path;
}

void attack_stage(struct stage *stage)
{
	*stage = (struct stage){0};
	fixture_init(&stage->fixture);
	stage->fixture.uid = SERVICE;
	assert_int_equal(chmod(stage->fixture.folder, 0755), 0);
	assert_int_equal(chown(stage->fixture.folder, SERVICE, SERVICE), 0);
	snprintf(stage->alice_folder, sizeof(stage->alice_folder), "%.200s/alice",
		 stage->fixture.folder);
	snprintf(stage->bob_folder, sizeof(stage->bob_folder), "%.200s/bob", stage->fixture.folder);
	assert_int_equal(mkdir(stage->alice_folder, 0700), 0);
	assert_int_equal(mkdir(stage->bob_folder, 0700), 0);
	assert_int_equal(chown(stage->alice_folder, ALICE, ALICE), 0);
	assert_int_equal(chown(stage->bob_folder, BOB, BOB), 0);
	strcpy(stage->images,
	       attack_dataset(stage->alice_folder, "images", DATASET_INDEXED, ALICE));
	stage->alice = fixture_options(&stage->fixture, stage->images, "random_resized_crop(32)");
	stage->alice.batch_size = 16;
	strcpy(stage->bobs_images, attack_dataset(stage->bob_folder, "images", DATASET_JPEG, BOB));
	stage->bob = fixture_options(&stage->fixture, stage->bobs_images,
				     "random_resized_crop(64) hflip(0.5)");
	stage->bob.slots = 3;
}

int attack_connect_now(const struct stage *stage)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", stage->fixture.socket);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

int attack_connect(const struct stage *stage)
{
	enum { APART_US = 1100 };
	static struct timespec last;
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	const int64_t passed_us =
		(int64_t)(now.tv_sec - last.tv_sec) * 1000000 + (now.tv_nsec - last.tv_nsec) / 1000;
	if (passed_us < APART_US)
		usleep((unsigned)(APART_US - passed_us));
	clock_gettime(CLOCK_MONOTONIC, &last);
	return attack_connect_now(stage);
}

bool attack_send(int socket, const Loaderd__Request *request, const int *fds, unsigned count)
{
	uint8_t message[8192];
	assert_true(loaderd__request__get_packed_size(request) <= sizeof(message));
	size_t size = loaderd__request__pack(request, message);
	return frame_send(socket, message, size, fds, count, 5000) == 0;
}

bool attack_ask(int socket, const char *dataset, const char *pipeline, unsigned batch_size)
{
	Loaderd__OpenFeed open = LOADERD__OPEN_FEED__INIT;
	Loaderd__GetDataset get = LOADERD__GET_DATASET__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	if (!pipeline) {
		get.version = PROTO_VERSION_OLDEST;
		get.path = (char *)dataset;
		request.kind_case = LOADERD__REQUEST__KIND_GET_DATASET;
		request.get_dataset = &get;
		return attack_send(socket, &request, NULL, 0);
	}
	open.version = PROTO_VERSION_OLDEST;
	open.dataset = (char *)dataset;
	open.pipeline = (char *)pipeline;
	open.batch_size = batch_size;
	open.slots = 4;
	request.kind_case = LOADERD__REQUEST__KIND_OPEN_FEED;
	request.open_feed = &open;
	return attack_send(socket, &request, NULL, 0);
}

bool attack_send_open(int socket, const Loaderd__OpenFeed *open)
{
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	request.kind_case = LOADERD__REQUEST__KIND_OPEN_FEED;
	request.open_feed = (Loaderd__OpenFeed *)open;
	uint8_t *message = malloc(loaderd__request__get_packed_size(&request));
	assert_non_null(message);
	size_t size = loaderd__request__pack(&request, message);
	int r = frame_send(socket, message, size, NULL, 0, 5000);
	free(message);
	return r == 0;
}

bool attack_files(int socket, uint32_t first, uint32_t total, bool direct, const int *fds,
		  unsigned count)
{
	Loaderd__Files files = LOADERD__FILES__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	files.first = first;
	files.total = total;
	files.direct = direct;
	request.kind_case = LOADERD__REQUEST__KIND_FILES;
	request.files = &files;
	return attack_send(socket, &request, fds, count);
}

Loaderd__Reply *attack_reply_bare(int socket, int fds[2])
{
	enum { PATIENCE_MS = 20000 };
	struct frame_reader reader;
	Loaderd__Reply *reply = NULL;
	frame_reader_init(&reader);
	for (int r = 0; r >= 0 && !reply;) {
		struct pollfd p = {.fd = socket, .events = POLLIN};
		const uint8_t *data;
		size_t size;
		r = frame_receive(&reader, socket, &data, &size);
		if (r == 0)
			assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
		if (r <= 0)
			continue;
		reply = loaderd__reply__unpack(NULL, size, data);
		assert_non_null(reply);
		if (reply->kind_case == LOADERD__REPLY__KIND_RING)
			for (unsigned i = 0; fds && i < 2; i++)
				fds[i] = frame_take_fd(&reader, i);
		if (reply->kind_case != LOADERD__REPLY__KIND_DOORBELL)
			continue;
		loaderd__reply__free_unpacked(reply, NULL);
		reply = NULL;
	}
	frame_reader_deinit(&reader);
	return reply;
}

Loaderd__Reply *attack_reply(int socket, int fds[2])
{
	int ring[2] = {-1, -1};
	Loaderd__Reply *reply = attack_reply_bare(socket, ring);
	while (reply && reply->kind_case == LOADERD__REPLY__KIND_RING) {
		loaderd__reply__free_unpacked(reply, NULL);
		struct fixture_mapping mapping;
		reply = NULL;
		if (!fixture_map_ring(socket, ring, &mapping))
			continue;
		reply = attack_reply_bare(socket, NULL);
		fixture_unmap_ring(&mapping);
		munmap(mapping.ack, RING_ACK_SIZE);
	}
	for (unsigned i = 0; i < 2; i++) {
		if (fds)
			fds[i] = ring[i];
		else if (ring[i] >= 0)
			close(ring[i]);
	}
	return reply;
}

void attack_send_mapped(int socket)
{
	Loaderd__RingMapped mapped = LOADERD__RING_MAPPED__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	request.kind_case = LOADERD__REQUEST__KIND_RING_MAPPED;
	request.ring_mapped = &mapped;
	(void)attack_send(socket, &request, NULL, 0);
}

int attack_take_ring(const struct stage *stage, int file, const char *pipeline, int fds[2])
{
	int socket = attack_connect(stage);
	Loaderd__Reply *reply;
	assert_true(socket >= 0);
	assert_true(attack_ask(socket, "by hand", pipeline, 16));
	for (;;) {
		reply = attack_reply_bare(socket, fds);
		assert_non_null(reply);
		if (reply->kind_case != LOADERD__REPLY__KIND_NEED_FILES)
			break;
		(void)attack_files(socket, reply->need_files->first, 1, reply->need_files->direct,
				   &file, 1);
		loaderd__reply__free_unpacked(reply, NULL);
	}
	assert_int_equal(reply->kind_case, LOADERD__REPLY__KIND_RING);
	loaderd__reply__free_unpacked(reply, NULL);
	return socket;
}

bool attack_part_file(int socket, const Loaderd__NeedFiles *need, int fd)
{
	Loaderd__Files files = LOADERD__FILES__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	files.first = need->first;
	files.total = 1;
	files.direct = need->direct;
	files.part = need->part;
	files.file = need->file;
	request.kind_case = LOADERD__REQUEST__KIND_FILES;
	request.files = &files;
	return attack_send(socket, &request, &fd, 1);
}

/* Waits for the reply to an open request, and returns its code. */
static int finish_opening(int socket, const int *lists, int *ret_socket, int fds[2],
			  bool *ret_too_often)
{
	int code = ECONNRESET;
	Loaderd__Reply *reply = attack_reply(socket, fds);
	while (reply && reply->kind_case == LOADERD__REPLY__KIND_NEED_FILES) {
		assert_in_range(reply->need_files->file, 0, 5);
		bool passed =
			attack_part_file(socket, reply->need_files, lists[reply->need_files->file]);
		loaderd__reply__free_unpacked(reply, NULL);
		reply = passed ? attack_reply(socket, fds) : NULL;
	}
	*ret_too_often = reply && reply->kind_case == LOADERD__REPLY__KIND_ERROR &&
			 strstr(reply->error->text, "connects too often");
	if (reply)
		code = reply->kind_case == LOADERD__REPLY__KIND_ERROR ? reply->error->code : 0;
	/* A refusal must explain the errno, not just name it. */
	if (code != 0 && reply && strstr(reply->error->text, strerror(code)))
		assert_non_null(strstr(reply->error->text, "cannot be read as a file"));
	loaderd__reply__free_unpacked(reply, NULL);
	if (ret_socket && code == 0)
		*ret_socket = socket;
	else
		close(socket);
	return code;
}

static int open_once(const struct stage *stage, int file, const char *pipeline, int *ret_socket,
		     int fds[2], bool *ret_too_often)
{
	const int files[4] = {file, -1, -1, -1};
	int socket = attack_connect(stage);
	*ret_too_often = false;
	if (socket >= 0 && attack_ask(socket, "by hand", pipeline, 16))
		return finish_opening(socket, files, ret_socket, fds, ret_too_often);
	if (socket >= 0)
		close(socket);
	return ECONNRESET;
}

int attack_open(const struct stage *stage, int file, const char *pipeline, int *ret_socket,
		int fds[2])
{
	bool too_often;
	int code;
	while ((code = open_once(stage, file, pipeline, ret_socket, fds, &too_often)) == EDQUOT &&
	       too_often)
		usleep(1000);
	return code;
}

int attack_open_order(const struct stage *stage, const Loaderd__OpenFeed *open, const int *lists,
		      int *ret_socket)
{
	bool too_often = true;
	int code = EDQUOT;
	while (code == EDQUOT && too_often) {
		int socket = attack_connect(stage);
		if (socket < 0 || !attack_send_open(socket, open)) {
			if (socket >= 0)
				close(socket);
			return ECONNRESET;
		}
		code = finish_opening(socket, lists, ret_socket, NULL, &too_often);
	}
	return code;
}

void attack_put_in_flight(int fd, int ret_pair[2])
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
	struct iovec byte = {(char *)"x", 1};
	struct msghdr message = {.msg_iov = &byte,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ret_pair), 0);
	memcpy(CMSG_DATA(&control.header), &fd, sizeof(int));
	assert_int_equal(sendmsg(ret_pair[0], &message, 0), 1);
}

struct feed *attack_open_feed(const struct feed_options *options)
{
	enum { PATIENCE_MS = 20000 };
	uint64_t until_ms = attack_now_ms() + PATIENCE_MS;
	struct feed *feed;
	while (attack_now_ms() < until_ms) {
		int r = feed_open(options, &feed, NULL);
		if (r == 0)
			return feed;
		assert_int_equal(r, -EDQUOT);
		usleep(1000);
	}
	return fixture_open(options);
}

int test_run_as_root(CMFixtureFunction setup, CMFixtureFunction teardown)
{
	if (geteuid() != 0) {
		print_message("needs root, to be several users in turn\n");
		return 77; /* skipped */
	}
	return test_run(setup, teardown);
}
