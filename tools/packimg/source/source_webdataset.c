/*
 * A WebDataset shard: a tar in which adjacent members KEY.EXT with the same key make one sample.
 * KEY is the name up to the first dot of its last component.
 * - The image is the first member with an image extension.
 * - KEY.cls contains its class (a number or a name).
 * - The members of KEY.json become fields (numbers and strings; nested values as JSON; NaN and
 * Infinity are missing values). The whole JSON becomes the field "json".
 * - Every other member becomes a field named like its extension.
 */
#include "format/base/text/number.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/source/source_archive.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
	COMPANION_MAX = 1 << 20, /* maximum bytes of a member that becomes a field */
	SAMPLE_FIELDS_MAX = 250,
	SAMPLE_BYTES_MAX = 64 << 20, /* maximum bytes of all fields of a sample, with their names */
};

/* A field under construction. Stores offsets into `texts`, which moves when it grows. */
struct pending_field {
	enum value_kind kind;
	bool of_json; /* a member of KEY.json, whose whole text is stored as well */
	size_t name, text, size;
};

struct source_webdataset {
	struct archive_source base; /* base.bytes holds the bytes of a member */
	/*
	 * last_dot: keys end at the last dot instead of the first. named_images: images may be
	 * KEY.NAME.jpg.
	 */
	bool last_dot, named_images;
	/* The member read last, which belongs to the next sample. */
	struct archive_member member;
	bool member_held;
	/* The sample under construction. */
	bool begun;          /* it has at least one member */
	struct buffer texts; /* names and values of its fields, null-terminated */
	struct pending_field pending[SAMPLE_FIELDS_MAX];
	struct source_field fields[SAMPLE_FIELDS_MAX];
	size_t field_count;
	struct buffer key, name, class_text;
	struct buffer json;    /* text of the member KEY.json */
	const char *class_key; /* "cls", or a key of KEY.json; NULL if there is no class */
	enum value_kind class_kind;
	bool has_image;
	struct blob_location location;
	int fault; /* SOURCE_SKIP if the sample is faulty */
	struct packimg_error fault_error;
};

static void source_webdataset_close(struct source *source)
{
	struct source_webdataset *shard = (struct source_webdataset *)source;

	archive_source_close(source);
	buffer_deinit(&shard->texts);
	buffer_deinit(&shard->key);
	buffer_deinit(&shard->name);
	buffer_deinit(&shard->class_text);
	buffer_deinit(&shard->json);
}

static int webdataset_set_text(struct buffer *buffer, const void *text, size_t size)
{
	buffer->size = 0;
	return buffer_append(buffer, text, size) || buffer_append(buffer, "", 1) ? -ENOMEM : 0;
}

static void set_fault(struct source_webdataset *shard, const char *what, const char *why)
{
	if (!shard->fault)
		shard->fault = packimg_fail(&shard->fault_error, SOURCE_SKIP, "%s: %s", what, why);
}

/* Marks a sample whose fields exceed the limit as faulty, and frees them. */
static void set_fields_too_large(struct source_webdataset *shard, const char *name, size_t size,
				 uint64_t total)
{
	const struct archive_source *base = &shard->base;

	if (!shard->fault)
		shard->fault = packimg_fail(
			&shard->fault_error, SOURCE_SKIP,
			"%.200s: with this field of %s the sample's fields take %s, more than the "
			"limit of %s (%.300s); leave members out, or make several samples of it",
			name, text_bytes(TEXT, size), text_bytes(TEXT, total),
			text_bytes(TEXT, SAMPLE_BYTES_MAX),
			base->source.blobs->containers[base->container].path);
	shard->field_count = 0;
	buffer_deinit(&shard->texts);
}

static void set_two_images(struct source_webdataset *shard, const char *second)
{
	if (!shard->fault)
		shard->fault = packimg_fail(&shard->fault_error, SOURCE_SKIP,
					    "two images in one sample, %.200s and %.200s; "
					    "--exclude leaves one out, such as '*.right.jpg'",
					    (const char *)shard->name.data, second);
}

static int webdataset_add_field(struct source_webdataset *shard, const char *name,
				enum value_kind kind, const void *text, size_t size)
{
	uint64_t total = shard->texts.size + strlen(name) + 1 + size + 1;

	if (shard->fault)
		return 0;
	if (shard->field_count == SAMPLE_FIELDS_MAX) {
		set_fault(shard, name, "too many fields in one sample");
		return 0;
	}
	if (total > SAMPLE_BYTES_MAX) {
		set_fields_too_large(shard, name, size, total);
		return 0;
	}
	struct pending_field *field = &shard->pending[shard->field_count++];
	*field = (struct pending_field){.kind = kind, .name = shard->texts.size, .size = size};
	if (buffer_append(&shard->texts, name, strlen(name) + 1))
		return -ENOMEM;
	field->text = shard->texts.size;
	return buffer_append(&shard->texts, text, size) || buffer_append(&shard->texts, "", 1)
		       ? -ENOMEM
		       : 0;
}

/*
 * Returns true if a member of the sample has the same name as this field of KEY.json. The member
 * takes precedence.
 */
static bool is_hidden(const struct source_webdataset *shard, const struct pending_field *field)
{
	const char *texts = (const char *)shard->texts.data;

	for (size_t i = 0; field->of_json && i < shard->field_count; i++)
		if (!shard->pending[i].of_json &&
		    strcmp(texts + shard->pending[i].name, texts + field->name) == 0)
			return true;
	return false;
}

/*
 * Returns the text of a number, which is written to `number`, or of a string. Returns false for
 * other values.
 */
static bool json_scalar(const json_t *value, char number[40], enum value_kind *ret_kind,
			const char **ret_text, size_t *ret_size)
{
	*ret_text = number;
	if (json_is_integer(value)) {
		*ret_kind = VALUE_INTEGER;
		*ret_size = (size_t)snprintf(number, 40, "%" JSON_INTEGER_FORMAT,
					     json_integer_value(value));
	} else if (json_is_real(value)) {
		*ret_kind = VALUE_REAL;
		*ret_size = (size_t)snprintf(number, 40, "%.17g", json_real_value(value));
	} else if (json_is_string(value)) {
		*ret_kind = VALUE_TEXT;
		*ret_text = json_string_value(value);
		*ret_size = json_string_length(value);
	} else {
		return false;
	}
	return true;
}

static int add_json_value(struct source_webdataset *shard, const char *name, const json_t *value)
{
	enum value_kind kind;
	const char *scalar;
	char number[40];
	size_t size;

	if (json_is_null(value))
		return 0;
	if (json_is_boolean(value))
		return webdataset_add_field(shard, name, VALUE_INTEGER,
					    json_is_true(value) ? "1" : "0", 1);
	if (json_scalar(value, number, &kind, &scalar, &size))
		return webdataset_add_field(shard, name, kind, scalar, size);
	char *text = json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS);
	if (!text)
		return -ENOMEM;
	int r = webdataset_add_field(shard, name, VALUE_JSON, text, strlen(text));
	free(text);
	return r;
}

/*
 * Takes a label from KEY.json if there is no other: the first value that can be a class, else the
 * first number.
 */
static int class_from_json(struct source_webdataset *shard, const json_t *object)
{
	static const char *const keys[] = {"cls", "label", "class", "class_name", NULL};
	enum value_kind kind;
	const char *text;
	char number[40];
	size_t size;

	for (const char *const *key = keys; *key; key++) {
		if (!json_scalar(json_object_get(object, *key), number, &kind, &text, &size) ||
		    (kind == VALUE_REAL && shard->class_key))
			continue;
		shard->class_key = *key;
		int r = webdataset_set_text(&shard->class_text, text, size);
		if (r)
			return r;
		shard->class_kind = kind;
		if (kind != VALUE_REAL)
			return 0;
	}
	return 0;
}

/*
 * Returns the length of a NaN, Infinity or -Infinity at `text`, which Python's json module writes
 * although it is invalid JSON; 0 if there is none.
 */
static size_t not_finite(const char *text, size_t size)
{
	static const char *const words[] = {"NaN", "Infinity", "-Infinity"};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (size >= strlen(words[i]) && memcmp(text, words[i], strlen(words[i])) == 0)
			return strlen(words[i]);
	return 0;
}

/* Copies the member read last, with null in place of non-finite numbers outside strings. */
static int replace_not_finite(struct source_webdataset *shard)
{
	const struct buffer *bytes = &shard->base.bytes;
	const char *text = (const char *)bytes->data;
	bool quoted = false;

	shard->json.size = 0;
	if (!memmem(text, bytes->size, "NaN", 3) && !memmem(text, bytes->size, "Infinity", 8))
		return buffer_append(&shard->json, text, bytes->size);
	for (size_t i = 0, size; i < bytes->size; i += size) {
		size_t word = quoted ? 0 : not_finite(text + i, bytes->size - i);

		/* copy the character after a backslash too */
		size = word ? word : text[i] == '\\' && i + 1 < bytes->size ? 2 : 1;
		quoted ^= text[i] == '"';
		if (buffer_append(&shard->json, word ? "null" : text + i, word ? 4 : size))
			return -ENOMEM;
	}
	return 0;
}

static int add_json(struct source_webdataset *shard)
{
	int r = replace_not_finite(shard);
	if (r)
		return r;
	json_error_t fault;
	json_t *json = json_loadb((const char *)shard->json.data, shard->json.size,
				  JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &fault);
	const char *key;
	json_t *value;

	if (!json) {
		set_fault(shard, "json", fault.text);
		return 0;
	}
	r = webdataset_add_field(shard, "json", VALUE_JSON, shard->json.data, shard->json.size);
	size_t first = shard->field_count;
	json_object_foreach(json, key, value)
	{
		if (!r && strcmp(key, "json") != 0)
			r = add_json_value(shard, key, value);
	}
	for (size_t i = first; i < shard->field_count; i++)
		shard->pending[i].of_json = true;
	if (!r && !shard->class_key)
		r = class_from_json(shard, json);
	json_decref(json);
	return r;
}

static size_t trimmed(const struct buffer *bytes)
{
	size_t size = bytes->size;

	while (size && strchr(" \t\r\n", bytes->data[size - 1]) && bytes->data[size - 1])
		size--;
	return size;
}

/*
 * Returns true for extensions that the webdataset library decodes to str, and for other common
 * extensions of text.
 */
static bool is_text(const char *extension)
{
	static const char *const texts[] = {"txt", "text", "transcript", "caption", NULL};
	const char *dot = strrchr(extension, '.');

	for (const char *const *text = texts; *text; text++)
		if (strcasecmp(dot ? dot + 1 : extension, *text) == 0)
			return true;
	return false;
}

/*
 * Returns true if the label must become a field: a fractional number, or by option. A label from
 * KEY.json is a field already.
 */
static bool label_is_field(const struct source_webdataset *shard)
{
	enum label_use labels = shard->base.source.options->labels;

	return labels == LABELS_FIELD ||
	       (labels == LABELS_AUTO && shard->class_kind == VALUE_REAL &&
		!source_label_is_missing((const char *)shard->class_text.data));
}

/* Adds one member to the current sample. `extension` is the part after the key. */
static int webdataset_add_member(struct source_webdataset *shard,
				 const struct archive_member *member, const char *extension,
				 struct packimg_error *error)
{
	int r;

	if (member->unread) {
		set_fault(shard, extension, member->unread);
		return 0;
	}
	bool is_image = source_name_is_image(member->name);
	if (is_image && shard->named_images &&
	    filter_listed(shard->base.source.options->filter, member->name))
		return 0;
	if (is_image && shard->named_images && shard->has_image) {
		set_two_images(shard, member->name);
		return 0;
	}
	if (!shard->has_image && is_image &&
	    (shard->named_images || shard->last_dot || !strchr(extension, '.'))) {
		shard->has_image = true;
		if (webdataset_set_text(&shard->name, member->name, strlen(member->name)))
			return packimg_fail(error, -ENOMEM, "out of memory");
		if (shard->fault)
			return 0;
		r = archive_source_locate(&shard->base, member, &shard->location, error);
		if (r == -EFBIG) {
			set_fault(shard, extension, error ? error->text : "too large");
			r = 0;
		}
		return r;
	}
	/* Once a sample is rejected, its other members are not read. */
	if (shard->fault)
		return 0;
	shard->base.bytes.size = 0;
	r = archive_reader_read(shard->base.archive, COMPANION_MAX, &shard->base.bytes, NULL,
				error);
	if (r == -EFBIG) {
		set_fault(shard, extension, error ? error->text : "too large");
		return 0;
	}
	if (r)
		return r;
	if (strcasecmp(extension, "cls") == 0 || strcasecmp(extension, "cls.txt") == 0) {
		r = webdataset_set_text(&shard->class_text, shard->base.bytes.data,
					trimmed(&shard->base.bytes));
		shard->class_key = "cls";
		shard->class_kind =
			r ? VALUE_TEXT : source_value_kind((char *)shard->class_text.data);
		if (!r && label_is_field(shard))
			r = webdataset_add_field(shard, "cls", shard->class_kind,
						 shard->class_text.data,
						 shard->class_text.size - 1);
	} else if (strcasecmp(extension, "json") == 0) {
		r = add_json(shard);
	} else {
		r = webdataset_add_field(shard, extension,
					 is_text(extension) ? VALUE_TEXT : VALUE_BYTES,
					 shard->base.bytes.data, shard->base.bytes.size);
	}
	return r ? packimg_fail(error, r, "out of memory") : 0;
}

static void webdataset_begin_sample(struct source_webdataset *shard)
{
	shard->texts.size = shard->field_count = 0;
	shard->has_image = false;
	shard->class_key = NULL;
	shard->fault = 0;
}

/*
 * Returns the start of a member's extension, with its dot: the first dot of the last component, or
 * the last dot. NULL if the name has no key.
 */
static const char *find_dot(const char *name, bool last)
{
	static const char class_text[] = ".cls.txt";
	const char *base = strrchr(name, '/');

	base = base ? base + 1 : name;
	if (base[0] == '.')
		return NULL;
	size_t size = strlen(base), end = sizeof(class_text) - 1;
	if (last && size > end && strcasecmp(base + size - end, class_text) == 0)
		return base + size - end;
	return last ? strrchr(base, '.') : strchr(base, '.');
}

enum {
	LEARN_MEMBERS =
		64, /* maximum number of members examined to determine where a shard's keys end */
};

/*
 * Returns true if one of the names is a companion of the image `name`, or the image of the
 * companion `name`.
 */
static bool has_partner(char *const *names, size_t count, const char *name)
{
	const size_t size = (size_t)(find_dot(name, true) - name);
	const bool is_image = source_name_is_image(name);

	for (size_t i = 0; i < count; i++)
		if (source_name_is_image(names[i]) != is_image &&
		    (size_t)(find_dot(names[i], true) - names[i]) == size &&
		    memcmp(names[i], name, size) == 0)
			return true;
	return false;
}

/*
 * Determines how keys end. If no image name is KEY.jpg with a key up to the first dot, then either
 * keys contain dots (22.05.jpg and 22.05.cls), or images have names of their own (a.left.jpg and
 * a.cls).
 */
static int learn_keys(struct source_webdataset *shard, struct archive_reader *archive)
{
	struct archive_member member;
	char *names[LEARN_MEMBERS];
	size_t count = 0;
	bool plain = false, named = false, partners = false;
	int r = 0;

	for (int i = 0; i < LEARN_MEMBERS && !archive_reader_next(archive, &member, NULL); i++) {
		const char *dot = find_dot(member.name, false);
		bool is_image = source_name_is_image(member.name);
		if (member.unread || !dot || (!is_image && !source_name_is_companion(member.name)))
			continue;
		plain |= is_image && !strchr(dot + 1, '.');
		named |= is_image && strchr(dot + 1, '.');
		partners |= has_partner(names, count, member.name);
		names[count] = strdup(member.name);
		if (!names[count++]) {
			count--;
			r = -ENOMEM;
			break;
		}
	}
	while (count)
		free(names[--count]);
	shard->last_dot = named && !plain && partners;
	shard->named_images = named && !plain && !partners;
	return r;
}

static int source_webdataset_open(struct source *source, const char *path,
				  struct packimg_error *error)
{
	struct source_webdataset *shard = (struct source_webdataset *)source;
	struct string_list *notes = source->options->notes;
	struct archive_reader *archive;

	int r = archive_source_open(source, path, error);
	if (r || shard->base.is_pipe)
		return r;
	r = archive_reader_open(path, &source->blobs->limits, &archive, error);
	if (r)
		return r;
	r = learn_keys(shard, archive);
	archive_reader_close(archive);
	if (!r && shard->last_dot && notes)
		r = string_list_add_format(
			notes,
			"%s: the keys of its samples contain dots and end at the last one; other "
			"readers of WebDataset end them at the first",
			path);
	return r ? packimg_fail(error, r, "out of memory") : 0;
}

/*
 * Reads members up to the first one with another key. Returns 0, SOURCE_END if there was none,
 * SOURCE_IGNORED for a member without a key, after which the sample continues, or an error.
 */
static int webdataset_read_sample(struct source_webdataset *shard, struct packimg_error *error)
{
	int r;

	if (!shard->begun)
		webdataset_begin_sample(shard);
	for (;;) {
		if (!shard->member_held) {
			r = archive_reader_next(shard->base.archive, &shard->member, error);
			if (r < 0)
				return r;
			if (r)
				return shard->begun ? 0 : SOURCE_END;
			if (shard->member.is_folder)
				continue;
			shard->member_held = true;
		}
		const char *dot = find_dot(shard->member.name, shard->last_dot);
		if (!dot) {
			/*
			 * macOS puts "._a.cls" between "a.jpg" and "a.cls", which does not end a
			 * sample.
			 */
			shard->member_held = false;
			return SOURCE_IGNORED;
		}
		size_t key_size = (size_t)(dot - shard->member.name);
		if (shard->begun && (shard->key.size != key_size + 1 ||
				     memcmp(shard->key.data, shard->member.name, key_size) != 0))
			return 0;
		if (!shard->begun && webdataset_set_text(&shard->key, shard->member.name, key_size))
			return packimg_fail(error, -ENOMEM, "out of memory");
		shard->begun = true;
		shard->member_held = false;
		r = webdataset_add_member(shard, &shard->member, dot + 1, error);
		if (r)
			return r;
	}
}

/*
 * Returns true if the label is a class number; a string counts only if it is written as an integer.
 */
static bool label_number(const struct source_webdataset *shard, double *ret_number)
{
	const char *text = (const char *)shard->class_text.data;
	int64_t whole;

	if (shard->class_kind == VALUE_TEXT && number_i64(text, &whole))
		return false;
	return !number_double(text, ret_number) && *ret_number == trunc(*ret_number);
}

static void webdataset_set_class(struct source_webdataset *shard, struct source_item *item)
{
	if (shard->class_key) {
		const char *text = (const char *)shard->class_text.data;
		double number;

		item->label = label_is_field(shard) ? LABEL_FIELD : LABEL_CLASS;
		item->label_name = shard->class_key;
		if (item->label == LABEL_FIELD)
			return;
		if (source_label_is_missing(text))
			item->label = LABEL_NONE;
		else if (!label_number(shard, &number))
			item->class_name = text;
		else if (number < -1 || number >= PACKIMG_CLASSES_MAX)
			set_fault(shard, "class", "the number is out of range");
		else
			item->class_number = (int64_t)number;
		return;
	}
	enum class_from from = shard->base.source.options->class_from;
	if (from == CLASS_ARCHIVE)
		item->class_name = shard->base.stem;
	item->class_of_name = from == CLASS_TOP || from == CLASS_PARENT;
}

/* Returns the member read last, which has no key, as ignored. */
static int webdataset_ignore(const struct source_webdataset *shard, struct source_item *item)
{
	item->name = shard->member.name;
	const char *base = strrchr(item->name, '/');
	base = base ? base + 1 : item->name;
	item->verdict = *base == '.' ? FILTER_HIDDEN : FILTER_OTHER;
	return SOURCE_IGNORED;
}

static int source_webdataset_next(struct source *source, struct source_item *ret_item,
				  struct packimg_error *error)
{
	struct source_webdataset *shard = (struct source_webdataset *)source;
	size_t count = 0;

	int r = webdataset_read_sample(shard, error);
	if (r == SOURCE_IGNORED)
		return webdataset_ignore(shard, ret_item);
	if (r)
		return r;
	shard->begun = false;
	ret_item->name = (const char *)(shard->has_image ? shard->name.data : shard->key.data);
	if (!shard->has_image)
		set_fault(shard, ret_item->name,
			  "no image among the members of this key; the members of a sample must be "
			  "adjacent, as \"tar --sort=name\" writes them");
	ret_item->verdict = filter_listed(source->options->filter, ret_item->name);
	if (ret_item->verdict)
		return SOURCE_IGNORED;
	webdataset_set_class(shard, ret_item);
	for (size_t i = 0; i < shard->field_count; i++) {
		const struct pending_field *pending = &shard->pending[i];
		const char *texts = (const char *)shard->texts.data;

		if (is_hidden(shard, pending))
			continue;
		shard->fields[count++] = (struct source_field){
			.name = texts + pending->name,
			.kind = pending->kind,
			.text = texts + pending->text,
			.size = pending->size,
		};
	}
	ret_item->fields = shard->fields;
	ret_item->field_count = count;
	ret_item->location = shard->location;
	if (shard->fault && error)
		*error = shard->fault_error;
	return shard->fault;
}

const struct source_ops source_webdataset_ops = {sizeof(struct source_webdataset),
						 source_webdataset_open, source_webdataset_next,
						 source_webdataset_close};
