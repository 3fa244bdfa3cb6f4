/* Sharded checkpoints: what each rank writes and reads, the index, and joining (sharded.h). */
#include "format/base/system/atomic_file.h"
#include "trainer/checkpoint/checkpoint_tensors.h"
#include "trainer/checkpoint/sharded.h"
#include "trainer/device/params.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

int checkpoint_make_id(char *ret_id)
{
	uint64_t random[2];
	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return -EIO;
	snprintf(ret_id, CHECKPOINT_ID_MAX, "%016llx%016llx", (unsigned long long)random[0],
		 (unsigned long long)random[1]);
	return 0;
}

/* ---- writing ---- */

/* This rank's parts, in the order of the list, with a buffer for one of them. */
struct part_writer {
	struct checkpoint_list list;
	struct device_part *parts;
	float *values;
};

static const void *part_fill(void *user, size_t index)
{
	struct part_writer *writer = user;
	const struct checkpoint_source *source = &writer->list.sources[index];
	const struct device_part *part = &writer->parts[index];
	if (device_param_read_part(source->param, source->slot, part, writer->values))
		return NULL;
	return writer->values + part->first;
}

/* Reduces the list to what the rank writes. */
static void part_select(struct part_writer *writer, unsigned rank)
{
	struct checkpoint_list *list = &writer->list;
	size_t count = 0;
	for (size_t i = 0; i < list->count; i++) {
		struct checkpoint_source source = list->sources[i];
		struct device_part part = device_param_saved_part(source.param, source.slot, rank);
		if (!part.count)
			continue;
		list->sources[count] = source;
		list->tensors[count] = (struct safetensors_tensor){
			.name = list->sources[count].name.text,
			.type = SAFETENSORS_F32,
			.rank = 1,
			.shape = {part.count},
			.size = part.count * sizeof(float),
		};
		writer->parts[count++] = part;
	}
	list->count = count;
}

static int part_init(struct part_writer *writer, struct device_params *params, unsigned rank)
{
	int r = checkpoint_list_init(&writer->list, params, NULL);
	if (r < 0)
		return r;
	writer->parts = calloc(writer->list.count, sizeof(*writer->parts));
	writer->values = malloc(device_params_largest(params) * sizeof(float));
	if (!writer->parts || !writer->values)
		return -ENOMEM;
	part_select(writer, rank);
	return 0;
}

int checkpoint_save_part(const char *folder, struct device_params *params, const char *id,
			 uint64_t step, char *error)
{
	char path[CHECKPOINT_PATH_MAX], name[SHARDED_FILE_MAX], step_text[24];
	struct part_writer parts = {0};
	unsigned rank, ranks = device_params_ranks(params, &rank);
	sharded_file_name(rank, ranks, name);
	int r = snprintf(path, sizeof(path), "%s/%s", folder, name) < (int)sizeof(path)
			? part_init(&parts, params, rank)
			: -ENAMETOOLONG;
	snprintf(step_text, sizeof(step_text), "%llu", (unsigned long long)step);
	const struct safetensors_entry metadata[] = {{"trainer.checkpoint", id},
						     {"trainer.step", step_text}};
	struct safetensors_writer writer = {
		.tensors = parts.list.tensors,
		.count = parts.list.count,
		.metadata = metadata,
		.metadata_count = 2,
		.fill = part_fill,
		.user = &parts,
	};
	if (r < 0)
		checkpoint_fail(error, r, "%s/%s: cannot be written: %s", folder, name,
				strerror(-r));
	else if (parts.list.count)
		r = safetensors_write(path, &writer, error);
	checkpoint_list_deinit(&parts.list);
	free(parts.parts);
	free(parts.values);
	return r;
}

/* Lists which rank's file has which elements. */
static json_t *index_ranges(const struct checkpoint_source *source, unsigned ranks,
			    struct device_part *ret_whole)
{
	json_t *list = json_array();
	char name[SHARDED_FILE_MAX];
	for (unsigned rank = 0; rank < ranks; rank++) {
		struct device_part part =
			device_param_saved_part(source->param, source->slot, rank);
		*ret_whole = part;
		if (!part.count)
			continue;
		sharded_file_name(rank, ranks, name);
		json_t *range = json_pack("{s:s}", "file", name);
		if (part.slices > 1)
			json_object_set_new(range, "slice", json_integer(part.slice));
		json_object_set_new(range, "first", json_integer((json_int_t)part.first));
		json_object_set_new(range, "count", json_integer((json_int_t)part.count));
		json_array_append_new(list, range);
	}
	return list;
}

static json_t *index_entry(const struct checkpoint_source *source,
			   const struct safetensors_tensor *tensor, unsigned ranks)
{
	struct device_part whole = {0};
	json_t *shape = json_array();
	for (unsigned i = 0; i < tensor->rank; i++)
		json_array_append_new(shape, json_integer((json_int_t)tensor->shape[i]));
	json_t *entry = json_pack("{s:s, s:o}", "dtype", safetensors_type_name(tensor->type),
				  "shape", shape);
	json_t *ranges = index_ranges(source, ranks, &whole);
	if (device_param_spec(source->param)->kind == DEVICE_CONV_WEIGHT)
		json_object_set_new(entry, "layout", json_string("channels_last"));
	if (whole.slices > 1) {
		json_object_set_new(entry, "slices", json_integer(whole.slices));
		json_object_set_new(entry, "blocks", json_integer((json_int_t)whole.blocks));
	}
	json_object_set_new(entry, "ranges", ranges);
	return entry;
}

/* Returns the index as text, or NULL if a text is not UTF-8 or memory is short. */
static char *index_text(const struct checkpoint_list *list, unsigned ranks, const char *id,
			const struct safetensors_entry *metadata, size_t count)
{
	json_t *index = json_pack("{s:i, s:s}", "version", SHARDED_VERSION, "id", id);
	json_t *entries = json_object(), *tensors = json_object();
	int r = 0;
	for (size_t i = 0; i < count; i++)
		r |= json_object_set_new(entries, metadata[i].key, json_string(metadata[i].value));
	for (size_t i = 0; i < list->count; i++)
		r |= json_object_set_new(tensors, list->tensors[i].name,
					 index_entry(&list->sources[i], &list->tensors[i], ranks));
	r |= json_object_set_new(index, "metadata", entries);
	r |= json_object_set_new(index, "tensors", tensors);
	char *text = r ? NULL : json_dumps(index, JSON_COMPACT);
	json_decref(index);
	return text;
}

int checkpoint_write_index(const char *folder, struct device_params *params, const char *id,
			   const struct safetensors_entry *metadata, size_t metadata_count,
			   char *error)
{
	char path[CHECKPOINT_PATH_MAX], *text = NULL;
	struct checkpoint_list list = {0};
	struct safetensors *written;
	unsigned rank;
	int r = checkpoint_list_init(&list, params, NULL);
	if (snprintf(path, sizeof(path), "%s/" SHARDED_INDEX, folder) >= (int)sizeof(path))
		r = -ENAMETOOLONG;
	if (r == 0) {
		text = index_text(&list, device_params_ranks(params, &rank), id, metadata,
				  metadata_count);
		r = text ? atomic_file_put(path, text, strlen(text)) : -EINVAL;
	}
	checkpoint_list_deinit(&list);
	free(text);
	if (r < 0)
		return checkpoint_fail(error, r, "%s/" SHARDED_INDEX ": cannot be written: %s",
				       folder, strerror(-r));
	/* finds files that this machine does not see */
	r = safetensors_open(folder, &written, error);
	if (r == 0)
		safetensors_close(written);
	return r;
}

/* ---- reading ---- */

bool checkpoint_is_sharded(const struct checkpoint *checkpoint)
{
	return sharded_id(checkpoint->file);
}

const char *checkpoint_id(const struct checkpoint *checkpoint)
{
	return sharded_id(checkpoint->file);
}

static int restore_part(const struct safetensors *source, const char *path,
			const struct checkpoint_source *into,
			const struct safetensors_tensor *tensor, float *values, char *error)
{
	struct device_part part = device_param_needed_part(into->param, into->slot);
	bool convolution = device_param_spec(into->param)->kind == DEVICE_CONV_WEIGHT;
	if (sharded_is_channels_last(source, tensor) != convolution)
		return checkpoint_fail(error, -EBADMSG,
				       "%s: tensor %s: expected the layout \"channels_last\" of "
				       "convolutions, and of no others; resume from the file that "
				       "trainer --join makes",
				       path, tensor->name);
	int r = sharded_read_part(source, tensor, &part, values, error);
	if (r < 0)
		return r;
	r = device_param_write_part(into->param, into->slot, values);
	return r < 0 ? checkpoint_fail(error, r, "%s: tensor %s: %s", path, tensor->name,
				       strerror(-r))
		     : 0;
}

static int restore_list(const struct safetensors *source, const char *path,
			const struct device_params *params, const struct checkpoint_list *list,
			bool leads, float *values, char *error)
{
	for (size_t i = 0; i < list->count; i++) {
		const struct checkpoint_source *into = &list->sources[i];
		const struct safetensors_tensor *tensor = checkpoint_find_tensor(
			source, path, params, into->param, into->slot, error);
		if (!tensor)
			return -EBADMSG;
		if (!leads && !device_param_is_divided(into->param, into->slot))
			continue;
		int r = restore_part(source, path, into, tensor, values, error);
		if (r < 0)
			return r;
	}
	return 0;
}

static int restore_from(const struct safetensors *source, const char *path,
			struct device_params *params, bool leads, char *error)
{
	struct checkpoint_list list = {0};
	float *values = malloc(device_params_largest(params) * sizeof(float));
	int r = values ? checkpoint_list_init(&list, params, NULL) : -ENOMEM;
	r = r < 0 ? checkpoint_fail(error, r, "out of memory")
		  : restore_list(source, path, params, &list, leads, values, error);
	checkpoint_list_deinit(&list);
	free(values);
	return r;
}

int checkpoint_restore_lead(const struct checkpoint *checkpoint, struct device_params *params,
			    char *error)
{
	return restore_from(checkpoint->file, checkpoint->path, params, true, error);
}

int checkpoint_restore_part(const char *path, const char *id, struct device_params *params,
			    char *error)
{
	struct safetensors *source;
	if (!sharded_is(path))
		return checkpoint_fail(
			error, -ENOENT,
			"%s: is not a folder on this machine, but on that of rank 0: "
			"all machines need to share it; or make one file of it with "
			"trainer --join there, and resume from that",
			path);
	int r = sharded_open(path, &source, error);
	if (r < 0)
		return r;
	if (strcmp(sharded_id(source), id) == 0)
		r = restore_from(source, path, params, false, error);
	else
		r = checkpoint_fail(error, -ESTALE,
				    "%s: is another checkpoint than that which rank 0 reads: start "
				    "again",
				    path);
	safetensors_close(source);
	return r;
}

/* ---- joining ---- */

struct joining {
	const struct safetensors *source;
	void *values;
	char *error;
	int r;
};

static const void *join_fill(void *user, size_t index)
{
	struct joining *joining = user;
	joining->r = safetensors_read(joining->source, safetensors_at(joining->source, index),
				      joining->values, joining->error);
	return joining->r < 0 ? NULL : joining->values;
}

static int join_to(const struct safetensors *source, const char *path, char *error)
{
	char problem[SAFETENSORS_ERROR_MAX];
	size_t count = safetensors_count(source), entries;
	uint64_t largest = 0;
	struct safetensors_entry *metadata = safetensors_entries(source, &entries);
	struct safetensors_tensor *tensors = calloc(count, sizeof(*tensors));
	for (size_t i = 0; i < count && tensors; i++) {
		tensors[i] = *safetensors_at(source, i);
		largest = tensors[i].size > largest ? tensors[i].size : largest;
	}
	struct joining joining = {source, malloc(largest), problem, 0};
	struct safetensors_writer writer = {
		.tensors = tensors,
		.count = count,
		.metadata = metadata,
		.metadata_count = entries,
		.fill = join_fill,
		.user = &joining,
	};
	int r = metadata && tensors && joining.values
			? safetensors_write(path, &writer, error)
			: checkpoint_fail(error, -ENOMEM, "out of memory");
	/* what could not be read is the cause */
	if (joining.r < 0)
		r = checkpoint_fail(error, joining.r, "%s", problem);
	free(metadata);
	free(tensors);
	free(joining.values);
	return r;
}

int checkpoint_join(const char *folder, const char *path, char *error)
{
	struct safetensors *source;
	if (!sharded_is(folder))
		return checkpoint_fail(error, -ENOTDIR,
				       "%s: not the folder of a sharded checkpoint, such as "
				       "checkpoint-00001000.sharded",
				       folder);
	int r = sharded_open(folder, &source, error);
	if (r < 0)
		return r;
	r = join_to(source, path, error);
	safetensors_close(source);
	return r;
}
