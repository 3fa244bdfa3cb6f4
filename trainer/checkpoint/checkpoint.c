#include "trainer/checkpoint/checkpoint_tensors.h"
#include "trainer/device/params.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char FORMAT[] = "1";

/* Counters stored as metadata. One table serves writing and reading. */
enum counter_type {
	COUNTER_U64,
	COUNTER_U32,
	COUNTER_DOUBLE,
	COUNTER_LOSS, /* a double, which may be non-finite */
	/* types of counters that older checkpoints lack, which then read as zero */
	COUNTER_UUID,
	COUNTER_LATER_U32,
	COUNTER_LATER_U64,
	COUNTER_LATER_DOUBLE, /* may be non-finite */
};
#define RENAMED(name, older, type)                                                                 \
	{                                                                                          \
		"trainer." #name, type, offsetof(struct checkpoint_state, name), "trainer." #older \
	}
#define C(name, type)                                                                              \
	{                                                                                          \
		"trainer." #name, type, offsetof(struct checkpoint_state, name)                    \
	}
static const struct counter {
	const char *key;
	enum counter_type type;
	size_t offset;
	const char *older; /* key in older checkpoints, or NULL */
} counters[] = {
	C(step, COUNTER_U64),
	C(epoch, COUNTER_U64),
	C(batch, COUNTER_U64),
	C(batches_per_epoch, COUNTER_U64),
	C(dataset_samples, COUNTER_U64),
	C(dataset_uuid, COUNTER_UUID),
	C(val_uuid, COUNTER_UUID),
	C(order_hash, COUNTER_LATER_U64),
	C(teacher, COUNTER_LATER_U64),
	C(classes, COUNTER_U32),
	C(precision, COUNTER_U32),
	C(threads, COUNTER_LATER_U32),
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
	RENAMED(eval_metric[0], eval_top1, COUNTER_LOSS),
	RENAMED(eval_metric[1], eval_top5, COUNTER_LOSS),
	C(eval_metric[2], COUNTER_LATER_DOUBLE),
	RENAMED(best_score, best_top1, COUNTER_LOSS),
	C(best_step, COUNTER_U64),
	C(train_seconds, COUNTER_DOUBLE),
	C(wait_seconds, COUNTER_DOUBLE),
	C(images, COUNTER_U64),
	C(bad, COUNTER_U64),
	C(plateau.drops, COUNTER_LATER_U64),
	C(plateau.improved, COUNTER_LATER_U64),
	C(plateau.best, COUNTER_LATER_DOUBLE),
	C(plateau.bad, COUNTER_LATER_U64),
	C(plateau.resting, COUNTER_LATER_U64),
	C(begun[1], COUNTER_LATER_U64),
	C(begun[2], COUNTER_LATER_U64),
	C(begun[3], COUNTER_LATER_U64),
	C(begun[4], COUNTER_LATER_U64),
	C(begun[5], COUNTER_LATER_U64),
	C(begun[6], COUNTER_LATER_U64),
	C(begun[7], COUNTER_LATER_U64),
	C(device.updates, COUNTER_U64),
	C(device.skipped, COUNTER_U64),
	C(device.loss_scale, COUNTER_DOUBLE),
	C(device.scale_age, COUNTER_U64),
};
#undef C
#undef RENAMED
enum { COUNTERS = sizeof(counters) / sizeof(counters[0]), COUNTER_TEXT = 40 };

/* ---- writing ---- */

static void counter_text(const struct counter *counter, const struct checkpoint_state *state,
			 char *text)
{
	const char *at = (const char *)state + counter->offset;
	switch (counter->type) {
	case COUNTER_U64:
	case COUNTER_LATER_U64:
		snprintf(text, COUNTER_TEXT, "%llu",
			 (unsigned long long)*(const uint64_t *)(const void *)at);
		break;
	case COUNTER_U32:
	case COUNTER_LATER_U32:
		snprintf(text, COUNTER_TEXT, "%u", *(const uint32_t *)(const void *)at);
		break;
	case COUNTER_DOUBLE:
	case COUNTER_LOSS:
	case COUNTER_LATER_DOUBLE:
		snprintf(text, COUNTER_TEXT, "%.17g", *(const double *)(const void *)at);
		break;
	case COUNTER_UUID:
		uuid_write((const uint8_t *)at, text);
		break;
	}
}

/* Writes the file, or with an id the index of a sharded checkpoint's folder. */
static int save(const char *path, struct device_params *params, const char *id,
		const struct recipe *recipe, const struct checkpoint_state *state,
		const struct checkpoint_about *about, char *error)
{
	char *text = NULL, numbers[COUNTERS][COUNTER_TEXT];
	size_t text_size = 0;
	FILE *file = open_memstream(&text, &text_size);
	int r = file ? recipe_write(recipe, file) : -ENOMEM;
	if (file)
		fclose(file);
	if (r) {
		free(text);
		return checkpoint_fail(error, r, "%s: cannot be written: %s", path, strerror(-r));
	}
	struct safetensors_entry metadata[COUNTERS + 2 + CHECKPOINT_ABOUT_MAX] = {
		{"trainer.format", FORMAT}, {"trainer.recipe", text}};
	for (size_t i = 0; i < COUNTERS; i++) {
		counter_text(&counters[i], state, numbers[i]);
		metadata[2 + i] = (struct safetensors_entry){counters[i].key, numbers[i]};
	}
	struct checkpoint_metadata described;
	size_t count = checkpoint_describe(about, &described);
	memcpy(metadata + COUNTERS + 2, described.entries, count * sizeof(*metadata));
	count += COUNTERS + 2;
	r = id ? checkpoint_write_index(path, params, id, metadata, count, error)
	       : checkpoint_write_tensors(path, params, NULL, metadata, count, error);
	free(text);
	return r;
}

int checkpoint_save(const char *path, struct device_params *params, const struct recipe *recipe,
		    const struct checkpoint_state *state, const struct checkpoint_about *about,
		    char *error)
{
	return save(path, params, NULL, recipe, state, about, error);
}

int checkpoint_save_index(const char *folder, struct device_params *params, const char *id,
			  const struct recipe *recipe, const struct checkpoint_state *state,
			  const struct checkpoint_about *about, char *error)
{
	return save(folder, params, id, recipe, state, about, error);
}

/* ---- reading ---- */

static int read_uuid(const struct checkpoint *checkpoint, const struct counter *counter,
		     const char *text, char *error)
{
	char *at = (char *)&checkpoint->state + counter->offset;
	if (!text || uuid_read(text, (struct uuid *)(void *)at))
		return 0;
	return checkpoint_fail(error, -EBADMSG, "%s: metadata %s is not a UUID: %s",
			       checkpoint->path, counter->key, text);
}

static int read_counter(const struct checkpoint *checkpoint, const struct counter *counter,
			char *error)
{
	const char *text = safetensors_metadata(checkpoint->file, counter->key);
	if (!text && counter->older)
		text = safetensors_metadata(checkpoint->file, counter->older);
	char *at = (char *)&checkpoint->state + counter->offset, *end = NULL;
	errno = 0;
	if (counter->type == COUNTER_UUID)
		return read_uuid(checkpoint, counter, text, error);
	if (!text && counter->type >= COUNTER_LATER_U32)
		return 0;
	if (text && (counter->type == COUNTER_DOUBLE || counter->type == COUNTER_LOSS ||
		     counter->type == COUNTER_LATER_DOUBLE)) {
		double value = strtod(text, &end);
		if (isfinite(value) || counter->type != COUNTER_DOUBLE)
			*(double *)(void *)at = value;
		else
			end = NULL;
	} else if (text && *text >= '0' && *text <= '9') {
		unsigned long long value = strtoull(text, &end, 10);
		if (counter->type == COUNTER_U64 || counter->type == COUNTER_LATER_U64)
			*(uint64_t *)(void *)at = value;
		else if (value <= UINT32_MAX)
			*(uint32_t *)(void *)at = (uint32_t)value;
		else
			end = NULL;
	}
	if (!end || end == text || *end || errno)
		return checkpoint_fail(error, -EBADMSG, "%s: metadata %s is %s%s", checkpoint->path,
				       counter->key, text ? "not a number: " : "missing",
				       text ? text : "");
	return 0;
}

static int read_state(struct checkpoint *checkpoint, char *error)
{
	char problem[RECIPE_ERROR_MAX];
	const char *format = safetensors_metadata(checkpoint->file, "trainer.format");
	const char *recipe = safetensors_metadata(checkpoint->file, "trainer.recipe");
	if (!format || !recipe)
		return checkpoint_fail(error, -EBADMSG,
				       "%s: contains weights, but no run to resume; use "
				       "model.pretrained to start a run from them",
				       checkpoint->path);
	if (strcmp(format, FORMAT) != 0)
		return checkpoint_fail(error, -EBADMSG,
				       "%s: has checkpoint format %s, but this version reads %s",
				       checkpoint->path, format, FORMAT);
	if (recipe_load_text(&checkpoint->recipe, "recipe in the checkpoint", recipe, problem))
		return checkpoint_fail(error, -EBADMSG, "%s: %.900s", checkpoint->path, problem);
	for (size_t i = 0; i < COUNTERS; i++) {
		int r = read_counter(checkpoint, &counters[i], error);
		if (r < 0)
			return r;
	}
	const struct checkpoint_state *state = &checkpoint->state;
	if (!state->batches_per_epoch || state->batch >= state->batches_per_epoch ||
	    state->step / state->batches_per_epoch != state->epoch ||
	    state->step % state->batches_per_epoch != state->batch)
		return checkpoint_fail(error, -EBADMSG,
				       "%s: step, epoch and batch contradict each other",
				       checkpoint->path);
	if (!(state->device.loss_scale > 0))
		return checkpoint_fail(
			error, -EBADMSG,
			"%s: metadata trainer.device.loss_scale is %g, expected a number above 0",
			checkpoint->path, state->device.loss_scale);
	return 0;
}

static int checkpoint_read(struct checkpoint *checkpoint, const char *path, char *error)
{
	int r = recipe_init(&checkpoint->recipe);
	checkpoint->path = strdup(path);
	if (r < 0 || !checkpoint->path)
		return checkpoint_fail(error, -ENOMEM, "out of memory");
	r = safetensors_open(path, &checkpoint->file, error);
	return r < 0 ? r : read_state(checkpoint, error);
}

int checkpoint_open(const char *path, struct checkpoint **ret_checkpoint, char *error)
{
	struct checkpoint *checkpoint = calloc(1, sizeof(*checkpoint));
	if (!checkpoint)
		return checkpoint_fail(error, -ENOMEM, "out of memory");
	int r = checkpoint_read(checkpoint, path, error);
	if (r < 0) {
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

int checkpoint_restore(const struct checkpoint *checkpoint, struct device_params *params,
		       char *error)
{
	int r = checkpoint_is_sharded(checkpoint)
			? checkpoint_restore_lead(checkpoint, params, error)
			: checkpoint_restore_tensors(checkpoint->file, checkpoint->path, params,
						     error);
	if (r < 0)
		return r;
	r = device_params_set_state(params, &checkpoint->state.device);
	if (r < 0)
		return checkpoint_fail(error, r, "%s: the device rejects its state: %s",
				       checkpoint->path, strerror(-r));
	return 0;
}
