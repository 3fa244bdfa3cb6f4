/*
 * Steps for boxes compared with torchvision: the window that random_iou_crop chooses, the boxes
 * that are kept, and their coordinates; also cases that torchvision does not define. The argument
 * is the data file made by tests/golden/frame/make_boxes.py, which describes the format.
 */
#include "format/augment/apply/coordinates.h"
#include "format/augment/apply/iou_crop.h"
#include "tests/test.h"
#include "tests/unit/augment/golden_file.h"

#include <errno.h>
#include <math.h>

enum { BOXES_MAX = 16 };

static const char *golden_path;

/* A sample with its boxes. */
struct sample {
	char text[PIPELINE_TEXT_MAX + 1];
	uint32_t width, height;
	uint64_t seed, epoch, number;
	struct coordinates form;
	float boxes[BOXES_MAX * 4];
	size_t count;
};

/* Makes the sample's geometry, which may depend on its boxes, and moves the boxes. */
static void make(const struct sample *sample, struct geometry *geometry, float *moved,
		 uint8_t *keep)
{
	float corners[BOXES_MAX * 4];
	const struct frame_boxes boxes = {sample->form, sample->boxes, sample->count, corners};
	struct pipeline *pipeline = golden_pipeline(sample->text);
	struct pipeline_error error;

	if (geometry_make(pipeline, sample->width, sample->height, sample->seed, sample->epoch,
			  sample->number, &(struct geometry_subject){&boxes, 0}, geometry,
			  &error) < 0)
		fail_msg("'%s': %s", sample->text, error.text);
	pipeline_free(pipeline);
	memcpy(moved, sample->boxes, sample->count * 4 * sizeof(*moved));
	coordinates_apply(geometry, sample->width, sample->height, &sample->form, moved,
			  sample->count, keep);
}

/* ---- torchvision ---- */

static void take_sample(struct golden *golden, struct sample *sample)
{
	*sample = (struct sample){.width = (uint32_t)golden_take_number(golden, 4)};
	sample->height = (uint32_t)golden_take_number(golden, 4);
	sample->seed = golden_take_number(golden, 8);
	sample->number = golden_take_number(golden, 8);
	sample->form.role = SCHEMA_BOXES;
	sample->form.format = SCHEMA_XYXY + (enum schema_format)golden_take_number(golden, 4);
	size_t size = golden_take_number(golden, 4);

	assert_true(size <= PIPELINE_TEXT_MAX);
	memcpy(sample->text, golden_take(golden, size), size);
	sample->count = golden_take_number(golden, 4);
	assert_true(sample->count <= BOXES_MAX);
	size = sample->count * 4 * sizeof(float);
	memcpy(sample->boxes, golden_take(golden, size), size);
}

TEST(boxes_equal_torchvision)
{
	size_t size;
	uint8_t *data = golden_read(golden_path, &size);
	struct golden golden = {.at = data, .end = data + size};
	unsigned cropped = 0, emptied = 0, dropped = 0;

	assert_memory_equal(golden_take(&golden, 8), "BOXGOLD1", 8);
	uint32_t cases = (uint32_t)golden_take_number(&golden, 4);

	for (uint32_t i = 0; i < cases; i++) {
		static struct geometry geometry;
		static struct sample sample;
		float moved[BOXES_MAX * 4];
		uint8_t keep[BOXES_MAX];

		take_sample(&golden, &sample);
		make(&sample, &geometry, moved, keep);
		const struct geometry_stage *last = &geometry.stages[geometry.stage_count - 1];
		uint32_t width = (uint32_t)golden_take_number(&golden, 4),
			 height = (uint32_t)golden_take_number(&golden, 4);
		const uint8_t *stays = golden_take(&golden, sample.count);
		float expected[BOXES_MAX * 4];

		memcpy(expected, golden_take(&golden, sample.count * 16), sample.count * 16);
		if (last->x.count != width || last->y.count != height)
			fail_msg("'%s', %ux%u, sample %u: %ux%u, torchvision's %ux%u", sample.text,
				 sample.width, sample.height, i, last->x.count, last->y.count,
				 width, height);
		for (unsigned s = 0; s < geometry.step_count; s++)
			cropped += geometry.steps[s].by_centre;
		for (size_t k = 0; k < sample.count * 4; k++) {
			if (keep[k / 4] != stays[k / 4])
				fail_msg("'%s', sample %u: box %zu %s", sample.text, i, k / 4,
					 stays[k / 4] ? "is dropped" : "stays");
			dropped += k % 4 == 0 && !keep[k / 4];
			emptied += k % 4 == 0 && keep[k / 4] && expected[k + 2] == 0;
			if (keep[k / 4] && !(fabsf(moved[k] - expected[k]) <= 1e-4f))
				fail_msg("'%s', sample %u: number %zu of boxes is %.9g, "
					 "torchvision's %.9g",
					 sample.text, i, k, (double)moved[k], (double)expected[k]);
		}
	}
	assert_ptr_equal(golden.at, golden.end);
	print_message("%u cases: %u windows, %u empty boxes, %u dropped\n", cases, cropped, emptied,
		      dropped);
	assert_true(cropped > cases / 4 && emptied > cases / 8 && dropped > cases / 4);
	free(data);
}

/* ---- cases that torchvision does not define ---- */

/* Returns a sample of two boxes, one in each half. */
static struct sample two_boxes(const char *text)
{
	struct sample sample = {.width = 100,
				.height = 80,
				.form = {.role = SCHEMA_BOXES, .format = SCHEMA_XYXY},
				.boxes = {5, 10, 45, 70, 60, 20, 90, 60},
				.count = 2};

	snprintf(sample.text, sizeof(sample.text), "%s", text);
	return sample;
}

/* Returns the window of the crop; its width is 0 if there is none. */
static struct iou_window window_of(const struct sample *sample)
{
	static struct geometry geometry;
	float moved[BOXES_MAX * 4];

	make(sample, &geometry, moved, NULL);
	for (unsigned i = 0; i < geometry.step_count; i++) {
		const struct geometry_step *step = &geometry.steps[i];

		if (step->by_centre)
			return (struct iou_window){step->x, step->y, step->width, step->height};
	}
	return (struct iou_window){0};
}

/*
 * A sample without boxes, or without a suitable window, stays unchanged. torchvision would search
 * without end.
 */
TEST(crops_that_cannot_be_leave_the_sample)
{
	struct sample none = two_boxes("random_iou_crop(sampler_options=0.5)");
	struct sample tiny = none, narrow = two_boxes("random_iou_crop(min_aspect_ratio=90, "
						      "max_aspect_ratio=100, sampler_options=0)");
	struct sample dropped = two_boxes("sanitize_boxes(min_size=200) random_iou_crop");

	none.count = 0;
	tiny.boxes[2] = 5;
	tiny.boxes[6] = 60;
	for (uint64_t seed = 0; seed < 20; seed++) {
		none.seed = tiny.seed = narrow.seed = dropped.seed = seed;
		assert_int_equal(window_of(&none).width, 0);
		assert_int_equal(window_of(&tiny).width, 0);
		assert_int_equal(window_of(&narrow).width, 0);
		assert_int_equal(window_of(&dropped).width, 0);
	}
}

/* A sample with very many boxes, or without a suitable window, takes bounded work. */
TEST(work_is_bounded)
{
	static const struct {
		const char *text;
		size_t count;
		unsigned numbers; /* maximum count of random numbers drawn */
	} cases[] = {
		/* the comparisons are exhausted before the fourth window */
		{"random_iou_crop(sampler_options=0.9:0.8, trials=1000)", IOU_CROP_TESTS_MAX / 3,
		 100},
		{"random_iou_crop(sampler_options=0.9:0.8, trials=2)", 1,
		 IOU_CROP_ROUNDS_MAX * (1 + 2 * 4)},
	};
	float *corners = calloc(cases[0].count, 4 * sizeof(*corners));

	assert_non_null(corners);
	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct pipeline *pipeline = golden_pipeline(cases[i].text);
		struct random_stream random, other;
		struct iou_window window;

		random_init(&random, 1, 0, 0, RANDOM_AUGMENT);
		other = random;
		assert_false(iou_crop_draw(pipeline_iou_crop(pipeline), 100, 100, corners,
					   cases[i].count, &random, &window));
		for (unsigned n = 0; memcmp(&other, &random, sizeof(random)) != 0; n++) {
			assert_true(n < cases[i].numbers);
			random_u32(&other);
		}
		pipeline_free(pipeline);
	}
	free(corners);
}

/* Windows differ by epoch, sample and seed, and respect options, aspect ratios and sides. */
TEST(windows_are_drawn_within_their_bounds)
{
	struct sample sample =
		two_boxes("random_iou_crop(min_scale=0.4, max_scale=0.8, min_aspect_ratio=1, "
			  "max_aspect_ratio=1.5, sampler_options=0.2:0.4)");
	unsigned different = 0;
	struct iou_window before = {0};

	for (unsigned i = 0; i < 300; i++) {
		sample.seed = i / 100;
		sample.epoch = i / 10 % 10;
		sample.number = i % 10;
		const struct iou_window window = window_of(&sample);

		assert_in_range(window.width, 40, 80);
		assert_in_range(window.height, 32, 64);
		assert_true(window.width >= window.height && window.width * 2 <= window.height * 3);
		assert_true(window.x + window.width <= 100 && window.y + window.height <= 80);
		different += memcmp(&window, &before, sizeof(window)) != 0;
		before = window;
	}
	assert_true(different > 290);
}

/* The window is the same for boxes given as fractions, and for boxes moved by earlier steps. */
TEST(boxes_choose_where_they_are)
{
	static const char crop[] = "random_iou_crop(sampler_options=0.2:0.4)";
	struct sample pixels = two_boxes(crop), fractions = pixels, moved = pixels;

	fractions.form.normalized = true;
	for (unsigned k = 0; k < 8; k++)
		fractions.boxes[k] /= k % 2 ? 80 : 100;
	snprintf(moved.text, sizeof(moved.text), "hflip(p=1) resize(200x160) %s", crop);
	for (uint64_t seed = 0; seed < 50; seed++) {
		pixels.seed = fractions.seed = moved.seed = seed;
		struct iou_window expected = window_of(&pixels), got = window_of(&fractions);

		assert_true(expected.width > 0);
		assert_memory_equal(&got, &expected, sizeof(got));
		/* hflip(p=0) draws the flip's random number, so both crops draw the same ones */
		struct sample same = two_boxes("hflip(p=0) random_iou_crop(sampler_options=0.2:"
					       "0.4)");

		same.seed = seed;
		same.width = 200;
		same.height = 160;
		for (unsigned k = 0; k < 8; k += 4) {
			const float *box = pixels.boxes + k;
			const float there[4] = {200 - 2 * box[2], 2 * box[1], 200 - 2 * box[0],
						2 * box[3]};

			memcpy(same.boxes + k, there, sizeof(there));
		}
		expected = window_of(&same);
		got = window_of(&moved);
		assert_memory_equal(&got, &expected, sizeof(got));
	}
}

/*
 * The crop empties the boxes of all values whose centre is outside, not only those of the value
 * that chooses the window.
 */
TEST(crops_empty_what_they_do_not_show)
{
	struct sample sample = two_boxes("a: random_iou_crop(sampler_options=0.4)");
	unsigned emptied = 0;

	for (uint64_t seed = 0; seed < 50; seed++) {
		static struct geometry geometry;
		float moved[8], others[] = {0, 0, 20, 20, 70, 70, 75, 80, 49, 39, 51, 41};

		sample.seed = seed;
		make(&sample, &geometry, moved, NULL);
		const struct iou_window window = window_of(&sample);
		float before[12];

		memcpy(before, others, sizeof(before));
		coordinates_apply(&geometry, 100, 80, &sample.form, others, 3, NULL);
		for (unsigned k = 0; k < 12; k += 4) {
			bool shown = iou_window_shows_centre(&window, before + k);
			const float none[4] = {0};

			emptied += !shown;
			if (shown)
				assert_true(others[k + 2] > others[k]);
			else
				assert_memory_equal(others + k, none, sizeof(none));
		}
	}
	assert_in_range(emptied, 20, 140);
}

/*
 * The window depends on the boxes of the first image; if it has several, the step must name one
 * value.
 */
TEST(boxes_that_choose_are_found)
{
	static const struct {
		const char *pipeline, *schema;
		int number, position; /* index of the boxes; position of the error */
		const char *words;
	} cases[] = {
		{"hflip", "image: image u8[h,w,3]\n", -1, 0, NULL},
		{"hflip random_iou_crop", "image: image u8[h,w,3]\nb: boxes(image) f32[*,4] xyxy\n",
		 1, 0, NULL},
		{"hflip random_iou_crop", "image: image u8[h,w,3]\nb: class i32[*]\n", -2, 6,
		 "chooses by boxes, and the dataset has none of its image: pack a value of role "
		 "boxes, or crop without boxes, as random_resized_crop does"},
		{"random_iou_crop",
		 "image: image u8[h,w,3]\nb: boxes(image) f32[*,4] xywh\n"
		 "c: boxes(image) f32[*,4] cxcywh\n",
		 -2, 0, "the dataset has several: name one, as in 'b: random_iou_crop'"},
		{"c: random_iou_crop",
		 "image: image u8[h,w,3]\nb: boxes(image) f32[*,4] xywh\n"
		 "c: boxes(image) f32[*,4] cxcywh\n",
		 2, 0, NULL},
		{"random_iou_crop",
		 "image: image u8[h,w,3]\nother: image u8[h,w,3]\n"
		 "b: boxes(other) f32[*,4] xyxy\n",
		 -2, 0, "the dataset has none of its image"},
		{"b: random_iou_crop",
		 "image: image u8[h,w,3]\nother: image u8[h,w,3]\n"
		 "b: boxes(other) f32[*,4] xyxy\n",
		 -2, 3, "chooses by boxes of the first image, and \"b\" is none of these"},
		{"random_iou_crop", "image: image u8[h,w,3]\nb: boxes(image) f32[*,5] cxcywhr\n",
		 -2, 0, "chooses by boxes xyxy, xywh or cxcywh, and \"b\" has another format"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct pipeline *pipeline = golden_pipeline(cases[i].pipeline);
		struct pipeline_error error = {.position = -2};
		struct schema_error reason;
		struct schema schema;
		int number = -2;

		if (schema_parse(cases[i].schema, strlen(cases[i].schema), &schema, &reason) < 0)
			fail_msg("'%s': %s", cases[i].schema, reason.text);
		int r = pipeline_find_boxes(pipeline, &schema, &number, &error);

		assert_int_equal(number, cases[i].number);
		assert_int_equal(r, cases[i].words ? -EINVAL : 0);
		if (cases[i].words) {
			assert_int_equal(error.position, cases[i].position);
			if (!strstr(error.text, cases[i].words))
				fail_msg("'%s': %s", cases[i].pipeline, error.text);
			assert_true(strlen(error.text) + 1 < sizeof(error.text));
		}
		pipeline_free(pipeline);
	}
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: %s boxes.bin.zst\n", argv[0]);
		return 2;
	}
	golden_path = argv[1];
	return test_run(NULL, NULL);
}
