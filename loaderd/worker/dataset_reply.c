#include "loaderd/worker/dataset_reply.h"

#include "format/packimg.h"
#include "loaderd/reply.h"
#include "loaderd/worker/storage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	/*
	 * Bytes for the strings of a reply. With four bytes of tag and length per string, the reply
	 * stays below FRAME_SIZE_MAX.
	 */
	REPLY_TEXTS_MAX = 640 << 10,
	REPLY_CLASSES_MAX = 64 << 10,
};

/* Buffer for a reply's texts. */
struct texts {
	char *bytes; /* REPLY_TEXTS_MAX */
	size_t used;
};

/* Copies a text into the buffer. Returns NULL if it does not fit. */
static char *keep_text(struct texts *texts, const char *text)
{
	size_t capacity = REPLY_TEXTS_MAX - texts->used;
	size_t length = strnlen(text, capacity);
	if (length == capacity)
		return NULL;
	char *copy = texts->bytes + texts->used;
	memcpy(copy, text, length);
	copy[length] = '\0';
	texts->used += length + 1;
	return copy;
}

/* Types and longest values of the fields. */
struct field_facts {
	uint32_t types[PACKIMG_FIELDS_MAX];
	uint64_t longest[PACKIMG_FIELDS_MAX];
};

static size_t keep_fields(struct texts *texts, const struct packimg *image, char **names,
			  struct field_facts *ret_facts)
{
	uint32_t fields = packimg_field_count(image);
	for (uint32_t i = 0; i < fields; i++) {
		struct packimg_field field = {.name = ""};
		packimg_field(image, i, &field);
		names[i] = keep_text(texts, field.name);
		if (!names[i])
			return i;
		ret_facts->types[i] = field.type;
		ret_facts->longest[i] = field.longest;
	}
	return fields;
}

/* Copies all class names or none: a list with a gap would misnumber the classes. */
static size_t keep_classes(struct texts *texts, const struct packimg *image, char **names)
{
	uint32_t classes = packimg_class_count(image);
	size_t used = texts->used;
	if (classes > REPLY_CLASSES_MAX)
		return 0;
	for (uint32_t i = 0; i < classes; i++) {
		names[i] = keep_text(texts, packimg_class_name(image, i));
		if (!names[i]) {
			texts->used = used;
			return 0;
		}
	}
	return classes;
}

/*
 * Packs the reply. Strings that do not fit a frame are omitted: metadata first, then class names,
 * whose number FeedOpened carries.
 */
static int dataset_facts_pack(const struct packimg *image, const char *path, struct texts *texts,
			      char **names, uint8_t **ret_packed, size_t *ret_size)
{
	Loaderd__Dataset message = LOADERD__DATASET__INIT;
	const Loaderd__Reply reply = REPLY(DATASET, dataset, &message);
	double mean[3], std[3];
	uint8_t uuid[16];
	struct field_facts fields;
	message.path = (char *)path;
	message.samples = packimg_count(image);
	message.field_names = names;
	message.n_field_names = keep_fields(texts, image, names, &fields);
	message.n_field_types = message.n_field_longest = message.n_field_names;
	message.field_types = fields.types;
	message.field_longest = fields.longest;
	message.class_names = names + message.n_field_names;
	message.n_class_names = keep_classes(texts, image, message.class_names);
	char *metadata = keep_text(texts, packimg_metadata(image));
	if (metadata)
		message.metadata = metadata;
	if (packimg_statistics(image, mean, std) == 0) {
		message.n_mean = message.n_std = 3;
		message.mean = mean;
		message.std = std;
	}
	memcpy(uuid, packimg_uuid(image), sizeof(uuid));
	message.uuid = (ProtobufCBinaryData){sizeof(uuid), uuid};
	size_t size = loaderd__reply__get_packed_size(&reply);
	uint8_t *packed = malloc(size);
	if (!packed)
		return -ENOMEM;
	loaderd__reply__pack(&reply, packed);
	*ret_packed = packed;
	*ret_size = size;
	return 0;
}

static int dataset_facts_describe(const struct packimg *image, const char *path,
				  uint8_t **ret_packed, size_t *ret_size)
{
	struct texts texts = {.bytes = malloc(REPLY_TEXTS_MAX)};
	char **names = calloc(REPLY_CLASSES_MAX + PACKIMG_FIELDS_MAX, sizeof(*names));
	int r = -ENOMEM;
	if (texts.bytes && names)
		r = dataset_facts_pack(image, path, &texts, names, ret_packed, ret_size);
	free(names);
	free(texts.bytes);
	return r;
}

int dataset_reply(const char *path, int *fd, uint8_t **ret_packed, size_t *ret_size,
		  struct refusal *refusal)
{
	struct packimg *image;
	struct packimg_error error = {{0}};
	bool mapped; /* ignored: a single file is read, not mapped */
	int r = storage_choose(path, fd, 1, &mapped, &error);
	if (r == 0)
		r = packimg_open_facts(*fd, path, &image, &error);
	if (r < 0)
		return refuse_request(refusal, -r, "path", "%s",
				      error.text[0] != '\0' ? error.text : strerror(-r));
	*fd = -1;
	r = dataset_facts_describe(image, path, ret_packed, ret_size);
	packimg_close(image);
	return r < 0 ? refuse_request(refusal, -r, "path", "%.300s: %s", path, strerror(-r)) : 0;
}
