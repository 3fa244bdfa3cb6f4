#include "tools/store/upload.h"
#include "tools/store/reply.h"
#include "tools/store/store_internal.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Limits of S3 (Amazon S3 User Guide, "Amazon S3 multipart upload limits"). */
enum { PARTS_MAX = 10000 };
#define OBJECT_MAX ((uint64_t)5 << 40)

#define PART_MIN   ((uint64_t)8 << 20)
#define PART_ALIGN ((uint64_t)1 << 20)

enum { QUERY_MAX = 3 * REPLY_FIELD_MAX + 64 };

struct upload {
	struct store *store;
	struct store_object *object;
	const uint8_t *bytes; /* the file, mapped */
	uint64_t size, part_size;
	uint32_t part_count, submitted, under_way;
	char id[3 * REPLY_FIELD_MAX]; /* of the multipart upload, percent-encoded */
	struct upload_part *parts;    /* [part_count] */
	uint64_t arrived;             /* bytes */
	int status;                   /* of the first request that has failed */
	struct packimg_error *error;
};

struct upload_part {
	struct upload *upload;
	char query[QUERY_MAX];
	char etag[STORE_VERSION_MAX];
	uint64_t size;
};

/* Percent-encodes a value of a query. */
static void encode_value(const char *value, char *to)
{
	for (; *value; value++)
		to += isalnum((unsigned char)*value) || strchr("-._~", *value)
			      ? sprintf(to, "%c", *value)
			      : sprintf(to, "%%%02X", (unsigned char)*value);
	*to = '\0';
}

static void take_upload_id(void *context, const struct store_result *result)
{
	struct upload *upload = context;
	struct reply_fields fields;

	if (result->status)
		return;
	reply_parse(result->reply, strlen(result->reply), &fields);
	encode_value(fields.upload_id, upload->id);
}

static int upload_begin(struct upload *upload)
{
	const struct store_request request = {
		.object = upload->object,
		.method = STORE_POST,
		.query = "uploads=",
		.done = take_upload_id,
		.context = upload,
	};
	int r = store_ask(upload->store, &request, upload->error);

	if (!r && !upload->id[0])
		r = packimg_fail(upload->error, -EBADMSG,
				 "%.200s: the store does not begin an upload in parts",
				 upload->object->address.shown);
	return r;
}

static void part_done(void *context, const struct store_result *result)
{
	struct upload_part *part = context;
	struct upload *upload = part->upload;

	upload->under_way--;
	if (!result->status && strpbrk(result->etag, "<>&"))
		upload->status = packimg_fail(upload->error, -EBADMSG,
					      "%.200s: the store names a part by \"%.64s\"",
					      upload->object->address.shown, result->etag);
	else if (!result->status)
		strcpy(part->etag, result->etag);
	else if (!upload->status) {
		upload->status = result->status;
		if (upload->error)
			*upload->error = *result->error;
	}
	upload->arrived += part->size;
}

static int submit_part(struct upload *upload)
{
	const uint32_t number = upload->submitted;
	const uint64_t offset = number * upload->part_size;
	struct upload_part *part = &upload->parts[number];

	part->upload = upload;
	part->size = upload->size - offset;
	if (part->size > upload->part_size)
		part->size = upload->part_size;
	snprintf(part->query, sizeof(part->query), "partNumber=%" PRIu32 "&uploadId=%s", number + 1,
		 upload->id);
	const struct store_request request = {
		.object = upload->object,
		.method = STORE_PUT,
		.query = part->query,
		.body = upload->bytes + offset,
		.body_size = part->size,
		.done = part_done,
		.context = part,
	};
	if (store_submit(upload->store, &request))
		return packimg_fail(upload->error, -ENOMEM, "out of memory");
	upload->submitted++;
	upload->under_way++;
	return 0;
}

static int upload_parts(struct upload *upload, void (*on_bytes)(void *context, uint64_t bytes),
			void *context)
{
	while (upload->under_way || (upload->submitted < upload->part_count && !upload->status)) {
		while (!upload->status && upload->submitted < upload->part_count &&
		       upload->under_way < upload->store->options.connections)
			upload->status = submit_part(upload);
		store_run(upload->store, 100);
		if (on_bytes)
			on_bytes(context, upload->arrived);
	}
	return upload->status;
}

/* Makes an object of the parts. */
static int upload_complete(struct upload *upload)
{
	char *xml = NULL, query[QUERY_MAX];
	size_t size;
	FILE *stream = open_memstream(&xml, &size);

	if (!stream)
		return packimg_fail(upload->error, -ENOMEM, "out of memory");
	fputs("<CompleteMultipartUpload>", stream);
	for (uint32_t i = 0; i < upload->part_count; i++)
		fprintf(stream, "<Part><PartNumber>%" PRIu32 "</PartNumber><ETag>%s</ETag></Part>",
			i + 1, upload->parts[i].etag);
	fputs("</CompleteMultipartUpload>", stream);
	if (fclose(stream)) {
		free(xml);
		return packimg_fail(upload->error, -ENOMEM, "out of memory");
	}
	snprintf(query, sizeof(query), "uploadId=%s", upload->id);
	const struct store_request request = {
		.object = upload->object,
		.method = STORE_POST,
		.query = query,
		.body = xml,
		.body_size = size,
	};
	int r = store_ask(upload->store, &request, upload->error);
	free(xml);
	return r;
}

/* Makes a request that cleans up, also after an interrupt. */
static int ask_unstoppably(struct store *store, const struct store_request *request,
			   struct packimg_error *error)
{
	bool (*stopped)(void) = store->options.stopped;

	store->options.stopped = NULL;
	int r = store_ask(store, request, error);
	store->options.stopped = stopped;
	return r;
}

/* Removes the parts. */
static void upload_abort(struct upload *upload)
{
	char query[QUERY_MAX];

	snprintf(query, sizeof(query), "uploadId=%s", upload->id);
	const struct store_request request = {
		.object = upload->object,
		.method = STORE_DELETE,
		.query = query,
	};
	ask_unstoppably(upload->store, &request, NULL);
}

static int upload_in_parts(struct upload *upload, void (*on_bytes)(void *context, uint64_t bytes),
			   void *context)
{
	uint64_t part_size = (upload->size + PARTS_MAX - 1) / PARTS_MAX;

	part_size = (part_size + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
	upload->part_size = part_size < PART_MIN ? PART_MIN : part_size;
	upload->part_count = (uint32_t)((upload->size + upload->part_size - 1) / upload->part_size);
	upload->parts = calloc(upload->part_count, sizeof(*upload->parts));
	if (!upload->parts)
		return packimg_fail(upload->error, -ENOMEM, "out of memory");
	int r = upload_begin(upload);
	if (!r) {
		r = upload_parts(upload, on_bytes, context);
		r = r ? r : upload_complete(upload);
		if (r)
			upload_abort(upload);
	}
	free(upload->parts);
	return r;
}

int store_upload(struct store *store, struct store_object *object, int fd, uint64_t size,
		 void (*on_bytes)(void *context, uint64_t bytes), void *context,
		 struct packimg_error *error)
{
	const char *name = object->address.shown;

	if (!object->address.s3)
		return packimg_fail(error, -ENOTSUP, "%.200s: only s3:// addresses can be written",
				    name);
	if (!size || size > OBJECT_MAX)
		return packimg_fail(error, -EFBIG,
				    "%.200s: an object has 1 byte to 5 TiB; write shards "
				    "(--shard-size)",
				    name);
	void *bytes = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	if (bytes == MAP_FAILED)
		return packimg_fail(error, -errno, "%.200s: its local file: %s", name,
				    strerror(errno));
	struct upload upload = {
		.store = store, .object = object, .bytes = bytes, .size = size, .error = error};
	const struct store_request whole = {
		.object = object, .method = STORE_PUT, .body = bytes, .body_size = size};
	int r = size <= PART_MIN ? store_ask(store, &whole, error)
				 : upload_in_parts(&upload, on_bytes, context);
	munmap(bytes, size);
	return r;
}

int store_exists(struct store *store, struct store_object *object, struct packimg_error *error)
{
	const struct store_request request = {.object = object, .method = STORE_HEAD};
	int r = store_ask(store, &request, error);

	return r == -ENOENT ? 0 : r ? r : 1;
}

int store_delete(struct store *store, struct store_object *object, struct packimg_error *error)
{
	const struct store_request request = {.object = object, .method = STORE_DELETE};

	return ask_unstoppably(store, &request, error);
}
