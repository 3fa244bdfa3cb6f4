/*
 * Makes the seeds of fuzz_frame, fuzz_ack and fuzz_ring_header: make_proto_corpus tests/fuzz/corpus
 */
#include "proto/feed.pb-c.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void save(const char *root, const char *folder, const char *name, const void *bytes,
		 size_t size)
{
	char path[4096];
	snprintf(path, sizeof(path), "%s/%s", root, folder);
	mkdir(path, 0777);
	snprintf(path, sizeof(path), "%s/%s/%s", root, folder, name);
	FILE *file = fopen(path, "wb");
	if (!file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0) {
		perror(path);
		exit(1);
	}
}

/* The seed under construction: the piece size, then frames. */
static uint8_t stream[8192];
static size_t used;

static void add_frame(const ProtobufCMessage *message)
{
	size_t size = protobuf_c_message_get_packed_size(message);
	stream[used++] = (uint8_t)size;
	stream[used++] = (uint8_t)(size >> 8);
	stream[used++] = 0;
	stream[used++] = 0;
	used += protobuf_c_message_pack(message, stream + used);
}

static void save_stream(const char *root, const char *name, uint8_t piece)
{
	stream[0] = piece;
	save(root, "frame", name, stream, used);
	used = 1;
}

/* A step of fuzz_wants.c: a Want of these samples, preceded by its length. */
static void add_want(uint64_t epoch, uint64_t *samples, size_t count)
{
	Loaderd__Want want = LOADERD__WANT__INIT;
	want.epoch = epoch;
	want.samples = samples;
	want.n_samples = count;
	stream[used++] = 0;
	stream[used++] = (uint8_t)loaderd__want__get_packed_size(&want);
	used += loaderd__want__pack(&want, stream + used);
}

static void wants(const char *root)
{
	uint64_t samples[6] = {7, 39, 7, 0, 7, 1};
	used = 0;
	for (unsigned i = 0; i < 25; i++) {
		add_want(i, samples, 1 + i % 6);
		if (i % 3 == 2) { /* take a batch, look a sample up */
			memcpy(stream + used, (uint8_t[]){1, 0, 0, 2, (uint8_t)(i % 5), 1}, 6);
			used += 6;
		}
	}
	memcpy(stream + used, (uint8_t[]){3, 0, 0, 1, 0, 0}, 6);
	save(root, "wants", "many", stream, used + 6);
	used = 0;
	add_want(UINT64_MAX, samples, 6);
	samples[3] = 40;
	add_want(0, samples, 6);
	samples[3] = UINT64_MAX;
	add_want(0, samples, 4);
	add_want(0, samples, 0);
	save(root, "wants", "wrong", stream, used);
	used = 1;
}

static void requests(const char *root)
{
	char *fields[] = {(char *)"depth", (char *)"caption"};
	Loaderd__OpenFeed open = LOADERD__OPEN_FEED__INIT;
	Loaderd__GetStatus status = LOADERD__GET_STATUS__INIT;
	Loaderd__GetDataset dataset = LOADERD__GET_DATASET__INIT;
	Loaderd__Doorbell doorbell = LOADERD__DOORBELL__INIT;
	Loaderd__Shutdown shutdown = LOADERD__SHUTDOWN__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	open.version = 1;
	open.dataset = (char *)"/data/train.pimg";
	open.pipeline = (char *)"random_resized_crop(224) hflip(0.5)";
	open.batch_size = 256;
	open.seed = 0x123456789abcdef;
	open.shuffle = 1;
	open.epoch = 3;
	open.batch = 41;
	open.epoch_end = 90;
	open.rank = 1;
	open.world = 8;
	open.last = LOADERD__LAST_BATCH__LAST_SHORT;
	open.bad = LOADERD__BAD_SAMPLE__BAD_FAIL;
	open.slots = 6;
	open.n_fields = 2;
	open.fields = fields;
	open.field_bytes = 300;
	open.name = (char *)"train";
	dataset.path = (char *)"/data/val.pimg";
	request.kind_case = LOADERD__REQUEST__KIND_OPEN_FEED;
	request.open_feed = &open;
	add_frame(&request.base);
	save_stream(root, "open_feed", 1);
	request.kind_case = LOADERD__REQUEST__KIND_GET_STATUS;
	request.get_status = &status;
	add_frame(&request.base);
	request.kind_case = LOADERD__REQUEST__KIND_GET_DATASET;
	request.get_dataset = &dataset;
	add_frame(&request.base);
	request.kind_case = LOADERD__REQUEST__KIND_DOORBELL;
	request.doorbell = &doorbell;
	add_frame(&request.base);
	request.kind_case = LOADERD__REQUEST__KIND_SHUTDOWN;
	request.shutdown = &shutdown;
	add_frame(&request.base);
	save_stream(root, "requests", 0);
}

static void replies(const char *root)
{
	Loaderd__Error error = LOADERD__ERROR__INIT;
	Loaderd__FeedOpened opened = LOADERD__FEED_OPENED__INIT;
	Loaderd__Status status = LOADERD__STATUS__INIT;
	Loaderd__FeedStatus feed = LOADERD__FEED_STATUS__INIT, *feeds[] = {&feed, &feed};
	Loaderd__BadSampleRecord bad = LOADERD__BAD_SAMPLE_RECORD__INIT, *bads[] = {&bad};
	Loaderd__Dataset dataset = LOADERD__DATASET__INIT;
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	double three[] = {123.5, 116.25, 103.75};
	char *names[] = {(char *)"cat", (char *)"dog"};
	error.code = 22;
	error.text = (char *)"pipeline: expected a number";
	error.field = (char *)"pipeline";
	error.position = 17;
	reply.kind_case = LOADERD__REPLY__KIND_ERROR;
	reply.error = &error;
	add_frame(&reply.base);
	opened.feed_id = 7;
	opened.samples = 1281167;
	opened.batches_per_epoch = 5004;
	opened.classes = 1000;
	opened.slots = 6;
	opened.dataset_uuid = (ProtobufCBinaryData){16, (uint8_t *)"0123456789abcdef"};
	reply.kind_case = LOADERD__REPLY__KIND_FEED_OPENED;
	reply.feed_opened = &opened;
	add_frame(&reply.base);
	save_stream(root, "opened", 3);
	feed.name = feed.dataset = feed.pipeline = bad.source = bad.text = (char *)"text";
	status.version = (char *)"0.1.0";
	status.n_feeds = 2;
	status.feeds = feeds;
	status.n_bad = 1;
	status.bad = bads;
	reply.kind_case = LOADERD__REPLY__KIND_STATUS;
	reply.status = &status;
	add_frame(&reply.base);
	dataset.path = (char *)"/data/val.pimg";
	dataset.n_mean = dataset.n_std = 3;
	dataset.mean = dataset.std = three;
	dataset.n_class_names = 2;
	dataset.class_names = names;
	dataset.metadata = (char *)"{}";
	reply.kind_case = LOADERD__REPLY__KIND_DATASET;
	reply.dataset = &dataset;
	add_frame(&reply.base);
	save_stream(root, "status_and_dataset", 100);
}

static void broken_frames(const char *root)
{
	static const char *const names[] = {"length_zero", "length_beyond", "cut", "length_cut",
					    "noise"};
	static const struct {
		size_t size;
		const char *bytes;
	} broken[] = {
		{5, "\0\0\0\0\0"},
		{6, "\0\1\0\20\0x"},
		{9, "\0\7\0\0\0\12\5ab"},
		{3, "\1\2\0"},
		{12, "\0\7\0\0\0\377\377\377\377\377\377\377"},
	};
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		save(root, "frame", names[i], broken[i].bytes, broken[i].size);
}

/* One changed byte in each record of the section table, and a slot that a client accepts. */
static void rings_sections(const char *root)
{
	enum { TABLE = 2048, RECORD = 32 };
	static uint8_t input[1 + 4096];
	char name[24];
	for (size_t s = 0; s < 6; s++) {
		memset(input, 0, sizeof(input));
		input[0] = 1;
		input[1 + TABLE + RECORD * s + 5 * s % RECORD] = 0x41;
		snprintf(name, sizeof(name), "section%zu", s);
		save(root, "ring_header", name, input, sizeof(input));
	}
	/* count 1; images of 2 x 2 x 3 bytes, NHWC; label, number, flags; no rows; three int16 */
	static const struct {
		size_t at;
		uint8_t value;
	} slot[] = {{24, 1},  {64, 2},  {68, 2},  {72, 3},   {80, 12}, {88, 1}, {112, 4},
		    {144, 8}, {176, 1}, {192, 4}, {208, 64}, {224, 3}, {240, 6}};
	memset(input, 0, sizeof(input));
	input[0] = 3;
	for (size_t i = 0; i < sizeof(slot) / sizeof(*slot); i++)
		input[1 + slot[i].at] = slot[i].value;
	save(root, "ring_header", "slot", input, sizeof(input));
}

static void rings(const char *root)
{
	uint8_t header[1 + 80] = {0};
	/*
	 * steps: begin, publish, valid ack, begin, ack of an unpublished batch, begin. noise: words
	 * with all bits set.
	 */
	static const char steps[] = "\2\0\0\2\0\4\0\0\0\0\0\4\1\0\0\2\0\2\0\4\0\4\1\0\0\0\0\0\0";
	static const char noise[] = "\1\0\0\5\20\377\377\377\377\377\377\377\377\0\0\2\0\7\377\0\0"
				    "\7\1\3\177\0\0\7\0\2\0";
	save(root, "ack", "steps", steps, sizeof(steps) - 1);
	save(root, "ack", "noise", noise, sizeof(noise) - 1);
	/* The first byte is 0 for the header of version 1, 1 for that of version 2, 3 for a slot's.
	 */
	for (uint8_t how = 0; how < 4; how++) {
		char name[16];
		header[0] = how;
		snprintf(name, sizeof(name), "good%u", how);
		save(root, "ring_header", name, header, 1);
		for (size_t i = 0; i < (sizeof(header) - 1) / 4; i++) {
			memset(header, 0, sizeof(header));
			header[0] = how;
			header[1 + 4 * i + i % 4] = (uint8_t)(1 << i % 8);
			snprintf(name, sizeof(name), "word%zu_%u", i, how);
			save(root, "ring_header", name, header, sizeof(header));
		}
	}
	rings_sections(root);
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fputs("usage: make_proto_corpus tests/fuzz/corpus\n", stderr);
		return 2;
	}
	used = 1;
	requests(argv[1]);
	replies(argv[1]);
	broken_frames(argv[1]);
	rings(argv[1]);
	wants(argv[1]);
	return 0;
}
