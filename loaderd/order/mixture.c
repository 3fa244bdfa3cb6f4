#include "loaderd/order/mixture.h"

#include "loaderd/order/permutation.h"

#include <errno.h>
#include <stdlib.h>

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
	while (b != 0) {
		uint64_t rest = a % b;
		a = b;
		b = rest;
	}
	return a;
}

/*
 * Returns a distance that has no divisor in common with the period and is near its golden section,
 * so that neighbouring slots lie far apart.
 */
static uint64_t choose_stride(uint64_t period)
{
	uint64_t stride = (uint64_t)((double)period * 0.6180339887498949);
	if (stride == 0)
		stride = 1;
	while (common_divisor(stride, period) != 1)
		stride++;
	return stride % period;
}

static const struct mixture_stage *stage_at(const struct mixture *mixture, uint64_t unit)
{
	uint32_t low = 0, high = mixture->stage_count;
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;
		if (mixture->stages[middle].from <= unit)
			low = middle;
		else
			high = middle;
	}
	return &mixture->stages[low];
}

/* Maps the units of one period of a stage to its slots. */
struct period {
	const struct mixture_stage *stage;
	bool shuffle;
	struct permutation permutation;
};

static struct period period_of(const struct mixture *mixture, const struct mixture_stage *stage,
			       uint64_t number)
{
	struct period period = {.stage = stage, .shuffle = mixture->shuffle};
	if (mixture->shuffle)
		permutation_init(&period.permutation, stage->period, mixture->seed, number,
				 (uint64_t)(stage - mixture->stages), RANDOM_MIXTURE);
	return period;
}

static uint64_t period_slot(const struct period *period, uint64_t i)
{
	if (period->shuffle)
		return permutation_at(&period->permutation, i);
	/* Both are below 2^16, so that the product fits. */
	return i * period->stage->stride % period->stage->period;
}

static uint32_t part_of_slot(const struct mixture *mixture, const struct mixture_stage *stage,
			     uint64_t slot)
{
	uint32_t low = 0, high = mixture->part_count;
	/* Invariant: firsts[low] <= slot < firsts[high]. Equal firsts are parts of share 0. */
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;
		if (stage->firsts[middle] <= slot)
			low = middle;
		else
			high = middle;
	}
	return low;
}

static uint32_t share_in(const struct mixture_stage *stage, uint32_t part)
{
	return stage->firsts[part + 1] - stage->firsts[part];
}

struct mixture_unit mixture_at(const struct mixture *mixture, uint64_t unit)
{
	const struct mixture_stage *stage = stage_at(mixture, unit);
	uint64_t number = (unit - stage->from) / stage->period;
	struct period period = period_of(mixture, stage, number);
	uint64_t slot = period_slot(&period, (unit - stage->from) % stage->period);
	uint32_t part = part_of_slot(mixture, stage, slot);
	return (struct mixture_unit){part, stage->before[part] + number * share_in(stage, part) +
						   (slot - stage->firsts[part])};
}

uint32_t mixture_stage(const struct mixture *mixture, uint64_t unit)
{
	return (uint32_t)(stage_at(mixture, unit) - mixture->stages);
}

uint64_t mixture_before(const struct mixture *mixture, uint64_t unit, uint32_t part)
{
	const struct mixture_stage *stage = stage_at(mixture, unit);
	uint64_t number = (unit - stage->from) / stage->period;
	return stage->before[part] + number * share_in(stage, part);
}

uint32_t mixture_share(const struct mixture *mixture, uint32_t stage, uint32_t part)
{
	return share_in(&mixture->stages[stage], part);
}

static int stage_init(struct mixture_stage *stage, const uint32_t *shares, uint32_t part_count)
{
	uint64_t sum = 0, divisor = 0;
	for (uint32_t p = 0; p < part_count; p++) {
		sum += shares[p];
		divisor = common_divisor(shares[p], divisor);
	}
	if (sum == 0 || sum > MIXTURE_SHARES_MAX)
		return -EINVAL;
	stage->period = sum / divisor;
	stage->stride = choose_stride(stage->period);
	stage->firsts = calloc((size_t)part_count + 1, sizeof(*stage->firsts));
	stage->before = calloc(part_count, sizeof(*stage->before));
	if (!stage->firsts || !stage->before)
		return -ENOMEM;
	for (uint32_t p = 0; p < part_count; p++)
		stage->firsts[p + 1] = stage->firsts[p] + shares[p] / (uint32_t)divisor;
	return 0;
}

/*
 * Sets the first unit of the stage after `stage`, and what comes before. -ERANGE if `stage` would
 * be empty.
 */
static int stage_follow(const struct mixture *mixture, struct mixture_stage *next, uint64_t from)
{
	const struct mixture_stage *stage = next - 1;
	if (from <= stage->from)
		return -ERANGE;
	uint64_t periods = (from - stage->from - 1) / stage->period + 1;
	next->from = stage->from + periods * stage->period;
	for (uint32_t p = 0; p < mixture->part_count; p++)
		next->before[p] = stage->before[p] + periods * share_in(stage, p);
	return 0;
}

int mixture_init(struct mixture *mixture, uint64_t seed, bool shuffle, uint32_t part_count,
		 uint32_t stage_count, const uint64_t *froms, const uint32_t *shares,
		 uint32_t *ret_stage)
{
	struct mixture result = {.seed = seed, .shuffle = shuffle, .part_count = part_count};
	if (part_count == 0 || stage_count == 0 || stage_count > MIXTURE_STAGES_MAX)
		return -EINVAL;
	result.stages = calloc(stage_count, sizeof(*result.stages));
	if (!result.stages)
		return -ENOMEM;
	int r = 0;
	for (uint32_t i = 0; r == 0 && i < stage_count; i++) {
		*ret_stage = i;
		struct mixture_stage *stage = &result.stages[result.stage_count++];
		r = stage_init(stage, shares + (uint64_t)i * part_count, part_count);
		if (r == 0 && i == 0)
			r = froms[0] == 0 ? 0 : -ERANGE;
		else if (r == 0)
			r = stage_follow(&result, stage, froms[i]);
	}
	if (r < 0) {
		mixture_deinit(&result);
		return r;
	}
	*mixture = result;
	return 0;
}

uint64_t mixture_bytes(const struct mixture *mixture)
{
	return mixture->stage_count * (sizeof(*mixture->stages) +
				       mixture->part_count * (sizeof(uint32_t) + sizeof(uint64_t)));
}

void mixture_deinit(struct mixture *mixture)
{
	for (uint32_t i = 0; i < mixture->stage_count; i++) {
		free(mixture->stages[i].firsts);
		free(mixture->stages[i].before);
	}
	free(mixture->stages);
	*mixture = (struct mixture){0};
}
