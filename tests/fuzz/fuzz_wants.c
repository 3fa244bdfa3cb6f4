/*
 * A malicious client's Wants, compared with a model that keeps every batch. The input is a list of
 * steps: a byte selects the operation; a Want is followed by a byte with its length and an encoded
 * message.
 */
#include "loaderd/order/wants.h"
#include "proto/feed.pb-c.h"
#include "tests/fuzz/fuzz.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 3, BATCH = 6, SAMPLES = 40, BATCHES_MAX = 4096 };

struct model_batch {
	uint64_t epoch, samples[BATCH];
	uint32_t count;
};

struct model {
	struct wants *wants;
	struct model_batch batches[BATCHES_MAX];
	uint64_t added, taken;
	struct order_slice work[SLOTS]; /* lists of the last batches taken */
};

static uint32_t copies_before(const struct model_batch *batch, uint32_t i)
{
	uint32_t copies = 0;
	for (uint32_t j = 0; j < i; j++)
		copies += batch->samples[j] == batch->samples[i];
	return copies;
}

/* Compares the lists of the batches in work with the Wants. */
static void check_work(const struct model *model)
{
	uint64_t first = model->taken < SLOTS ? 0 : model->taken - SLOTS;
	for (uint64_t n = first; n < model->taken; n++) {
		const struct model_batch *batch = &model->batches[n];
		const struct order_slice *slice = &model->work[n % SLOTS];
		assert(slice->count == batch->count && !slice->last);
		for (uint32_t i = 0; i < batch->count; i++) {
			struct order_item item = order_slice_at(slice, i);
			assert(item.sample == batch->samples[i]);
			assert(item.copy == copies_before(batch, i));
		}
	}
}

static int expected(const struct model *model, const Loaderd__Want *want)
{
	if (want->n_samples == 0 || want->n_samples > BATCH)
		return -EINVAL;
	for (size_t i = 0; i < want->n_samples; i++)
		if (want->samples[i] >= SAMPLES)
			return -ERANGE;
	return model->added - model->taken >= SLOTS + WANTS_AHEAD ? -ENOBUFS : 0;
}

static void add(struct model *model, const Loaderd__Want *want)
{
	size_t position = SIZE_MAX;
	int r = wants_add(model->wants, want->epoch, want->samples, want->n_samples, &position);
	assert(r == expected(model, want));
	assert(r != -ERANGE || want->samples[position] >= SAMPLES);
	if (r < 0)
		return;
	struct model_batch *batch = &model->batches[model->added++];
	batch->epoch = want->epoch;
	batch->count = (uint32_t)want->n_samples;
	memcpy(batch->samples, want->samples, want->n_samples * sizeof(*want->samples));
}

static void take(struct model *model)
{
	assert(wants_waiting(model->wants) == (model->taken < model->added));
	if (model->taken == model->added)
		return;
	uint64_t number = model->taken++;
	uint64_t epoch = wants_take(model->wants, &model->work[number % SLOTS]);
	assert(epoch == model->batches[number].epoch);
}

static void forget_wants(struct model *model)
{
	wants_forget(model->wants);
	for (uint64_t n = model->taken; n < model->added; n++)
		model->batches[n].count = 0;
}

static void read_ahead(struct model *model, uint8_t back, uint8_t position)
{
	uint64_t sample = UINT64_MAX;
	if (model->added == 0)
		return;
	uint64_t number = model->added - 1 - back % model->added;
	int r = wants_sample(model->wants, number, position % BATCH, &sample);
	if (r == 1)
		assert(sample == model->batches[number].samples[position % BATCH]);
	else /* forgotten, reused or shorter */
		assert(r == 0 && (position % BATCH >= model->batches[number].count ||
				  number + 2 * SLOTS + WANTS_AHEAD < model->added));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct model model;
	model.wants = wants_new(SLOTS, BATCH, SAMPLES);
	model.added = model.taken = 0;
	if (!model.wants)
		return 0;
	while (size >= 3 && model.added < BATCHES_MAX) {
		size_t used = 3;
		if (data[0] % 4 == 0) {
			size_t length = data[1] < size - 2 ? data[1] : size - 2;
			Loaderd__Want *want = loaderd__want__unpack(NULL, length, data + 2);
			used = 2 + length;
			if (want)
				add(&model, want);
			loaderd__want__free_unpacked(want, NULL);
		} else if (data[0] % 4 == 1) {
			take(&model);
		} else if (data[0] % 4 == 2) {
			read_ahead(&model, data[1], data[2]);
		} else {
			forget_wants(&model);
		}
		check_work(&model);
		data += used;
		size -= used;
	}
	assert(wants_added(model.wants) == model.added);
	wants_free(model.wants);
	return 0;
}
