#include "trainer/checkpoint/sharded.h"
#include "format/base/system/io.h"
#include "trainer/checkpoint/checkpoint_tensors.h"
#include "trainer/checkpoint/safetensors_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define fail safetensors_fail
#define REMEDY                                                                                     \
	": the checkpoint is incomplete or damaged; copy the folder again, or use another "        \
	"checkpoint"

struct sharded_range {
	uint32_t file, slice;
	uint64_t first, count; /* elements of the slice */
	uint64_t offset;       /* of the first element in the file, in bytes */
};

struct sharded_tensor {
	uint32_t slices;
	uint64_t blocks, run; /* run: elements of a slice in each block */
	bool channels_last;
	struct sharded_range *ranges; /* [count], sorted by slice and position */
	size_t count;
};

struct sharded_file {
	const char *name;
	struct safetensors *file;
	size_t ranges;
	const struct sharded_tensor *last; /* the last one with a range in the file */
};

struct sharded {
	char *folder;
	const char *id;
	struct sharded_tensor *tensors; /* of the same index in safetensors.tensors */
	size_t tensor_count;
	struct sharded_file *files;
	size_t file_count, file_capacity;
	uint64_t header_bytes, header_values; /* of all files */
};

bool sharded_is(const char *path)
{
	struct stat status;
	return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

const char *sharded_id(const struct safetensors *file)
{
	return file->sharded ? file->sharded->id : NULL;
}

bool sharded_is_channels_last(const struct safetensors *file,
			      const struct safetensors_tensor *tensor)
{
	return file->sharded->tensors[tensor - file->tensors].channels_last;
}

void sharded_file_name(unsigned rank, unsigned ranks, char *ret_name)
{
	snprintf(ret_name, SHARDED_FILE_MAX, "checkpoint-%05u-of-%05u.safetensors", rank + 1,
		 ranks);
}

void sharded_free(struct sharded *sharded)
{
	if (!sharded)
		return;
	for (size_t i = 0; i < sharded->file_count; i++)
		safetensors_close(sharded->files[i].file);
	for (size_t i = 0; i < sharded->tensor_count; i++)
		free(sharded->tensors[i].ranges);
	free(sharded->files);
	free(sharded->tensors);
	free(sharded->folder);
	free(sharded);
}

/* ---- files ---- */

/* Names of files in the folder itself. */
static bool name_is_plain(const char *name)
{
	return name && *name && *name != '.' && !strchr(name, '/') &&
	       strlen(name) < SHARDED_FILE_MAX && !safetensors_has_control(name);
}

/* Files of another step or run are refused, even if their tensors have the right lengths. */
static int check_file(const struct safetensors *index, const struct safetensors *file, char *error)
{
	const char *id = safetensors_metadata(file, "trainer.checkpoint");
	const char *step = safetensors_metadata(file, "trainer.step");
	const char *own = safetensors_metadata(index, "trainer.step");
	if (!id || !step)
		return fail(error, -EBADMSG,
			    "%s: lacks metadata on the checkpoint that it belongs to" REMEDY,
			    file->path);
	if (strcmp(step, own) != 0)
		return fail(error, -EBADMSG,
			    "%s: is of step %.20s, but the index of step %.20s" REMEDY, file->path,
			    step, own);
	if (strcmp(id, index->sharded->id) != 0)
		return fail(error, -EBADMSG,
			    "%s: belongs to another checkpoint of step %.20s" REMEDY, file->path,
			    own);
	return 0;
}

/*
 * Bounds the memory of all headers together: the same file may come under many names. Headers that
 * ranks write are less than twice as long as the index if they have more than a few tensors.
 */
static int count_header(const struct safetensors *index, const struct safetensors *file,
			char *error)
{
	struct sharded *sharded = index->sharded;
	sharded->header_bytes += file->header_bytes;
	sharded->header_values += file->header_values;
	if (sharded->header_bytes <= 8 * index->header_bytes + (1 << 20) &&
	    sharded->header_values <= 4 * index->header_values + (1 << 16))
		return 0;
	return fail(error, -EBADMSG,
		    "%s: the headers of its files, of %llu bytes and %llu values, are too long for "
		    "an index of %llu and %llu",
		    index->path, (unsigned long long)sharded->header_bytes,
		    (unsigned long long)sharded->header_values,
		    (unsigned long long)index->header_bytes,
		    (unsigned long long)index->header_values);
}

static int open_part(const struct safetensors *index, const char *name,
		     struct safetensors **ret_file, char *error)
{
	char *path = NULL, problem[SAFETENSORS_ERROR_MAX];
	if (asprintf(&path, "%s/%s", index->sharded->folder, name) < 0)
		return fail(error, -ENOMEM, "%s: out of memory", index->path);
	int r = safetensors_open_file(path, ret_file, problem);
	free(path);
	if (r == -ENOENT)
		return fail(error, -EBADMSG, "%.350s" REMEDY, problem);
	if (r < 0)
		return fail(error, r, "%s", problem);
	r = count_header(index, *ret_file, error);
	if (r == 0)
		r = check_file(index, *ret_file, error);
	if (r < 0) {
		safetensors_close(*ret_file);
		*ret_file = NULL;
	}
	return r;
}

/* Finds a file by name, or opens it. */
static int find_file(struct safetensors *index, const char *name, uint32_t *ret_file, char *error)
{
	struct sharded *sharded = index->sharded;
	for (size_t i = 0; i < sharded->file_count; i++) {
		if (strcmp(sharded->files[i].name, name) == 0) {
			*ret_file = (uint32_t)i;
			return 0;
		}
	}
	if (sharded->file_count == sharded->file_capacity) {
		size_t capacity = sharded->file_capacity ? 2 * sharded->file_capacity : 16;
		struct sharded_file *files = realloc(sharded->files, capacity * sizeof(*files));
		if (!files)
			return fail(error, -ENOMEM, "%s: out of memory", index->path);
		sharded->files = files;
		sharded->file_capacity = capacity;
	}
	struct sharded_file *file = &sharded->files[sharded->file_count];
	*file = (struct sharded_file){.name = name};
	int r = open_part(index, name, &file->file, error);
	if (r < 0)
		return r;
	*ret_file = (uint32_t)sharded->file_count++;
	return 0;
}

/* Finds a range in its file. */
static int find_range(struct safetensors *index, const struct safetensors_tensor *tensor,
		      const struct sharded_tensor *parts, struct sharded_range *range, char *error)
{
	struct sharded_file *file = &index->sharded->files[range->file];
	const struct safetensors_tensor *found = safetensors_find(file->file, tensor->name);
	if (!found)
		return fail(error, -EBADMSG, "%s: tensor %s is missing" REMEDY, file->file->path,
			    tensor->name);
	if (found->type != SAFETENSORS_F32)
		return fail(error, -EBADMSG, "%s: tensor %s is %s, expected F32" REMEDY,
			    file->file->path, tensor->name, safetensors_type_name(found->type));
	if (found->rank != 1 || found->shape[0] != range->count)
		return fail(error, -EBADMSG,
			    "%s: tensor %s has %llu elements, but the index says %llu" REMEDY,
			    file->file->path, tensor->name,
			    (unsigned long long)(found->size / sizeof(float)),
			    (unsigned long long)range->count);
	if (file->last == parts)
		return fail(error, -EBADMSG, "%s: tensor %s: %s is named twice" REMEDY, index->path,
			    tensor->name, file->name);
	file->last = parts;
	file->ranges++;
	range->offset = found->offset;
	return 0;
}

/* Refuses files with tensors that the index does not name. */
static int check_unknown(const struct safetensors *index, char *error)
{
	for (size_t i = 0; i < index->sharded->file_count; i++) {
		const struct sharded_file *file = &index->sharded->files[i];
		if (file->ranges != safetensors_count(file->file))
			return fail(error, -EBADMSG,
				    "%s: has %zu tensors, but the index names %zu of them" REMEDY,
				    file->file->path, safetensors_count(file->file), file->ranges);
	}
	return 0;
}

/* ---- index ---- */

/* Reads an optional number. */
static bool read_number(const json_t *json, const char *key, uint64_t otherwise, uint64_t min,
			uint64_t max, uint64_t *ret_value)
{
	const json_t *value = json_object_get(json, key);
	*ret_value = otherwise;
	return !value ||
	       (safetensors_read_count(value, ret_value) && *ret_value >= min && *ret_value <= max);
}

static int read_range(struct safetensors *index, const struct safetensors_tensor *tensor,
		      const struct sharded_tensor *parts, const json_t *json,
		      struct sharded_range *range, char *error)
{
	const char *name = json_string_value(json_object_get(json, "file"));
	uint64_t slice, length = parts->blocks * parts->run;
	if (!json_is_object(json) || !name_is_plain(name))
		return fail(error, -EBADMSG,
			    "%s: tensor %s: a range does not name a file in the folder",
			    index->path, tensor->name);
	if (!read_number(json, "slice", 0, 0, parts->slices - 1, &slice) ||
	    !safetensors_read_count(json_object_get(json, "first"), &range->first) ||
	    !safetensors_read_count(json_object_get(json, "count"), &range->count))
		return fail(
			error, -EBADMSG,
			"%s: tensor %s: the range in %s needs first, count and a slice below %u",
			index->path, tensor->name, name, parts->slices);
	if (range->first > length || range->count > length - range->first)
		return fail(error, -EBADMSG,
			    "%s: tensor %s: the range in %s ends after the last of %llu elements",
			    index->path, tensor->name, name, (unsigned long long)length);
	range->slice = (uint32_t)slice;
	int r = find_file(index, name, &range->file, error);
	return r < 0 ? r : find_range(index, tensor, parts, range, error);
}

static int by_slice(const void *a, const void *b)
{
	const struct sharded_range *x = a, *y = b;
	if (x->slice != y->slice)
		return x->slice < y->slice ? -1 : 1;
	if (x->first != y->first)
		return x->first < y->first ? -1 : 1;
	return x->count < y->count ? -1 : x->count > y->count;
}

/* Sorts the ranges and checks that they have each element once. */
static int check_ranges(const struct safetensors *index, const struct safetensors_tensor *tensor,
			const struct sharded_tensor *parts, char *error)
{
	uint64_t slice = 0, next = 0, length = parts->blocks * parts->run;
	qsort(parts->ranges, parts->count, sizeof(*parts->ranges), by_slice);
	for (size_t i = 0; i <= parts->count; i++) {
		const struct sharded_range *range = &parts->ranges[i];
		bool past = i == parts->count;
		if (next == length && (past ? slice + 1 < parts->slices : range->slice > slice)) {
			slice++;
			next = 0;
		}
		if (past && slice + 1 == parts->slices && next == length)
			return 0;
		if (past || range->slice > slice || range->first > next)
			return fail(
				error, -EBADMSG,
				"%s: tensor %s: element %llu of slice %llu is in no file" REMEDY,
				index->path, tensor->name, (unsigned long long)next,
				(unsigned long long)slice);
		if (range->first < next)
			return fail(
				error, -EBADMSG,
				"%s: tensor %s: element %llu of slice %llu is in two files, one "
				"of them %s" REMEDY,
				index->path, tensor->name, (unsigned long long)range->first,
				(unsigned long long)slice, index->sharded->files[range->file].name);
		next += range->count;
	}
	return 0;
}

static int read_ranges(struct safetensors *index, const struct safetensors_tensor *tensor,
		       struct sharded_tensor *parts, const json_t *json, char *error)
{
	const json_t *ranges = json_object_get(json, "ranges");
	if (!json_array_size(ranges))
		return fail(error, -EBADMSG, "%s: tensor %s: ranges is not a list with entries",
			    index->path, tensor->name);
	parts->count = json_array_size(ranges);
	parts->ranges = calloc(parts->count, sizeof(*parts->ranges));
	if (!parts->ranges)
		return fail(error, -ENOMEM, "%s: out of memory", index->path);
	for (size_t i = 0; i < parts->count; i++) {
		int r = read_range(index, tensor, parts, json_array_get(ranges, i),
				   &parts->ranges[i], error);
		if (r < 0)
			return r;
	}
	return check_ranges(index, tensor, parts, error);
}

static int read_entry(struct safetensors *index, const char *name, const json_t *json,
		      struct safetensors_tensor *tensor, struct sharded_tensor *parts, char *error)
{
	if (safetensors_has_control(name) || !json_is_object(json))
		return fail(error, -EBADMSG,
			    "%s: tensor %s: expected an object, under a name without control "
			    "characters",
			    index->path, safetensors_has_control(name) ? "?" : name);
	int r = safetensors_read_shape(index, name, json, tensor, error);
	if (r < 0)
		return r;
	if (tensor->type != SAFETENSORS_F32)
		return fail(error, -EBADMSG, "%s: tensor %s is %s, expected F32", index->path, name,
			    safetensors_type_name(tensor->type));
	const json_t *layout = json_object_get(json, "layout");
	parts->channels_last = layout;
	if (layout && (tensor->rank != 4 || !json_is_string(layout) ||
		       strcmp(json_string_value(layout), "channels_last") != 0))
		return fail(error, -EBADMSG,
			    "%s: tensor %s: layout is not \"channels_last\" of four dimensions",
			    index->path, name);
	uint64_t elements = tensor->size / sizeof(float), slices = 1, blocks = 1;
	if (!elements || !read_number(json, "slices", 1, 1, SHARDED_SLICES_MAX, &slices) ||
	    !read_number(json, "blocks", 1, 1, elements, &blocks) || elements % slices ||
	    elements / slices % blocks)
		return fail(error, -EBADMSG,
			    "%s: tensor %s: its %llu elements do not divide by slices and blocks",
			    index->path, name, (unsigned long long)elements);
	parts->slices = (uint32_t)slices;
	parts->blocks = blocks;
	parts->run = elements / slices / blocks;
	return read_ranges(index, tensor, parts, json, error);
}

static int read_entries(struct safetensors *index, char *error)
{
	const json_t *tensors = json_object_get(index->header, "tensors");
	struct sharded *sharded = index->sharded;
	size_t count = json_object_size(tensors);
	if (!count)
		return fail(error, -EBADMSG, "%s: tensors is not an object with entries",
			    index->path);
	index->tensors = calloc(count, sizeof(*index->tensors));
	sharded->tensors = calloc(count, sizeof(*sharded->tensors));
	if (!index->tensors || !sharded->tensors)
		return fail(error, -ENOMEM, "%s: out of memory", index->path);
	const char *name;
	json_t *json;
	json_object_foreach((json_t *)tensors, name, json)
	{
		size_t i = index->count++;
		sharded->tensor_count++;
		int r = read_entry(index, name, json, &index->tensors[i], &sharded->tensors[i],
				   error);
		if (r < 0)
			return r;
	}
	int r = check_unknown(index, error);
	return r < 0 ? r : safetensors_sort_names(index, error);
}

static int check_index(struct safetensors *index, char *error)
{
	uint64_t version = 0;
	if (!safetensors_read_count(json_object_get(index->header, "version"), &version) ||
	    version != SHARDED_VERSION)
		return fail(error, -EBADMSG, "%s: its version is not %d, which this trainer reads",
			    index->path, SHARDED_VERSION);
	index->metadata = json_object_get(index->header, "metadata");
	int r = safetensors_check_metadata(index, "metadata", error);
	if (r < 0)
		return r;
	const char *id = json_string_value(json_object_get(index->header, "id"));
	if (!id || !*id || strlen(id) >= SHARDED_ID_MAX ||
	    !safetensors_metadata(index, "trainer.step"))
		return fail(error, -EBADMSG,
			    "%s: needs an id of 1 to %d bytes and metadata "
			    "trainer.step",
			    index->path, SHARDED_ID_MAX - 1);
	index->sharded->id = id;
	return read_entries(index, error);
}

static int read_index(struct safetensors *index, int fd, char *error)
{
	struct stat status;
	if (fstat(fd, &status))
		return fail(error, -errno, "%s: %s", index->path, strerror(errno));
	if (status.st_size > SHARDED_INDEX_MAX)
		return fail(error, -EBADMSG, "%s: %lld bytes; at most %d are read", index->path,
			    (long long)status.st_size, SHARDED_INDEX_MAX);
	size_t size = (size_t)status.st_size;
	char *text = malloc(size + 1);
	if (!text)
		return fail(error, -ENOMEM, "%s: out of memory", index->path);
	int64_t n = io_read_at(fd, text, size, 0);
	int r = n < 0 ? fail(error, (int)n, "%s: %s", index->path, strerror((int)-n))
		      : safetensors_parse(index, text, (uint64_t)n, 0, SHARDED_VALUES_MAX, error);
	free(text);
	return r < 0 ? r : check_index(index, error);
}

static int open_index(struct safetensors *index, const char *folder, char *error)
{
	int fd = io_open_regular(index->path);
	if (fd == -ENOENT)
		return fail(error, -EBADMSG,
			    "%s: a folder without " SHARDED_INDEX
			    ", thus not a complete sharded checkpoint",
			    folder);
	if (fd < 0)
		return fail(error, fd, "%s: %s", index->path,
			    fd == -EBADF ? "not a regular file" : strerror(-fd));
	int r = read_index(index, fd, error);
	close(fd);
	return r;
}

int sharded_open(const char *folder, struct safetensors **ret_file, char *error)
{
	struct safetensors *index = calloc(1, sizeof(*index));
	struct sharded *sharded = calloc(1, sizeof(*sharded));
	if (!index || !sharded) {
		free(index);
		free(sharded);
		return fail(error, -ENOMEM, "%s: out of memory", folder);
	}
	index->fd = -1;
	index->sharded = sharded;
	sharded->folder = strdup(folder);
	if (asprintf(&index->path, "%s/" SHARDED_INDEX, folder) < 0)
		index->path = NULL;
	int r = sharded->folder && index->path ? open_index(index, folder, error)
					       : fail(error, -ENOMEM, "%s: out of memory", folder);
	if (r < 0) {
		safetensors_close(index);
		return r;
	}
	*ret_file = index;
	return 0;
}

/* ---- reading ---- */

/* The range with this element. */
static const struct sharded_range *range_at(const struct sharded_tensor *parts, uint32_t slice,
					    uint64_t element)
{
	size_t low = 0, high = parts->count;
	while (low < high) {
		const struct sharded_range *range = &parts->ranges[(low + high) / 2];
		if (range->slice < slice ||
		    (range->slice == slice && range->first + range->count <= element))
			low = (low + high) / 2 + 1;
		else
			high = (low + high) / 2;
	}
	return &parts->ranges[low];
}

/* Reads elements of a slice. */
static int read_slice(const struct sharded *sharded, const struct sharded_tensor *parts,
		      uint32_t slice, uint64_t first, uint64_t count, float *ret_values,
		      char *error)
{
	while (count) {
		const struct sharded_range *range = range_at(parts, slice, first);
		uint64_t skipped = first - range->first, n = range->count - skipped;
		n = n < count ? n : count;
		int r = safetensors_read_at(sharded->files[range->file].file, ret_values,
					    n * sizeof(float),
					    range->offset + skipped * sizeof(float), error);
		if (r < 0)
			return r;
		ret_values += n;
		first += n;
		count -= n;
	}
	return 0;
}

/* Reads elements of the tensor. */
static int read_run(const struct sharded *sharded, const struct sharded_tensor *parts,
		    uint64_t first, uint64_t count, float *ret_values, char *error)
{
	while (count) {
		uint64_t run = first / parts->run, at = first % parts->run, n = parts->run - at;
		n = n < count ? n : count;
		int r = read_slice(sharded, parts, (uint32_t)(run % parts->slices),
				   run / parts->slices * parts->run + at, n, ret_values, error);
		if (r < 0)
			return r;
		ret_values += n;
		first += n;
		count -= n;
	}
	return 0;
}

int sharded_read_part(const struct safetensors *file, const struct safetensors_tensor *tensor,
		      const struct device_part *part, float *ret_values, char *error)
{
	const struct sharded_tensor *parts = &file->sharded->tensors[tensor - file->tensors];
	uint64_t run = tensor->size / sizeof(float) / part->slices / part->blocks;
	uint64_t end = part->first + part->count;
	if (part->slices == parts->slices && part->blocks == parts->blocks)
		return read_slice(file->sharded, parts, part->slice, part->first, part->count,
				  ret_values + part->first, error);
	for (uint64_t i = part->first; i < end;) {
		uint64_t at = i % run, n = run - at < end - i ? run - at : end - i;
		uint64_t first = (i / run * part->slices + part->slice) * run + at;
		int r = read_run(file->sharded, parts, first, n, ret_values + i, error);
		if (r < 0)
			return r;
		i += n;
	}
	return 0;
}

int sharded_read(const struct safetensors *file, const struct safetensors_tensor *tensor,
		 void *ret_data, char *error)
{
	const struct sharded_tensor *parts = &file->sharded->tensors[tensor - file->tensors];
	const struct device_part whole = {
		.slices = 1, .blocks = 1, .count = tensor->size / sizeof(float)};
	if (!parts->channels_last)
		return sharded_read_part(file, tensor, &whole, ret_data, error);
	float *host = malloc(tensor->size);
	if (!host)
		return fail(error, -ENOMEM, "%s: out of memory", file->path);
	int r = sharded_read_part(file, tensor, &whole, host, error);
	if (r == 0)
		checkpoint_transpose(tensor->shape[0], tensor->shape[2] * tensor->shape[3],
				     tensor->shape[1], host, ret_data);
	free(host);
	return r;
}
