/*
 * frame_steps: prints the geometric steps of samples, for make.py, which repeats them with
 * torchvision. A line of the input is "WIDTH HEIGHT SEED SAMPLE PIPELINE". The output has for each
 * a line "WIDTH HEIGHT STEPS" of the finished sample, and for each step a line "KIND X Y WIDTH
 * HEIGHT REFLECT TRANSLATE-X TRANSLATE-Y", where KIND is a number of enum geometry_step_kind.
 */
#include "format/augment/apply/geometry.h"

#include <inttypes.h>
#include <stdio.h>

static int print_steps(const char *text, uint32_t width, uint32_t height, uint64_t seed,
		       uint64_t sample)
{
	static struct geometry geometry;
	struct pipeline_error error;
	struct pipeline *pipeline;
	int r = pipeline_parse(text, &pipeline, &error);

	if (r == 0) {
		r = geometry_make(pipeline, width, height, seed, 0, sample, NULL, &geometry,
				  &error);
		pipeline_free(pipeline);
	}
	if (r < 0) {
		fprintf(stderr, "frame_steps: '%s': %s\n", text, error.text);
		return r;
	}
	const struct geometry_stage *last = &geometry.stages[geometry.stage_count - 1];

	printf("%u %u %u\n", last->x.count, last->y.count, geometry.step_count);
	for (unsigned i = 0; i < geometry.step_count; i++) {
		const struct geometry_step *step = &geometry.steps[i];
		bool warp = step->kind == GEOMETRY_STEP_WARP;
		const float *m = geometry.effects.effects[step->effect].warp.forward;

		printf("%d %u %u %u %u %d %.9g %.9g\n", (int)step->kind, step->x, step->y,
		       step->width, step->height, step->reflect, warp ? (double)m[2] : 0,
		       warp ? (double)m[5] : 0);
	}
	return 0;
}

int main(void)
{
	char line[PIPELINE_TEXT_MAX + 128], text[PIPELINE_TEXT_MAX + 1];
	uint64_t seed, sample;
	uint32_t width, height;

	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "%u %u %" SCNu64 " %" SCNu64 " %4096[^\n]", &width, &height, &seed,
			   &sample, text) != 5) {
			fprintf(stderr, "frame_steps: not a line of five values: %s", line);
			return 1;
		}
		if (print_steps(text, width, height, seed, sample) < 0)
			return 1;
	}
	return 0;
}
