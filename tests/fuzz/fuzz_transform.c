/*
 * Arbitrary text as a pipeline. It must be refused with a position in the text, or give a pipeline
 * whose plans stay within the image and produce what transform_shape() promises, and whose effects
 * run on pictures of the planned sizes.
 */
#include "format/augment/apply/defer.h"
#include "format/augment/apply/plan.h"
#include "format/augment/kernels/effects.h"
#include "format/base/system/cpu.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static void check(int holds)
{
	if (!holds)
		abort();
}

static void check_axis(const struct plan_axis *axis, uint32_t source, uint32_t count)
{
	uint32_t first = 0;
	int64_t grid = 0;
	uint32_t content = plan_axis_content(axis, &first, &grid);

	check(axis->source == source && axis->count == count);
	check(axis->low < axis->high && axis->high <= source && axis->grid > 0);
	check(content <= count);
	if (content == 0)
		return;
	check(first + content <= count);
	check(grid >= 0 && grid + content <= axis->grid);
}

enum { EFFECT_PIXELS_MAX = 5000 }; /* larger pictures would only be slow */

/* Runs a stage's effects with every instruction set. */
static void check_effects(const struct plan *plan, const struct plan_stage *stage)
{
	static struct effects *effects[CPU_ISA_COUNT];
	size_t size = (size_t)stage->x.count * stage->y.count * 4;
	const uint8_t *reference = NULL;

	if (stage->effect_count == 0 || size > (size_t)EFFECT_PIXELS_MAX * 4)
		return;
	for (int isa = 0; isa <= (int)cpu_isa_supported(); isa++) {
		uint8_t *pixels;

		if (!effects[isa])
			check(effects_new((enum cpu_isa)isa, &effects[isa]) == 0);
		check(effects_begin(effects[isa], stage->x.count, stage->y.count, &pixels) == 0);
		for (size_t i = 0; i < size; i++)
			pixels[i] = i % 4 == 3 ? 0 : (uint8_t)(i * i * 2654435761u >> 13);
		check(effects_run(effects[isa], plan->effects.effects + stage->effect_begin,
				  stage->effect_count) == 0);
		if (isa == 0)
			reference = effects_row(effects[isa], 0);
		check(memcmp(effects_row(effects[isa], 0), reference, size) == 0);
	}
}

static void check_plan(const struct transform *transform, uint32_t width, uint32_t height,
		       uint64_t epoch)
{
	struct transform_error error;
	struct transform_shape shape;
	struct plan plan;

	transform_shape(transform, epoch, &shape);
	check(shape.sample_size <= transform_sample_size_max(transform));
	if (plan_make(transform, width, height, 1, epoch, width, &plan, &error) < 0) {
		check(memchr(error.text, 0, sizeof(error.text)) && error.text[0]);
		return;
	}
	check(plan.effects.count <= EFFECTS_MAX && plan.erasure_count <= TRANSFORM_STEPS_MAX);
	for (unsigned i = 0; i < plan.erasure_count; i++) {
		const struct erase *erase = &plan.erasures[i];

		check(erase->x + erase->width <= shape.width &&
		      erase->y + erase->height <= shape.height);
	}
	check(plan.stage_count >= 1 && plan.stage_count <= TRANSFORM_STEPS_MAX + 1);
	for (unsigned i = 0; i < plan.stage_count; i++) {
		const struct plan_stage *stage = &plan.stages[i];
		const struct plan_stage *next = i + 1 < plan.stage_count ? stage + 1 : NULL;

		check(stage->effect_begin + stage->effect_count <= plan.effects.count);
		check_effects(&plan, stage);
		check_axis(&stage->x, i ? stage[-1].x.count : width,
			   next ? next->x.source : shape.width);
		check_axis(&stage->y, i ? stage[-1].y.count : height,
			   next ? next->y.source : shape.height);
	}
}

/*
 * Checks that the deferred steps can be applied to the delivered sample and give the finished one.
 */
static void check_deferred(const struct transform *transform, uint32_t width, uint32_t height,
			   uint64_t epoch)
{
	struct transform_shape shape;
	struct deferred deferred, read;
	struct plan plan;
	uint32_t finished_width, finished_height;

	transform_shape(transform, epoch, &shape);
	if (plan_make(transform, width, height, 1, epoch, width, &plan, NULL) < 0)
		return;
	check(plan.stage_count >= 2 && plan.stage_count <= TRANSFORM_STEPS_MAX + 2);
	defer_take(&plan, &deferred);
	check(deferred_size(deferred.count) <= transform_deferred_max(transform));
	check(deferred_read(&deferred, deferred_size(deferred.count), shape.width, shape.height,
			    &read) == NULL);
	check(steps_size(transform, transform->step_count, epoch, width, height, &finished_width,
			 &finished_height, NULL) == 0);
	check(read.width == finished_width && read.height == finished_height);
	check(plan.stages[plan.stage_count - 1].x.count == shape.width &&
	      plan.stages[plan.stage_count - 1].y.count == shape.height);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint32_t sizes[][2] = {
		{1, 1}, {3, 500}, {640, 480}, {65535, 65535}, {65535, 1}};
	struct transform *transform = NULL;
	struct transform_error error = {.position = -2};
	char *text = malloc(size + 1);

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = 0;
	if (transform_parse(text, &transform, &error) < 0) {
		check(!transform && error.position >= -1 && error.position <= (int)strlen(text));
		check(memchr(error.text, 0, sizeof(error.text)) && error.text[0]);
		free(text);
		return 0;
	}
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		if (transform_fix_size(transform, sizes[i][0], sizes[i][1], &error) == 0)
			for (uint64_t epoch = 0; epoch < 4; epoch++)
				check_plan(transform, sizes[i][0], sizes[i][1], epoch * epoch * 7);
	transform_free(transform);
	check(transform_parse(text, &transform, &error) == 0);
	bool fits = transform_has_size(transform) ||
		    transform_fix_size(transform, sizes[2][0], sizes[2][1], &error) == 0;
	if (fits && transform_defer(transform, &error) == 0)
		for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			for (uint64_t epoch = 0; epoch < 4; epoch++)
				if (i == 2 || transform->fixed_width == 0)
					check_deferred(transform, sizes[i][0], sizes[i][1],
						       epoch * epoch * 7);
	transform_free(transform);
	free(text);
	return 0;
}
