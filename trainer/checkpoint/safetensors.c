#include "trainer/checkpoint/safetensors.h"
#include "format/base/system/atomic_file.h"
#include "trainer/checkpoint/safetensors_internal.h"
#include "trainer/checkpoint/sharded.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define fail safetensors_fail

enum { READ_MAX = 1 << 30 }; /* bytes per read; Linux transfers at most slightly less than 2 GiB */

static const struct {
	const char *name;
	unsigned size;
} types[] = {
#define TYPE(name, size) {#name, size},
	SAFETENSORS_TYPES(TYPE)
#undef TYPE
};

const char *safetensors_type_name(enum safetensors_type type)
{
	return types[type].name;
}

/* Computes the number of elements times the element size. Returns false if it exceeds 64 bits. */
static bool tensor_size(const struct safetensors_tensor *tensor, uint64_t *ret_size)
{
	uint64_t size = types[tensor->type].size;
	for (unsigned i = 0; i < tensor->rank; i++)
		if (__builtin_mul_overflow(size, tensor->shape[i], &size))
			return false;
	*ret_size = size;
	return true;
}

/* ---- writing ---- */

/*
 * Builds the header. Returns NULL if an entry is not UTF-8 or its name is a duplicate; *ret_name is
 * the name.
 */
static json_t *header_of(const struct safetensors_writer *writer, const char **ret_name)
{
	json_t *header = json_object(), *metadata = json_object();
	for (size_t i = 0; i < writer->metadata_count; i++) {
		*ret_name = writer->metadata[i].key;
		if (json_object_get(metadata, *ret_name) ||
		    json_object_set_new(metadata, *ret_name,
					json_string(writer->metadata[i].value)))
			goto fail;
	}
	if (writer->metadata_count)
		json_object_set(header, "__metadata__", metadata);
	uint64_t offset = 0;
	for (size_t i = 0; i < writer->count; i++) {
		const struct safetensors_tensor *tensor = &writer->tensors[i];
		json_t *shape = json_array();
		for (unsigned k = 0; k < tensor->rank; k++)
			json_array_append_new(shape, json_integer((json_int_t)tensor->shape[k]));
		json_t *entry = json_pack("{s:s, s:o, s:[I,I]}", "dtype", types[tensor->type].name,
					  "shape", shape, "data_offsets", (json_int_t)offset,
					  (json_int_t)(offset + tensor->size));
		*ret_name = tensor->name;
		if (json_object_get(header, *ret_name)) {
			json_decref(entry);
			goto fail;
		}
		if (json_object_set_new(header, *ret_name, entry))
			goto fail;
		offset += tensor->size;
	}
	json_decref(metadata);
	return header;
fail:
	json_decref(metadata);
	json_decref(header);
	return NULL;
}

static int write_parts(struct atomic_file *file, const struct safetensors_writer *writer,
		       const char *text)
{
	/*
	 * Pad the header so that tensors begin at a multiple of 64 bytes and a mapped file can be
	 * used in place.
	 */
	size_t length = strlen(text);
	size_t padded = (8 + length + 63) / 64 * 64 - 8;
	char *header = malloc(8 + padded);
	if (!header)
		return -ENOMEM;
	uint64_t size = htole64(padded);
	memcpy(header, &size, 8);
	memcpy(header + 8, text, length);
	memset(header + 8 + length, ' ', padded - length);
	int r = atomic_file_write(file, header, 8 + padded);
	free(header);
	if (r < 0)
		return r;
	for (size_t i = 0; i < writer->count; i++) {
		const void *data = writer->tensors[i].data;
		if (!data)
			data = writer->fill(writer->user, i);
		if (!data)
			return -EIO;
		r = atomic_file_write(file, data, writer->tensors[i].size);
		if (r < 0)
			return r;
	}
	return 0;
}

int safetensors_write(const char *path, const struct safetensors_writer *writer, char *error)
{
	struct atomic_file file;
	for (size_t i = 0; i < writer->count; i++) {
		uint64_t size;
		if (!tensor_size(&writer->tensors[i], &size) || size != writer->tensors[i].size)
			return fail(error, -EINVAL,
				    "%s: the size of tensor %s does not match its shape", path,
				    writer->tensors[i].name);
	}
	const char *name = "";
	json_t *header = header_of(writer, &name);
	char *text = header ? json_dumps(header, JSON_COMPACT) : NULL;
	json_decref(header);
	if (!text)
		return fail(error, -EINVAL, "%s: %s occurs twice or is not UTF-8", path, name);
	int r = atomic_file_create(&file, path);
	if (r == 0)
		r = atomic_file_close(&file, write_parts(&file, writer, text));
	free(text);
	return r < 0 ? fail(error, r, "%s: cannot be written: %s", path, strerror(-r)) : 0;
}

/* ---- reading ---- */

static int read_type(const json_t *json, enum safetensors_type *ret_type)
{
	const char *name = json_string_value(json);
	for (size_t i = 0; name && i < sizeof(types) / sizeof(types[0]); i++) {
		if (strcmp(types[i].name, name) == 0) {
			*ret_type = (enum safetensors_type)i;
			return 0;
		}
	}
	return -EBADMSG;
}

bool safetensors_read_count(const json_t *json, uint64_t *ret_value)
{
	if (!json_is_integer(json) || json_integer_value(json) < 0)
		return false;
	*ret_value = (uint64_t)json_integer_value(json);
	return true;
}

bool safetensors_has_control(const char *name)
{
	while (*name && (unsigned char)*name >= ' ' && *name != 0x7f)
		name++;
	return *name;
}

int safetensors_read_shape(const struct safetensors *file, const char *name, const json_t *json,
			   struct safetensors_tensor *tensor, char *error)
{
	const char *path = file->path;
	tensor->name = name;
	const json_t *type = json_object_get(json, "dtype");
	if (read_type(type, &tensor->type))
		return fail(error, -EBADMSG, "%s: tensor %s: dtype \"%s\" is unknown", path, name,
			    json_string_value(type) ? json_string_value(type) : "(missing)");
	const json_t *shape = json_object_get(json, "shape");
	if (!json_is_array(shape) || json_array_size(shape) > SAFETENSORS_RANK_MAX)
		return fail(error, -EBADMSG, "%s: tensor %s: shape is not a list of at most %d",
			    path, name, SAFETENSORS_RANK_MAX);
	tensor->rank = (unsigned)json_array_size(shape);
	for (unsigned i = 0; i < tensor->rank; i++)
		if (!safetensors_read_count(json_array_get(shape, i), &tensor->shape[i]))
			return fail(error, -EBADMSG, "%s: tensor %s: dimension %u is not a count",
				    path, name, i);
	if (!tensor_size(tensor, &tensor->size))
		return fail(error, -EBADMSG, "%s: tensor %s: its shape has too many elements", path,
			    name);
	return 0;
}

/*
 * Reads and validates a tensor's entry in the header. The file's tensor data begins at `start` and
 * has data_size bytes.
 */
static int read_tensor(const struct safetensors *file, const char *name, const json_t *json,
		       uint64_t start, struct safetensors_tensor *tensor, char *error)
{
	const char *path = file->path;
	uint64_t data_size = file->size - start, begin = 0, end = 0;
	if (safetensors_has_control(name))
		return fail(error, -EBADMSG, "%s: tensor %s: its name has control characters", path,
			    name);
	if (!json_is_object(json) || json_object_size(json) != 3)
		return fail(error, -EBADMSG,
			    "%s: tensor %s: expected dtype, shape and data_offsets", path, name);
	int r = safetensors_read_shape(file, name, json, tensor, error);
	if (r < 0)
		return r;
	const json_t *offsets = json_object_get(json, "data_offsets");
	if (json_array_size(offsets) != 2 ||
	    !safetensors_read_count(json_array_get(offsets, 0), &begin) ||
	    !safetensors_read_count(json_array_get(offsets, 1), &end) || begin > end)
		return fail(error, -EBADMSG,
			    "%s: tensor %s: data_offsets are not two ascending numbers", path,
			    name);
	if (end > data_size)
		return fail(
			error, -EBADMSG,
			"%s: tensor %s ends at byte %llu of %llu; the file is truncated or damaged",
			path, name, (unsigned long long)end, (unsigned long long)data_size);
	if (tensor->size != end - begin)
		return fail(error, -EBADMSG, "%s: tensor %s: %llu bytes do not match its shape",
			    path, name, (unsigned long long)(end - begin));
	tensor->offset = start + begin;
	return 0;
}

static int by_position(const void *a, const void *b)
{
	const struct safetensors_tensor *x = a, *y = b;
	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return x->size < y->size ? -1 : x->size > y->size;
}

static int by_name(const void *a, const void *b)
{
	const struct safetensors_tensor *const *x = a, *const *y = b;
	return strcmp((*x)->name, (*y)->name);
}

int safetensors_sort_names(struct safetensors *file, char *error)
{
	file->by_name = calloc(file->count + 1, sizeof(*file->by_name));
	if (!file->by_name)
		return fail(error, -ENOMEM, "%s: out of memory", file->path);
	for (size_t i = 0; i < file->count; i++)
		file->by_name[i] = &file->tensors[i];
	qsort(file->by_name, file->count, sizeof(*file->by_name), by_name);
	return 0;
}

int safetensors_check_metadata(const struct safetensors *file, const char *of, char *error)
{
	const char *key;
	json_t *value;
	if (!json_is_object(file->metadata))
		return fail(error, -EBADMSG, "%s: %s is not an object", file->path, of);
	json_object_foreach((json_t *)file->metadata, key, value)
	{
		if (!json_is_string(value))
			return fail(error, -EBADMSG, "%s: %s: %s is not a text", file->path, of,
				    key);
	}
	return 0;
}

static int read_tensors(struct safetensors *file, uint64_t header_size, char *error)
{
	const char *path = file->path;
	uint64_t start = 8 + header_size;
	file->tensors = calloc(json_object_size(file->header) + 1, sizeof(*file->tensors));
	if (!file->tensors)
		return fail(error, -ENOMEM, "%s: out of memory", path);
	const char *name;
	json_t *json;
	int r = 0;
	json_object_foreach(file->header, name, json)
	{
		if (strcmp(name, "__metadata__") != 0) {
			r = read_tensor(file, name, json, start, &file->tensors[file->count++],
					error);
		} else {
			file->metadata = json;
			r = safetensors_check_metadata(file, name, error);
		}
		if (r < 0)
			return r;
	}
	qsort(file->tensors, file->count, sizeof(*file->tensors), by_position);
	uint64_t end = start;
	for (size_t i = 0; i < file->count; i++) {
		const struct safetensors_tensor *tensor = &file->tensors[i];
		if (tensor->offset < end)
			return fail(error, -EBADMSG, "%s: tensor %s overlaps %s", path,
				    tensor->name, file->tensors[i - 1].name);
		if (tensor->offset > end)
			return fail(error, -EBADMSG,
				    "%s: the bytes before tensor %s belong to no tensor", path,
				    tensor->name);
		end = tensor->offset + tensor->size;
	}
	if (end != file->size)
		return fail(error, -EBADMSG,
			    "%s: the bytes after the last tensor belong to no tensor", path);
	return safetensors_sort_names(file, error);
}

/* A short read means that the file was truncated after opening. */
int safetensors_read_at(const struct safetensors *file, void *ret_bytes, uint64_t size,
			uint64_t offset, char *error)
{
	char *at = ret_bytes;
	while (size) {
		ssize_t n = pread(file->fd, at, size > READ_MAX ? READ_MAX : size, (off_t)offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail(error, -errno, "%s: cannot be read at byte %llu: %s",
				    file->path, (unsigned long long)offset, strerror(errno));
		if (n == 0)
			return fail(error, -EBADMSG,
				    "%s: ends at byte %llu, but had %llu bytes when it was opened",
				    file->path, (unsigned long long)offset,
				    (unsigned long long)file->size);
		at += n;
		offset += (uint64_t)n;
		size -= (uint64_t)n;
	}
	return 0;
}

static int open_file(struct safetensors *file, char *error)
{
	struct stat status;
	/* O_NONBLOCK prevents open() from blocking on a FIFO before fstat() identifies it */
	file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (file->fd < 0 || fstat(file->fd, &status))
		return fail(error, -errno, "%s: %s", file->path, strerror(errno));
	if (!S_ISREG(status.st_mode))
		return fail(error, -EBADMSG, "%s: not a regular file", file->path);
	if (status.st_size < 8 + 2)
		return fail(error, -EBADMSG, "%s: %lld bytes are too few for a safetensors file",
			    file->path, (long long)status.st_size);
	file->size = (uint64_t)status.st_size;
	return 0;
}

/*
 * Estimates the number of values in a JSON text from its commas: every element except the first of
 * a list or object follows one.
 */
static uint64_t count_values(const char *text, uint64_t size)
{
	uint64_t values = 0;
	bool in_text = false;
	for (uint64_t i = 0; i < size; i++) {
		if (in_text && text[i] == '\\')
			i++;
		else if (text[i] == '"')
			in_text = !in_text;
		else
			values += !in_text && text[i] == ',';
	}
	return values;
}

int safetensors_parse(struct safetensors *file, const char *text, uint64_t size, uint64_t offset,
		      uint64_t values_max, char *error)
{
	json_error_t json_error;
	file->header_bytes = size;
	file->header_values = count_values(text, size);
	/*
	 * limit the number of values, because each takes up to a hundred times its text in memory
	 */
	if (file->header_values > values_max)
		return fail(error, -EBADMSG, "%s: header: more than %llu values", file->path,
			    (unsigned long long)values_max);
	file->header = json_loadb(text, size, JSON_REJECT_DUPLICATES, &json_error);
	if (!file->header)
		return fail(error, -EBADMSG, "%s: header: %s at byte %llu", file->path,
			    json_error.text,
			    (unsigned long long)offset + (unsigned)json_error.position);
	if (!json_is_object(file->header))
		return fail(error, -EBADMSG, "%s: header is not a JSON object", file->path);
	return 0;
}

static int read_header(struct safetensors *file, char *error)
{
	uint64_t size;
	int r = safetensors_read_at(file, &size, sizeof(size), 0, error);
	if (r < 0)
		return r;
	if (memcmp(&size, "PK\3\4", 4) == 0) /* a zip archive, as torch.save() writes */
		return fail(error, -EBADMSG,
			    "%s: not a safetensors file, but one of torch.save(), it seems; in "
			    "Python, safetensors.torch.save_file(state_dict, path) writes one",
			    file->path);
	size = le64toh(size);
	if (size > SAFETENSORS_HEADER_MAX && size <= file->size - 8)
		return fail(error, -EBADMSG, "%s: a header of %llu bytes; at most %d are read",
			    file->path, (unsigned long long)size, SAFETENSORS_HEADER_MAX);
	if (size > file->size - 8)
		return fail(error, -EBADMSG,
			    "%s: not a safetensors file: a header of %llu bytes in a file of %llu",
			    file->path, (unsigned long long)size, (unsigned long long)file->size);
	char *text = malloc(size + 1);
	if (!text)
		return fail(error, -ENOMEM, "%s: out of memory", file->path);
	r = safetensors_read_at(file, text, size, 8, error);
	if (r == 0)
		r = safetensors_parse(file, text, size, 8, SAFETENSORS_VALUES_MAX, error);
	free(text);
	return r < 0 ? r : read_tensors(file, size, error);
}

int safetensors_open_file(const char *path, struct safetensors **ret_file, char *error)
{
	struct safetensors *file = calloc(1, sizeof(*file));
	if (!file)
		return fail(error, -ENOMEM, "%s: out of memory", path);
	file->fd = -1;
	file->path = strdup(path);
	int r = file->path ? open_file(file, error)
			   : fail(error, -ENOMEM, "%s: out of memory", path);
	if (r == 0)
		r = read_header(file, error);
	if (r < 0) {
		safetensors_close(file);
		return r;
	}
	*ret_file = file;
	return 0;
}

int safetensors_open(const char *path, struct safetensors **ret_file, char *error)
{
	return sharded_is(path) ? sharded_open(path, ret_file, error)
				: safetensors_open_file(path, ret_file, error);
}

void safetensors_close(struct safetensors *file)
{
	if (!file)
		return;
	sharded_free(file->sharded);
	if (file->fd >= 0)
		close(file->fd);
	free(file->path);
	json_decref(file->header);
	free(file->tensors);
	free(file->by_name);
	free(file);
}

size_t safetensors_count(const struct safetensors *file)
{
	return file->count;
}

const struct safetensors_tensor *safetensors_at(const struct safetensors *file, size_t index)
{
	return index < file->count ? &file->tensors[index] : NULL;
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name)
{
	const struct safetensors_tensor wanted = {.name = name}, *key = &wanted;
	const struct safetensors_tensor **found =
		bsearch(&key, file->by_name, file->count, sizeof(*file->by_name), by_name);
	return found ? *found : NULL;
}

int safetensors_read(const struct safetensors *file, const struct safetensors_tensor *tensor,
		     void *ret_data, char *error)
{
	return file->sharded
		       ? sharded_read(file, tensor, ret_data, error)
		       : safetensors_read_at(file, ret_data, tensor->size, tensor->offset, error);
}

const char *safetensors_metadata(const struct safetensors *file, const char *key)
{
	return json_string_value(json_object_get(file->metadata, key));
}

struct safetensors_entry *safetensors_entries(const struct safetensors *file, size_t *ret_count)
{
	struct safetensors_entry *entries =
		calloc(json_object_size(file->metadata) + 1, sizeof(*entries));
	const char *key;
	json_t *value;
	*ret_count = 0;
	if (!entries)
		return NULL;
	json_object_foreach((json_t *)file->metadata, key, value)
	{
		entries[(*ret_count)++] = (struct safetensors_entry){key, json_string_value(value)};
	}
	return entries;
}
