#include "trainer/checkpoint/checkpoint_tensors.h"
#include "format/base/half.h"
#include "trainer/checkpoint/name_map.h"
#include "trainer/checkpoint/weights.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char STATE[] = "optimizer.", AVERAGE[] = "ema."; /* name prefixes */

/* ---- layouts: [K][R][S][C] on the host, [K][C][R][S] in files ---- */

void checkpoint_transpose(size_t k, size_t rows, size_t columns, const float *from, float *to)
{
	for (size_t i = 0; i < k; i++)
		for (size_t j = 0; j < rows; j++)
			for (size_t l = 0; l < columns; l++)
				to[(i * columns + l) * rows + j] =
					from[(i * rows + j) * columns + l];
}

static void to_file(const struct device_param_spec *spec, const float *host, float *file)
{
	size_t rs = (size_t)spec->shape[1] * spec->shape[2];
	checkpoint_transpose(spec->shape[0], rs, spec->shape[3], host, file);
}

static void to_host(const struct device_param_spec *spec, const float *file, float *host)
{
	size_t rs = (size_t)spec->shape[1] * spec->shape[2];
	checkpoint_transpose(spec->shape[0], spec->shape[3], rs, file, host);
}

static unsigned file_shape(const struct device_param_spec *spec, uint64_t ret_shape[4])
{
	static const unsigned order[] = {0, 3, 1, 2};
	bool convolution = spec->kind == DEVICE_CONV_WEIGHT;
	unsigned rank = 0;
	/* files have a leading dimension of 1, the batch, as in timm */
	if (spec->kind == DEVICE_EMBEDDING)
		ret_shape[rank++] = 1;
	for (unsigned i = 0; i < 2 && rank && spec->shape[i]; i++)
		ret_shape[rank++] = spec->shape[i];
	if (rank)
		return rank;
	for (; rank < 4 && spec->shape[rank]; rank++)
		ret_shape[rank] = spec->shape[convolution ? order[rank] : rank];
	return rank;
}

/* Returns the name in files of a parameter's slot. */
static struct checkpoint_name name_of(const struct device_params *params,
				      const struct device_param *param, enum device_slot slot)
{
	const char *name = device_param_spec(param)->name;
	struct checkpoint_name made;
	const char *average = slot == DEVICE_EMA ? AVERAGE : NULL;
#define PREFIX(constant, name, prefix, ...)                                                        \
	if (slot == DEVICE_##constant)                                                             \
		average = prefix;
	DEVICE_AVERAGES(PREFIX)
#undef PREFIX
	if (slot == DEVICE_VALUE)
		snprintf(made.text, sizeof(made.text), "%s", name);
	else if (average)
		snprintf(made.text, sizeof(made.text), "%s%s", average, name);
	else
		snprintf(made.text, sizeof(made.text), "%s%s.%s", STATE,
			 device_params_optimizer(params)->state[slot - DEVICE_STATE], name);
	return made;
}

bool checkpoint_has_slot(const struct device_param *param, enum device_slot slot)
{
	return device_slot_lasts(slot) && device_param_has(param, slot);
}

/* ---- writing ---- */

/* Buffers for the largest tensor, in file and device layout. */
struct staging {
	float *file, *host;
};

static int staging_init(struct staging *staging, const struct device_params *params)
{
	size_t bytes = device_params_largest(params) * sizeof(float);
	*staging = (struct staging){malloc(bytes), malloc(bytes)};
	return staging->file && staging->host ? 0 : -ENOMEM;
}

static void staging_deinit(struct staging *staging)
{
	free(staging->file);
	free(staging->host);
}

/* A list with buffers for its tensors. */
struct saving {
	struct checkpoint_list list;
	struct staging staging;
};

static const void *fill(void *user, size_t index)
{
	struct saving *saving = user;
	const struct checkpoint_source *source = &saving->list.sources[index];
	const struct device_param_spec *spec = device_param_spec(source->param);
	if (device_param_read(source->param, source->slot, saving->staging.host))
		return NULL;
	if (spec->kind != DEVICE_CONV_WEIGHT)
		return saving->staging.host;
	to_file(spec, saving->staging.host, saving->staging.file);
	return saving->staging.file;
}

static void list_add(struct checkpoint_list *list, struct device_param *param,
		     enum device_slot slot, struct checkpoint_name name)
{
	struct checkpoint_source *source = &list->sources[list->count];
	struct safetensors_tensor *tensor = &list->tensors[list->count++];
	*source = (struct checkpoint_source){param, slot, name};
	tensor->name = source->name.text;
	tensor->type = SAFETENSORS_F32;
	tensor->size = device_param_elements(param) * sizeof(float);
	tensor->rank = file_shape(device_param_spec(param), tensor->shape);
}

int checkpoint_list_init(struct checkpoint_list *list, const struct device_params *params,
			 const enum device_slot *only)
{
	size_t tensors = device_params_count(params) * DEVICE_SLOTS;
	*list = (struct checkpoint_list){
		.sources = calloc(tensors, sizeof(*list->sources)),
		.tensors = calloc(tensors, sizeof(*list->tensors)),
	};
	if (!list->sources || !list->tensors) {
		checkpoint_list_deinit(list);
		return -ENOMEM;
	}
	for (enum device_slot slot = 0; slot < DEVICE_SLOTS; slot++) {
		for (size_t i = 0; i < device_params_count(params); i++) {
			struct device_param *param = device_params_at(params, i);
			if (only ? slot == *only : checkpoint_has_slot(param, slot))
				list_add(list, param, slot,
					 name_of(params, param, only ? DEVICE_VALUE : slot));
		}
	}
	return 0;
}

void checkpoint_list_deinit(struct checkpoint_list *list)
{
	free(list->sources);
	free(list->tensors);
	*list = (struct checkpoint_list){0};
}

int checkpoint_write_tensors(const char *path, struct device_params *params,
			     const enum device_slot *only, const struct safetensors_entry *metadata,
			     size_t metadata_count, char *error)
{
	struct saving saving;
	int r = staging_init(&saving.staging, params);
	if (r == 0)
		r = checkpoint_list_init(&saving.list, params, only);
	if (r < 0) {
		staging_deinit(&saving.staging);
		return checkpoint_fail(error, r, "%s: cannot be written: %s", path, strerror(-r));
	}
	struct safetensors_writer writer = {
		.tensors = saving.list.tensors,
		.count = saving.list.count,
		.metadata = metadata,
		.metadata_count = metadata_count,
		.fill = fill,
		.user = &saving,
	};
	r = safetensors_write(path, &writer, error);
	checkpoint_list_deinit(&saving.list);
	staging_deinit(&saving.staging);
	return r;
}

/* Formats a normalisation as data.mean and data.std are written. */
static const char *colour_text(const double *value, char *text)
{
	snprintf(text, CHECKPOINT_COLOUR_TEXT, "%.9g, %.9g, %.9g", value[0], value[1], value[2]);
	return text;
}

size_t checkpoint_describe(const struct checkpoint_about *about,
			   struct checkpoint_metadata *metadata)
{
	struct safetensors_entry *entry = metadata->entries;
	*entry++ = (struct safetensors_entry){"format", "pt"};
	if (about->evaluation)
		*entry++ = (struct safetensors_entry){"trainer.evaluation", about->evaluation};
	if (about->mean)
		*entry++ = (struct safetensors_entry){"trainer.mean",
						      colour_text(about->mean, metadata->mean)};
	if (about->std)
		*entry++ = (struct safetensors_entry){"trainer.std",
						      colour_text(about->std, metadata->std)};
	if (about->class_names)
		*entry++ = (struct safetensors_entry){"trainer.class_names", about->class_names};
	return (size_t)(entry - metadata->entries);
}

int checkpoint_export(const char *path, struct device_params *params, enum device_slot slot,
		      const struct checkpoint_about *about, char *error)
{
	struct checkpoint_metadata metadata;
	size_t count = checkpoint_describe(about, &metadata);
	return checkpoint_write_tensors(path, params, &slot, metadata.entries, count, error);
}

/* ---- reading ---- */

int checkpoint_read_elements(const struct safetensors *source,
			     const struct safetensors_tensor *tensor, size_t count, void *narrow,
			     float *ret_values, char *error)
{
	bool wide = tensor->type == SAFETENSORS_F32;
	int r = safetensors_read(source, tensor, wide ? ret_values : narrow, error);
	const uint16_t *bits = narrow;
	if (r < 0 || wide)
		return r;
	for (size_t i = 0; i < count; i++)
		ret_values[i] = tensor->type == SAFETENSORS_BF16 ? bfloat_to_float(bits[i])
								 : half_to_float(bits[i]);
	return 0;
}

int checkpoint_check_finite(const char *path, const struct safetensors_tensor *tensor,
			    const float *values, size_t count, char *error)
{
	for (size_t i = 0; i < count; i++)
		if (!isfinite(values[i]))
			return checkpoint_fail(error, -EBADMSG,
					       "%s: tensor %s has a value that is not finite", path,
					       tensor->name);
	return 0;
}

/* A shape as text, such as "[64, 3, 7, 7]". */
struct shape_text {
	char text[24 * SAFETENSORS_RANK_MAX];
};
static struct shape_text shape_text(const uint64_t *shape, unsigned rank)
{
	struct shape_text made;
	int length = snprintf(made.text, sizeof(made.text), "[");
	for (unsigned i = 0; i < rank; i++)
		length += snprintf(made.text + length, sizeof(made.text) - (size_t)length, "%s%llu",
				   i ? ", " : "", (unsigned long long)shape[i]);
	snprintf(made.text + length, sizeof(made.text) - (size_t)length, "]");
	return made;
}

/* Final part of errors about weights of another model. */
static const char another_network[] =
	": it was probably trained with another model.name, model.depth, model.width or model.stem";

static int fail_shape(const char *path, const struct safetensors_tensor *tensor,
		      const struct device_param_spec *spec, char *error)
{
	uint64_t shape[4];
	unsigned rank = file_shape(spec, shape);
	return checkpoint_fail(error, -EBADMSG,
			       "%s: tensor %s has shape %s, but the model needs %s%s", path,
			       tensor->name, shape_text(tensor->shape, tensor->rank).text,
			       shape_text(shape, rank).text, another_network);
}

static bool shape_fits(const struct safetensors_tensor *tensor,
		       const struct device_param_spec *spec)
{
	uint64_t shape[4];
	unsigned rank = file_shape(spec, shape);
	if (tensor->rank != rank)
		return false;
	for (unsigned i = 0; i < rank; i++)
		if (tensor->shape[i] != shape[i])
			return false;
	return true;
}

/*
 * Compares shapes without dimensions of 1, which do not affect the layout: some programs write
 * vectors as [C, 1, 1], and linear layers as convolutions.
 */
static bool shape_agrees(const struct safetensors_tensor *tensor,
			 const struct device_param_spec *spec)
{
	uint64_t shape[4];
	unsigned rank = file_shape(spec, shape), own = 0;
	for (unsigned i = 0; i < tensor->rank; i++) {
		if (tensor->shape[i] == 1)
			continue;
		while (own < rank && shape[own] == 1)
			own++;
		if (own == rank || shape[own++] != tensor->shape[i])
			return false;
	}
	while (own < rank && shape[own] == 1)
		own++;
	return own == rank;
}

static int restore_tensor(const struct safetensors *source, const char *path,
			  const struct safetensors_tensor *tensor, struct device_param *param,
			  enum device_slot slot, struct staging *staging, char *error)
{
	const struct device_param_spec *spec = device_param_spec(param);
	bool convolution = spec->kind == DEVICE_CONV_WEIGHT;
	int r = checkpoint_read_elements(source, tensor, device_param_elements(param),
					 convolution ? staging->host : staging->file,
					 convolution ? staging->file : staging->host, error);
	if (r < 0)
		return r;
	if (convolution)
		to_host(spec, staging->file, staging->host);
	r = device_param_write(param, slot, staging->host);
	return r ? checkpoint_fail(error, r, "%s: tensor %s: %s", path, tensor->name, strerror(-r))
		 : 0;
}

const struct safetensors_tensor *checkpoint_find_tensor(const struct safetensors *source,
							const char *path,
							const struct device_params *params,
							const struct device_param *param,
							enum device_slot slot, char *error)
{
	const struct device_param_spec *spec = device_param_spec(param);
	struct checkpoint_name name = name_of(params, param, slot);
	const struct safetensors_tensor *tensor = safetensors_find(source, name.text);
	if (!tensor)
		checkpoint_fail(error, -EBADMSG, "%s: tensor %s is missing", path, name.text);
	else if (tensor->type != SAFETENSORS_F32)
		checkpoint_fail(error, -EBADMSG, "%s: tensor %s is %s, expected F32", path,
				name.text, safetensors_type_name(tensor->type));
	else if (!shape_fits(tensor, spec))
		fail_shape(path, tensor, spec, error);
	else
		return tensor;
	return NULL;
}

static int restore_slot(const struct safetensors *source, const char *path,
			const struct device_params *params, struct device_param *param,
			enum device_slot slot, struct staging *staging, char *error)
{
	const struct safetensors_tensor *tensor =
		checkpoint_find_tensor(source, path, params, param, slot, error);
	return tensor ? restore_tensor(source, path, tensor, param, slot, staging, error)
		      : -EBADMSG;
}

static int restore_slots(const struct safetensors *source, const char *path,
			 struct device_params *params, struct staging *staging, char *error)
{
	for (enum device_slot slot = 0; slot < DEVICE_SLOTS; slot++) {
		for (size_t i = 0; i < device_params_count(params); i++) {
			struct device_param *param = device_params_at(params, i);
			if (!checkpoint_has_slot(param, slot))
				continue;
			int r = restore_slot(source, path, params, param, slot, staging, error);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

int checkpoint_restore_tensors(const struct safetensors *source, const char *path,
			       struct device_params *params, char *error)
{
	struct staging staging;
	int r = staging_init(&staging, params);
	if (r < 0)
		checkpoint_fail(error, r, "out of memory");
	else
		r = restore_slots(source, path, params, &staging, error);
	staging_deinit(&staging);
	return r;
}

/*
 * True if the file has all the model's tensors, except the last layer's, under names with this
 * prefix.
 */
static bool has_all_after_prefix(const struct safetensors *source,
				 const struct device_params *params, const char *prefix,
				 size_t length)
{
	char name[2 * DEVICE_NAME_MAX];
	for (size_t i = 0; i < device_params_count(params); i++) {
		const struct device_param_spec *spec =
			device_param_spec(device_params_at(params, i));
		snprintf(name, sizeof(name), "%.*s%s", (int)length, prefix, spec->name);
		if (!name_map_is_head(spec->name) && !safetensors_find(source, name))
			return false;
	}
	return true;
}

/*
 * Reports a missing tensor. If all names have a prefix, as with wrapper modules, suggests to remove
 * it.
 */
static int fail_missing(const struct safetensors *source, const char *path,
			const struct device_params *params, const char *name, char *error)
{
	for (size_t i = 0; i < safetensors_count(source); i++) {
		const char *own = safetensors_at(source, i)->name;
		size_t length = strlen(own), prefix = length - strlen(name);
		if (length <= strlen(name) || own[prefix - 1] != '.' ||
		    strcmp(own + prefix, name) != 0 || prefix >= DEVICE_NAME_MAX ||
		    !has_all_after_prefix(source, params, own, prefix))
			continue;
		return checkpoint_fail(
			error, -EBADMSG,
			"%s: tensor %s of the model is missing, but there is %.200s: remove the "
			"prefix \"%.*s\" from the names of its tensors",
			path, name, own, (int)prefix, own);
	}
	return checkpoint_fail(error, -EBADMSG, "%s: tensor %s of the model is missing%s", path,
			       name, another_network);
}

static bool starts_with(const char *name, const char *with)
{
	return strncmp(name, with, strlen(with)) == 0;
}

/* True for a checkpoint's tensors that are not weights: optimizer state and averages. */
static bool is_training_state(const char *name)
{
	bool known = starts_with(name, AVERAGE);
	if (!starts_with(name, STATE))
		return known;
	name += strlen(STATE);
	for (size_t o = 0; o < DEVICE_OPTIMIZER_COUNT; o++) {
		for (unsigned i = 0; i < device_optimizers[o].states; i++) {
			const char *state = device_optimizers[o].state[i];
			known = known || (starts_with(name, state) && name[strlen(state)] == '.');
		}
	}
	return known;
}

static void find_unknown(const struct safetensors *source, const struct device_params *params,
			 struct checkpoint_import_result *result)
{
	static const char counter[] = ".num_batches_tracked";
	for (size_t i = 0; i < safetensors_count(source); i++) {
		const char *name = safetensors_at(source, i)->name;
		size_t length = strlen(name), end = strlen(counter);
		bool known = (length > end && strcmp(name + length - end, counter) == 0) ||
			     name_map_knows(params, source, name) || is_training_state(name);
		if (!known && !result->unknown_count++)
			snprintf(result->unknown, sizeof(result->unknown), "%s", name);
	}
}

static int import_param(const struct safetensors *source, const char *path,
			const struct device_params *params, struct device_param *param,
			bool other_classes, struct staging *staging,
			struct checkpoint_import_result *result, char *error)
{
	const struct device_param_spec *spec = device_param_spec(param);
	const char *layout;
	const struct safetensors_tensor *tensor = name_map_find(source, spec->name, &layout);
	bool head = name_map_is_head(spec->name);
	if (layout)
		result->layout = layout;
	if (head && (!tensor || other_classes)) {
		result->head_kept = true;
		return 0;
	}
	if (!tensor && spec->constant)
		return 0;
	if (!tensor)
		return fail_missing(source, path, params, spec->name, error);
	if (tensor->type != SAFETENSORS_F32 && tensor->type != SAFETENSORS_F16 &&
	    tensor->type != SAFETENSORS_BF16)
		return checkpoint_fail(error, -EBADMSG,
				       "%s: tensor %s is %s, expected F32, F16 or BF16", path,
				       tensor->name, safetensors_type_name(tensor->type));
	if (!shape_agrees(tensor, spec)) {
		int r = checkpoint_import_pos_embed(source, path, tensor, param, error);
		result->resized |= r == 0;
		if (r != -ENOENT)
			return r;
		if (!head)
			return fail_shape(path, tensor, spec, error);
		result->head_kept = true;
		return 0;
	}
	int r = restore_tensor(source, path, tensor, param, DEVICE_VALUE, staging, error);
	if (r < 0)
		return r;
	return checkpoint_check_finite(path, tensor, staging->host, device_param_elements(param),
				       error);
}

/* Compares the file's class names with the model's, because equally many classes may differ. */
static int import_compare_classes(const struct safetensors *source, const char *path,
				  const char *class_names, bool *ret_others, char *error)
{
	struct class_names theirs = {0}, ours = {0};
	int r = weights_class_names(source, path, &theirs, error);
	if (r < 0)
		return r;
	r = class_names ? class_names_read(class_names, &ours) : 0;
	uint32_t common = theirs.count < ours.count ? theirs.count : ours.count;
	if (r == 0)
		*ret_others = class_names_differ(theirs.name, theirs.count, ours.name, ours.count) <
			      common;
	class_names_deinit(&ours);
	class_names_deinit(&theirs);
	return r < 0 ? checkpoint_fail(error, r, "out of memory") : 0;
}

static int import_params(const struct safetensors *source, const char *path,
			 const char *class_names, const struct device_params *params,
			 struct staging *staging, struct checkpoint_import_result *result,
			 char *error)
{
	bool other_classes = false;
	int r = import_compare_classes(source, path, class_names, &other_classes, error);
	if (r < 0)
		return r;
	for (size_t i = 0; i < device_params_count(params); i++) {
		r = import_param(source, path, params, device_params_at(params, i), other_classes,
				 staging, result, error);
		if (r < 0)
			return r;
	}
	find_unknown(source, params, result);
	return 0;
}

int checkpoint_import(const char *path, const char *class_names, struct device_params *params,
		      struct checkpoint_import_result *ret_result, char *error)
{
	struct safetensors *source;
	int r = safetensors_open(path, &source, error);
	if (r < 0)
		return r;
	struct staging staging;
	struct checkpoint_import_result result = {0};
	r = staging_init(&staging, params);
	if (r < 0)
		checkpoint_fail(error, r, "out of memory");
	else
		r = import_params(source, path, class_names, params, &staging, &result, error);
	if (r == 0)
		*ret_result = result;
	staging_deinit(&staging);
	safetensors_close(source);
	return r;
}
