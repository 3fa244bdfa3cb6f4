#include "checkpoint.h"
#include "safetensors.h"
#include "whole_file.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char FORMAT[] = "1";

/* Where a slot of a parameter stands in the file. */
static const struct {
	enum device_slot slot;
	const char *prefix;
} slots[] = {
	{DEVICE_VALUE, ""},
	{DEVICE_MOMENT1, "optimizer.momentum."},
	{DEVICE_MOMENT2, "optimizer.variance."},
	{DEVICE_EMA, "ema."},
};
enum { SLOTS = sizeof(slots) / sizeof(slots[0]) };

/* Counters as metadata: one table for writing and reading. */
enum counter_type {
	COUNTER_U64,
	COUNTER_U32,
	COUNTER_DOUBLE,
	COUNTER_LOSS, /* a double that is not finite where weights make no sense of the images */
	COUNTER_UUID, /* not in checkpoints of versions that did not know it */
};
#define C(name, type)                                                                              \
	{                                                                                          \
		"trainer." #name, type, offsetof(struct checkpoint_state, name)                    \
	}
static const struct counter {
	const char *key;
	enum counter_type type;
	size_t offset;
} counters[] = {
	C(step, COUNTER_U64),
	C(epoch, COUNTER_U64),
	C(batch, COUNTER_U64),
	C(batches_per_epoch, COUNTER_U64),
	C(dataset_samples, COUNTER_U64),
	C(dataset_uuid, COUNTER_UUID),
	C(val_uuid, COUNTER_UUID),
	C(classes, COUNTER_U32),
	C(precision, COUNTER_U32),
	C(interval.loss, COUNTER_DOUBLE),
	C(interval.samples, COUNTER_U64),
	C(interval.top1, COUNTER_U64),
	C(interval.top5, COUNTER_U64),
	C(interval.steps, COUNTER_U64),
	C(whole.loss, COUNTER_DOUBLE),
	C(whole.samples, COUNTER_U64),
	C(whole.top1, COUNTER_U64),
	C(whole.top5, COUNTER_U64),
	C(whole.steps, COUNTER_U64),
	C(eval_step, COUNTER_U64),
	C(eval_samples, COUNTER_U64),
	C(eval_loss, COUNTER_LOSS),
	C(eval_top1, COUNTER_DOUBLE),
	C(eval_top5, COUNTER_DOUBLE),
	C(best_top1, COUNTER_DOUBLE),
	C(best_step, COUNTER_U64),
	C(train_seconds, COUNTER_DOUBLE),
	C(wait_seconds, COUNTER_DOUBLE),
	C(images, COUNTER_U64),
	C(bad, COUNTER_U64),
	C(device.updates, COUNTER_U64),
	C(device.skipped, COUNTER_U64),
	C(device.loss_scale, COUNTER_DOUBLE),
	C(device.scale_age, COUNTER_U64),
};
#undef C
enum { COUNTERS = sizeof(counters) / sizeof(counters[0]), COUNTER_TEXT = 40 };

struct checkpoint {
	struct safetensors *file;
	struct recipe recipe;
	struct checkpoint_state state;
	char *path;
};

__attribute__((format(printf, 3, 4))) static int fail(char *error, int code, const char *format,
						      ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(error, CHECKPOINT_ERROR_MAX, format, arguments);
	va_end(arguments);
	return code;
}

/* ---- layouts: [K][R][S][C] on the host, [K][C][R][S] in files ---- */

static void to_file(const struct device_param_spec *spec, const float *host, float *file)
{
	size_t k = spec->shape[0], rs = (size_t)spec->shape[1] * spec->shape[2], c = spec->shape[3];
	for (size_t i = 0; i < k; i++)
		for (size_t j = 0; j < rs; j++)
			for (size_t l = 0; l < c; l++)
				file[(i * c + l) * rs + j] = host[(i * rs + j) * c + l];
}

static void to_host(const struct device_param_spec *spec, const float *file, float *host)
{
	size_t k = spec->shape[0], rs = (size_t)spec->shape[1] * spec->shape[2], c = spec->shape[3];
	for (size_t i = 0; i < k; i++)
		for (size_t j = 0; j < rs; j++)
			for (size_t l = 0; l < c; l++)
				host[(i * rs + j) * c + l] = file[(i * c + l) * rs + j];
}

static unsigned file_shape(const struct device_param_spec *spec, uint64_t ret_shape[4])
{
	switch (spec->kind) {
	case DEVICE_CONV_WEIGHT:
		ret_shape[0] = spec->shape[0];
		ret_shape[1] = spec->shape[3];
		ret_shape[2] = spec->shape[1];
		ret_shape[3] = spec->shape[2];
		return 4;
	case DEVICE_LINEAR_WEIGHT:
		ret_shape[0] = spec->shape[0];
		ret_shape[1] = spec->shape[1];
		return 2;
	case DEVICE_VECTOR:
	case DEVICE_BUFFER:
		break;
	}
	ret_shape[0] = spec->shape[0];
	return 1;
}

/* ---- writing ---- */

/* What the writer asks for, tensor by tensor: a slot of a parameter, through two buffers. */
struct source {
	struct device_param *param;
	enum device_slot slot;
};
struct saving {
	struct source *sources;
	struct safetensors_tensor *tensors;
	char (*names)[DEVICE_NAME_MAX + 32];
	size_t count;
	float *host, *file;
};

static const void *fill(void *user, size_t index)
{
	struct saving *saving = user;
	const struct source *source = &saving->sources[index];
	const struct device_param_spec *spec = device_param_spec(source->param);
	if (device_param_read(source->param, source->slot, saving->host))
		return NULL;
	if (spec->kind != DEVICE_CONV_WEIGHT)
		return saving->host;
	to_file(spec, saving->host, saving->file);
	return saving->file;
}

static void saving_deinit(struct saving *saving)
{
	free(saving->sources);
	free(saving->tensors);
	free(saving->names);
	free(saving->host);
	free(saving->file);
}

static size_t largest(const struct device_params *params)
{
	size_t elements = 1;
	for (size_t i = 0; i < device_params_count(params); i++) {
		size_t n = device_param_elements(device_params_at(params, i));
		if (n > elements)
			elements = n;
	}
	return elements;
}

static int saving_init(struct saving *saving, const struct device_params *params)
{
	size_t tensors = device_params_count(params) * SLOTS, elements = largest(params);
	*saving = (struct saving){
		.sources = calloc(tensors, sizeof(*saving->sources)),
		.tensors = calloc(tensors, sizeof(*saving->tensors)),
		.names = calloc(tensors, sizeof(*saving->names)),
		.host = malloc(elements * sizeof(float)),
		.file = malloc(elements * sizeof(float)),
	};
	if (!saving->sources || !saving->tensors || !saving->names || !saving->host ||
	    !saving->file) {
		saving_deinit(saving);
		return -ENOMEM;
	}
	return 0;
}

static void saving_add(struct saving *saving, struct device_param *param, enum device_slot slot,
		       const char *prefix)
{
	const struct device_param_spec *spec = device_param_spec(param);
	struct safetensors_tensor *tensor = &saving->tensors[saving->count];
	char *name = saving->names[saving->count];
	snprintf(name, sizeof(*saving->names), "%s%s", prefix, spec->name);
	*tensor = (struct safetensors_tensor){
		.name = name,
		.type = SAFETENSORS_F32,
		.size = device_param_elements(param) * sizeof(float),
	};
	tensor->rank = file_shape(spec, tensor->shape);
	saving->sources[saving->count++] = (struct source){param, slot};
}

static int write_tensors(const char *path, struct saving *saving,
			 const struct safetensors_entry *metadata, size_t metadata_count,
			 char *error)
{
	struct safetensors_writer writer = {
		.tensors = saving->tensors,
		.count = saving->count,
		.metadata = metadata,
		.metadata_count = metadata_count,
		.fill = fill,
		.user = saving,
	};
	return safetensors_write(path, &writer, error);
}

static void counter_text(const struct counter *counter, const struct checkpoint_state *state,
			 char *text)
{
	const char *at = (const char *)state + counter->offset;
	switch (counter->type) {
	case COUNTER_U64:
		snprintf(text, COUNTER_TEXT, "%llu",
			 (unsigned long long)*(const uint64_t *)(const void *)at);
		break;
	case COUNTER_U32:
		snprintf(text, COUNTER_TEXT, "%u", *(const uint32_t *)(const void *)at);
		break;
	case COUNTER_DOUBLE:
	case COUNTER_LOSS:
		snprintf(text, COUNTER_TEXT, "%.17g", *(const double *)(const void *)at);
		break;
	case COUNTER_UUID:
		uuid_write((const struct uuid *)(const void *)at, text);
		break;
	}
}

int checkpoint_save(const char *path, struct device_params *params, const struct recipe *recipe,
		    const struct checkpoint_state *state, char *error)
{
	struct saving saving;
	char *text = NULL, numbers[COUNTERS][COUNTER_TEXT];
	size_t text_size = 0;
	FILE *file = open_memstream(&text, &text_size);
	int r = file ? recipe_write(recipe, file) : -ENOMEM;
	if (file)
		fclose(file);
	if (!r)
		r = saving_init(&saving, params);
	if (r) {
		free(text);
		return fail(error, r, "%s: cannot be written: %s", path, strerror(-r));
	}
	struct safetensors_entry metadata[COUNTERS + 3] = {
		{"format", "pt"}, {"trainer.format", FORMAT}, {"trainer.recipe", text}};
	for (size_t i = 0; i < COUNTERS; i++) {
		counter_text(&counters[i], state, numbers[i]);
		metadata[3 + i] = (struct safetensors_entry){counters[i].key, numbers[i]};
	}
	for (size_t s = 0; s < SLOTS; s++)
		for (size_t i = 0; i < device_params_count(params); i++)
			if (device_param_has(device_params_at(params, i), slots[s].slot))
				saving_add(&saving, device_params_at(params, i), slots[s].slot,
					   slots[s].prefix);
	r = write_tensors(path, &saving, metadata, COUNTERS + 3, error);
	saving_deinit(&saving);
	free(text);
	return r;
}

int checkpoint_export(const char *path, struct device_params *params, enum device_slot slot,
		      const char *evaluation, char *error)
{
	struct saving saving;
	int r = saving_init(&saving, params);
	if (r)
		return fail(error, r, "%s: cannot be written: %s", path, strerror(-r));
	struct safetensors_entry metadata[] = {{"format", "pt"},
					       {"trainer.evaluation", evaluation}};
	for (size_t i = 0; i < device_params_count(params); i++)
		saving_add(&saving, device_params_at(params, i), slot, "");
	r = write_tensors(path, &saving, metadata, evaluation ? 2 : 1, error);
	saving_deinit(&saving);
	return r;
}

/* ---- reading ---- */

static int read_uuid(const struct checkpoint *checkpoint, const struct counter *counter,
		     const char *text, char *error)
{
	char *at = (char *)&checkpoint->state + counter->offset;
	if (!text || uuid_read(text, (struct uuid *)(void *)at))
		return 0;
	return fail(error, -EBADMSG, "%s: metadata %s is not a UUID: %s", checkpoint->path,
		    counter->key, text);
}

static int read_counter(const struct checkpoint *checkpoint, const struct counter *counter,
			char *error)
{
	const char *text = safetensors_metadata(checkpoint->file, counter->key);
	char *at = (char *)&checkpoint->state + counter->offset, *end = NULL;
	errno = 0;
	if (counter->type == COUNTER_UUID)
		return read_uuid(checkpoint, counter, text, error);
	if (text && (counter->type == COUNTER_DOUBLE || counter->type == COUNTER_LOSS)) {
		double value = strtod(text, &end);
		if (isfinite(value) || counter->type == COUNTER_LOSS)
			*(double *)(void *)at = value;
		else
			end = NULL;
	} else if (text && *text >= '0' && *text <= '9') {
		unsigned long long value = strtoull(text, &end, 10);
		if (counter->type == COUNTER_U64)
			*(uint64_t *)(void *)at = value;
		else if (value <= UINT32_MAX)
			*(uint32_t *)(void *)at = (uint32_t)value;
		else
			end = NULL;
	}
	if (!end || end == text || *end || errno)
		return fail(error, -EBADMSG, "%s: metadata %s is %s%s", checkpoint->path,
			    counter->key, text ? "not a number: " : "missing", text ? text : "");
	return 0;
}

static int read_state(struct checkpoint *checkpoint, char *error)
{
	char problem[RECIPE_ERROR_MAX];
	const char *format = safetensors_metadata(checkpoint->file, "trainer.format");
	const char *recipe = safetensors_metadata(checkpoint->file, "trainer.recipe");
	if (!format || !recipe)
		return fail(error, -EBADMSG,
			    "%s: holds weights, but no run to resume; model.pretrained starts a "
			    "run from it",
			    checkpoint->path);
	if (strcmp(format, FORMAT))
		return fail(error, -EBADMSG, "%s: checkpoint format %s, this program reads %s",
			    checkpoint->path, format, FORMAT);
	if (recipe_load_text(&checkpoint->recipe, "recipe in the checkpoint", recipe, problem))
		return fail(error, -EBADMSG, "%s: %.900s", checkpoint->path, problem);
	for (size_t i = 0; i < COUNTERS; i++) {
		int r = read_counter(checkpoint, &counters[i], error);
		if (r)
			return r;
	}
	const struct checkpoint_state *state = &checkpoint->state;
	if (!state->batches_per_epoch || state->batch >= state->batches_per_epoch ||
	    state->step / state->batches_per_epoch != state->epoch ||
	    state->step % state->batches_per_epoch != state->batch)
		return fail(error, -EBADMSG, "%s: step, epoch and batch contradict each other",
			    checkpoint->path);
	if (!(state->device.loss_scale > 0))
		return fail(
			error, -EBADMSG,
			"%s: metadata trainer.device.loss_scale is %g, expected a number above 0",
			checkpoint->path, state->device.loss_scale);
	return 0;
}

int checkpoint_open(const char *path, struct checkpoint **ret_checkpoint, char *error)
{
	struct checkpoint *checkpoint = calloc(1, sizeof(*checkpoint));
	if (!checkpoint)
		return fail(error, -ENOMEM, "out of memory");
	int r = recipe_init(&checkpoint->recipe);
	checkpoint->path = strdup(path);
	if (r || !checkpoint->path)
		r = fail(error, -ENOMEM, "out of memory");
	if (!r)
		r = safetensors_open(path, &checkpoint->file, error);
	if (!r)
		r = read_state(checkpoint, error);
	if (r) {
		checkpoint_close(checkpoint);
		return r;
	}
	*ret_checkpoint = checkpoint;
	return 0;
}

void checkpoint_close(struct checkpoint *checkpoint)
{
	if (!checkpoint)
		return;
	safetensors_close(checkpoint->file);
	recipe_deinit(&checkpoint->recipe);
	free(checkpoint->path);
	free(checkpoint);
}

const struct checkpoint_state *checkpoint_state(const struct checkpoint *checkpoint)
{
	return &checkpoint->state;
}

const struct recipe *checkpoint_recipe(const struct checkpoint *checkpoint)
{
	return &checkpoint->recipe;
}

/* IEEE half to float; exact. */
static float half_value(uint16_t half)
{
	int exponent = half >> 10 & 31, mantissa = half & 1023;
	float value = exponent == 31 ? (mantissa ? NAN : INFINITY)
		      : exponent     ? ldexpf((float)(mantissa + 1024), exponent - 25)
				     : ldexpf((float)mantissa, -24);
	return half & 0x8000 ? -value : value;
}

/* A tensor on its way in: room for the largest one, as it lies in the file and as the device takes it. */
struct staging {
	float *file, *host;
};

static int staging_init(struct staging *staging, const struct device_params *params)
{
	size_t bytes = largest(params) * sizeof(float);
	*staging = (struct staging){malloc(bytes), malloc(bytes)};
	return staging->file && staging->host ? 0 : -ENOMEM;
}

static void staging_deinit(struct staging *staging)
{
	free(staging->file);
	free(staging->host);
}

/* Elements of a floating-point tensor as floats; `narrow` has room for what is to be widened. */
static int read_elements(const struct safetensors *source, const struct safetensors_tensor *tensor,
			 size_t count, void *narrow, float *ret_values, char *error)
{
	bool wide = tensor->type == SAFETENSORS_F32;
	int r = safetensors_read(source, tensor, wide ? ret_values : narrow, error);
	const uint16_t *bits = narrow;
	for (size_t i = 0; i < count && !wide && !r; i++) {
		uint32_t bfloat16 = (uint32_t)bits[i] << 16;
		if (tensor->type == SAFETENSORS_BF16)
			memcpy(&ret_values[i], &bfloat16, 4);
		else
			ret_values[i] = half_value(bits[i]);
	}
	return r;
}

/* "[64, 3, 7, 7]" */
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

static int fail_shape(const char *path, const struct safetensors_tensor *tensor,
		      const struct device_param_spec *spec, char *error)
{
	uint64_t shape[4];
	unsigned rank = file_shape(spec, shape);
	return fail(error, -EBADMSG, "%s: tensor %s is of shape %s, the model's of %s", path,
		    tensor->name, shape_text(tensor->shape, tensor->rank).text,
		    shape_text(shape, rank).text);
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

static int restore_tensor(const struct safetensors *source, const char *path,
			  const struct safetensors_tensor *tensor, struct device_param *param,
			  enum device_slot slot, struct staging *staging, char *error)
{
	const struct device_param_spec *spec = device_param_spec(param);
	bool convolution = spec->kind == DEVICE_CONV_WEIGHT;
	int r = read_elements(source, tensor, device_param_elements(param),
			      convolution ? staging->host : staging->file,
			      convolution ? staging->file : staging->host, error);
	if (r)
		return r;
	if (convolution)
		to_host(spec, staging->file, staging->host);
	r = device_param_write(param, slot, staging->host);
	return r ? fail(error, r, "%s: tensor %s: %s", path, tensor->name, strerror(-r)) : 0;
}

static int restore_slot(const struct checkpoint *checkpoint, struct device_param *param, size_t s,
			struct staging *staging, char *error)
{
	char name[DEVICE_NAME_MAX + 32];
	const struct device_param_spec *spec = device_param_spec(param);
	snprintf(name, sizeof(name), "%s%s", slots[s].prefix, spec->name);
	const struct safetensors_tensor *tensor = safetensors_find(checkpoint->file, name);
	if (!tensor)
		return fail(error, -EBADMSG, "%s: tensor %s is missing", checkpoint->path, name);
	if (tensor->type != SAFETENSORS_F32)
		return fail(error, -EBADMSG, "%s: tensor %s is %s, expected F32", checkpoint->path,
			    name, safetensors_type_name(tensor->type));
	if (!shape_fits(tensor, spec))
		return fail_shape(checkpoint->path, tensor, spec, error);
	return restore_tensor(checkpoint->file, checkpoint->path, tensor, param, slots[s].slot,
			      staging, error);
}

int checkpoint_restore(const struct checkpoint *checkpoint, struct device_params *params,
		       char *error)
{
	struct staging staging;
	int r = staging_init(&staging, params);
	if (r)
		fail(error, r, "out of memory");
	for (size_t s = 0; s < SLOTS && !r; s++) {
		for (size_t i = 0; i < device_params_count(params) && !r; i++) {
			struct device_param *param = device_params_at(params, i);
			if (device_param_has(param, slots[s].slot))
				r = restore_slot(checkpoint, param, s, &staging, error);
		}
	}
	if (!r) {
		r = device_params_set_state(params, &checkpoint->state.device);
		if (r)
			fail(error, r, "%s: the device refuses its state: %s", checkpoint->path,
			     strerror(-r));
	}
	staging_deinit(&staging);
	return r;
}

/* Wrappers put the name of the module that they wrap before the names of its tensors. */
static int fail_missing(const struct safetensors *source, const char *path, const char *name,
			char *error)
{
	for (size_t i = 0; i < safetensors_count(source); i++) {
		const char *own = safetensors_at(source, i)->name;
		size_t length = strlen(own), prefix = length - strlen(name);
		if (length <= strlen(name) || own[prefix - 1] != '.' || strcmp(own + prefix, name))
			continue;
		return fail(error, -EBADMSG,
			    "%s: tensor %s of the model is missing, but there is %.200s: take "
			    "\"%.*s\" off the names of its tensors",
			    path, name, own, (int)prefix, own);
	}
	return fail(error, -EBADMSG, "%s: tensor %s of the model is missing", path, name);
}

static int import_param(const struct safetensors *source, const char *path,
			struct device_param *param, struct staging *staging, bool *head_kept,
			char *error)
{
	const struct device_param_spec *spec = device_param_spec(param);
	const struct safetensors_tensor *tensor = safetensors_find(source, spec->name);
	bool head = !strncmp(spec->name, "fc.", 3);
	if (!tensor && head) {
		*head_kept = true;
		return 0;
	}
	if (!tensor)
		return fail_missing(source, path, spec->name, error);
	if (tensor->type != SAFETENSORS_F32 && tensor->type != SAFETENSORS_F16 &&
	    tensor->type != SAFETENSORS_BF16)
		return fail(error, -EBADMSG, "%s: tensor %s is %s, expected F32, F16 or BF16", path,
			    spec->name, safetensors_type_name(tensor->type));
	if (!shape_fits(tensor, spec)) {
		if (!head)
			return fail_shape(path, tensor, spec, error);
		*head_kept = true;
		return 0;
	}
	int r = restore_tensor(source, path, tensor, param, DEVICE_VALUE, staging, error);
	for (size_t i = 0; !r && i < device_param_elements(param); i++)
		if (!isfinite(staging->host[i]))
			r = fail(error, -EBADMSG, "%s: tensor %s has a value that is not finite",
				 path, tensor->name);
	return r;
}

int checkpoint_import(const char *path, struct device_params *params, bool *ret_head_kept,
		      char *error)
{
	struct safetensors *source;
	int r = safetensors_open(path, &source, error);
	if (r)
		return r;
	struct staging staging;
	bool kept = false;
	r = staging_init(&staging, params);
	if (r)
		fail(error, r, "out of memory");
	for (size_t i = 0; i < device_params_count(params) && !r; i++)
		r = import_param(source, path, device_params_at(params, i), &staging, &kept, error);
	if (!r)
		*ret_head_kept = kept;
	staging_deinit(&staging);
	safetensors_close(source);
	return r;
}

/* ---- the folder ---- */

#define NAME "checkpoint-%08llu.safetensors"

int checkpoint_path(const char *folder, uint64_t step, char *ret_path)
{
	int length = snprintf(ret_path, CHECKPOINT_PATH_MAX, "%s/" NAME, folder,
			      (unsigned long long)step);
	return length < CHECKPOINT_PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* Step of a checkpoint's file name; false for other files, also those of names that only look alike. */
static bool name_step(const char *name, uint64_t *ret_step)
{
	char own[64];
	unsigned long long step;
	if (sscanf(name, "checkpoint-%20llu", &step) != 1)
		return false;
	snprintf(own, sizeof(own), NAME, step);
	*ret_step = step;
	return !strcmp(own, name);
}

int checkpoint_newest(const char *folder, uint64_t before, uint64_t *ret_step, char *ret_path)
{
	DIR *dir = opendir(folder);
	if (!dir)
		return -errno;
	bool found = false;
	uint64_t newest = 0;
	for (struct dirent *entry; (entry = readdir(dir));) {
		uint64_t step;
		if (name_step(entry->d_name, &step) && step < before && (!found || step > newest)) {
			newest = step;
			found = true;
		}
	}
	closedir(dir);
	if (!found)
		return -ENOENT;
	*ret_step = newest;
	return checkpoint_path(folder, newest, ret_path);
}

/* What a run that was killed left of a file of its own. */
static bool left_over(const char *name)
{
	static const char *const names[] = {"recipe.ini", "summary.json"};
	static const char ending[] = ".safetensors";
	size_t length = whole_file_leftover(name), end = strlen(ending);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (length == strlen(names[i]) && !strncmp(name, names[i], length))
			return true;
	return length > end && !strncmp(name + length - end, ending, end);
}

static void remove_in(const char *folder, const char *name)
{
	char path[CHECKPOINT_PATH_MAX];
	if (snprintf(path, sizeof(path), "%s/%s", folder, name) < (int)sizeof(path))
		unlink(path);
}

int checkpoint_clear(const char *folder, uint64_t step, bool set_aside)
{
	char path[CHECKPOINT_PATH_MAX], aside[CHECKPOINT_PATH_MAX + 16];
	uint64_t newest = UINT64_MAX;
	int r;
	while (!(r = checkpoint_newest(folder, newest, &newest, path)) && newest >= step) {
		snprintf(aside, sizeof(aside), "%s.unreadable", path);
		if (set_aside ? rename(path, aside) : unlink(path))
			return -errno;
	}
	return r == -ENOENT ? 0 : r;
}

int checkpoint_prune(const char *folder, uint64_t keep)
{
	char path[CHECKPOINT_PATH_MAX];
	uint64_t before = UINT64_MAX;
	for (uint64_t i = 0; i < keep; i++) {
		int r = checkpoint_newest(folder, before, &before, path);
		if (r == -ENOENT)
			before = 0;
		if (r)
			break;
	}
	DIR *dir = opendir(folder);
	if (!dir)
		return -errno;
	for (struct dirent *entry; (entry = readdir(dir));) {
		uint64_t step;
		if (left_over(entry->d_name) || (name_step(entry->d_name, &step) && step < before))
			remove_in(folder, entry->d_name);
	}
	closedir(dir);
	return 0;
}
