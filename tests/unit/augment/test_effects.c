/*
 * Effects against torchvision. The argument is the data file made by tests/golden/augment/make.py,
 * which describes the format. Runs every case with every instruction set; results must be bit-exact
 * except for the listed tolerances.
 */
#include "format/augment/apply/geometry.h"
#include "format/augment/grammar/policy.h"
#include "format/augment/grammar/warp.h"
#include "format/augment/kernels/effects.h"
#include "tests/test.h"
#include "tests/unit/augment/golden_file.h"

#include <math.h>
#include <zstd.h>

enum { TEXT_MAX = 256, NUMBERS_MAX = 40 };

struct image {
	uint32_t width, height;
	const uint8_t *pixels;
};

/* Parsed text of a case. */
struct parsed_case {
	char name[TEXT_MAX];
	double numbers[NUMBERS_MAX];
	unsigned count;
};

/* Tolerances for effects of one name. */
struct tolerance {
	const char *name;
	int max;     /* largest difference of one byte */
	double mean; /* mean difference of one case */
};

static const char *golden_path;

static const struct tolerance tolerances[] = {
	{"", 0, 0},
	/* 16-bit fixed point in two passes; torchvision sums floats over the whole 2-D kernel */
	{"blur", 1, 0.02},
};

static uint8_t *read_golden(size_t *ret_size)
{
	FILE *file = fopen(golden_path, "rb");
	static uint8_t packed[4 << 20];

	assert_non_null(file);
	size_t size = fread(packed, 1, sizeof(packed), file);

	fclose(file);
	unsigned long long room = ZSTD_getFrameContentSize(packed, size);

	assert_true(room > 0 && room < 256 << 20);
	uint8_t *data = malloc((size_t)room);

	assert_non_null(data);
	assert_true(ZSTD_decompress(data, (size_t)room, packed, size) == room);
	*ret_size = (size_t)room;
	return data;
}

static uint32_t take_u32(const uint8_t **at)
{
	const uint8_t *p = *at;

	*at += 4;
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void take_text(const uint8_t **at, struct parsed_case *requested)
{
	uint32_t size = take_u32(at);
	char text[TEXT_MAX];

	assert_true(size < TEXT_MAX);
	memcpy(text, *at, size);
	text[size] = 0;
	*at += size;
	requested->count = 0;
	snprintf(requested->name, sizeof(requested->name), "%s", strtok(text, " "));
	for (char *word; (word = strtok(NULL, " ")); requested->count++) {
		assert_true(requested->count < NUMBERS_MAX);
		requested->numbers[requested->count] = strtod(word, NULL);
	}
}

static void set_fill(struct effect_warp *warp, double fill)
{
	warp->filled = fill >= 0;
	for (int i = 0; warp->filled && i < 3; i++)
		warp->fill[i] = (uint8_t)fill;
}

/* Makes an effect from the name and numbers written by make.py. */
static void make_effect(const struct parsed_case *requested, const struct image *image,
			struct effect *effect)
{
	static const struct {
		const char *name;
		enum effect_kind kind;
	} names[] = {
		{"brightness", EFFECT_BRIGHTNESS},
		{"contrast", EFFECT_CONTRAST},
		{"saturation", EFFECT_SATURATION},
		{"hue", EFFECT_HUE},
		{"grayscale", EFFECT_GRAYSCALE},
		{"invert", EFFECT_INVERT},
		{"solarize", EFFECT_SOLARIZE},
		{"posterize", EFFECT_POSTERIZE},
		{"autocontrast", EFFECT_AUTOCONTRAST},
		{"equalize", EFFECT_EQUALIZE},
		{"sharpness", EFFECT_SHARPNESS},
		{"blur", EFFECT_BLUR},
		{"rotate", EFFECT_WARP},
		{"affine", EFFECT_WARP},
		{"erase", EFFECT_ERASE},
	};
	const double *v = requested->numbers;

	*effect = (struct effect){0};
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(requested->name, names[i].name) == 0)
			effect->kind = names[i].kind;
	if (effect->kind == EFFECT_POSTERIZE) {
		effect->factor = v[0];
	} else if (effect->kind == EFFECT_BLUR) {
		effect->gauss = (struct effect_gauss){(uint32_t)v[0], (uint32_t)v[1], v[2]};
	} else if (strcmp(requested->name, "rotate") == 0) {
		/* torchvision's rotate and affine turn in opposite directions */
		warp_matrix(&(struct warp){.degrees = -v[0], .scale = 1}, effect->warp.matrix);
		effect->warp.bilinear = v[1] == 1;
		set_fill(&effect->warp, v[2]);
	} else if (strcmp(requested->name, "affine") == 0) {
		struct warp warp = {.degrees = v[0],
				    .translate_x = v[1],
				    .translate_y = v[2],
				    .scale = v[3],
				    .slope_x = tan(v[4] * M_PI / 180),
				    .slope_y = tan(v[5] * M_PI / 180),
				    .centre_x = v[8] == 1 ? -0.5 * image->width : 0,
				    .centre_y = v[8] == 1 ? -0.5 * image->height : 0};

		warp_matrix(&warp, effect->warp.matrix);
		effect->warp.bilinear = v[6] == 1;
		set_fill(&effect->warp, v[7]);
	} else if (effect->kind == EFFECT_ERASE) {
		effect->erase = (struct erase){.x = (uint32_t)v[0],
					       .y = (uint32_t)v[1],
					       .width = (uint32_t)v[2],
					       .height = (uint32_t)v[3],
					       .value = {(float)v[4], (float)v[4], (float)v[4]}};
	} else {
		effect->factor = v[0];
	}
}

static void add_operation(enum policy_space space, const double *v, unsigned bins, bool negative,
			  double mode, double fill, const struct image *image,
			  struct effect_list *list)
{
	struct effect_warp outside = {.bilinear = mode == 1};

	set_fill(&outside, fill);
	if (policy_effect(space, (enum policy_operation)v[0], (unsigned)v[1], bins, negative,
			  image->width, image->height, &outside, &list->effects[list->count]))
		list->count++;
}

/* Composes AugMix in the same way as policy.c. */
static void make_mix(const double *v, const struct image *image, struct effect_list *list)
{
	double own = v[0], chains = v[1];

	list->effects[list->count++] =
		(struct effect){.kind = EFFECT_MIX_BEGIN, .weight = (float)own};
	for (v += 2; chains > 0; chains--) {
		float weight = (float)v[0] * (float)(1 - own);

		for (double length = v[1]; length > 0; length--, v += 3)
			add_operation(POLICY_MIX, v + 2, POLICY_AUTO_BINS, v[4] == 1, 1, -1, image,
				      list);
		v += 2;
		list->effects[list->count++] =
			(struct effect){.kind = EFFECT_MIX_ADD, .weight = weight};
	}
	list->effects[list->count++] = (struct effect){.kind = EFFECT_MIX_END};
}

/* Draws the effects of a pipeline for sample 0. */
static void draw_list(const char *text, uint64_t seed, const struct image *image,
		      struct effect_list *list)
{
	struct pipeline *pipeline = golden_pipeline(text);
	static struct geometry geometry;

	assert_int_equal(geometry_make(pipeline, image->width, image->height, seed, 0, 0, NULL,
				       &geometry, NULL),
			 0);
	*list = geometry.effects;
	pipeline_free(pipeline);
}

/* Makes the effects of a case. */
static void make_list(const struct parsed_case *requested, const struct image *image,
		      struct effect_list *list)
{
	const double *v = requested->numbers;

	list->count = 0;
	if (strcmp(requested->name, "policy") == 0) {
		add_operation((enum policy_space)v[0], v + 1, (unsigned)v[3], v[4] == 1, v[5], v[6],
			      image, list);
		return;
	}
	if (strcmp(requested->name, "mix") == 0) {
		make_mix(v, image, list);
		return;
	}
	if (strcmp(requested->name, "distort") == 0) {
		draw_list("random_photometric_distort", (uint64_t)v[0], image, list);
		return;
	}
	list->count = 1;
	make_effect(requested, image, &list->effects[0]);
	if (!list->effects[0].kind)
		fail_msg("no effect for '%s'", requested->name);
}

static uint8_t *run(struct effects *effects, const struct image *image,
		    const struct effect_list *list)
{
	size_t count = (size_t)image->width * image->height;
	uint8_t *pixels, *output = malloc(count * 3);

	assert_non_null(output);
	assert_int_equal(effects_begin(effects, image->width, image->height, &pixels), 0);
	for (size_t i = 0; i < count; i++) {
		memcpy(pixels + 4 * i, image->pixels + 3 * i, 3);
		pixels[4 * i + 3] = 0;
	}
	assert_int_equal(effects_run(effects, list->effects, list->count), 0);
	for (uint32_t y = 0; y < image->height; y++) {
		const uint8_t *row = effects_row(effects, y);

		for (uint32_t x = 0; x < image->width; x++)
			assert_int_equal(row[4 * x + 3], 0);
		effects_take_row(effects, y, output + (size_t)y * image->width * 3);
	}
	return output;
}

static void compare(const struct parsed_case *requested, unsigned number, const uint8_t *got,
		    const uint8_t *expected, const struct image *image)
{
	const struct tolerance *tolerance = &tolerances[0];
	size_t size = (size_t)image->width * image->height * 3, worst = 0;
	uint64_t sum = 0;
	int max = 0;

	for (unsigned i = 1; i < sizeof(tolerances) / sizeof(tolerances[0]); i++)
		if (strcmp(tolerances[i].name, requested->name) == 0)
			tolerance = &tolerances[i];
	for (size_t i = 0; i < size; i++) {
		int difference = abs(got[i] - expected[i]);

		sum += (uint64_t)difference;
		if (difference > max) {
			max = difference;
			worst = i;
		}
	}
	double mean = (double)sum / (double)size;

	if (getenv("AUGMENT_GOLDEN_VERBOSE") && sum)
		printf("case %u, %s(%g) on %ux%u: max %d, mean %g\n", number, requested->name,
		       requested->numbers[0], image->width, image->height, max, mean);
	if (max > tolerance->max || mean > tolerance->mean)
		fail_msg("case %u, %s(%g, %g, ...) on %ux%u: mean %g, max %d: byte %zu is %u, "
			 "torchvision's %u",
			 number, requested->name, requested->numbers[0], requested->numbers[1],
			 image->width, image->height, mean, max, worst, got[worst],
			 expected[worst]);
}

TEST(as_torchvision)
{
	struct effects *effects[CPU_ISA_COUNT];
	struct image images[16];
	size_t size;
	uint8_t *data = read_golden(&size);
	const uint8_t *at = data + 8;
	int isa_max = (int)cpu_isa_supported();

	assert_memory_equal(data, "AUGGOLD1", 8);
	uint32_t image_count = take_u32(&at), case_count = take_u32(&at);

	assert_true(image_count <= 16 && case_count > 0);
	for (int isa = 0; isa <= isa_max; isa++)
		assert_int_equal(effects_new((enum cpu_isa)isa, &effects[isa]), 0);
	for (uint32_t i = 0; i < image_count; i++) {
		images[i].width = take_u32(&at);
		images[i].height = take_u32(&at);
		images[i].pixels = at;
		at += (size_t)images[i].width * images[i].height * 3;
	}
	for (uint32_t i = 0; i < case_count; i++) {
		const struct image *image = &images[take_u32(&at)];
		static struct effect_list list;
		struct parsed_case requested = {0};
		size_t bytes = (size_t)image->width * image->height * 3;

		take_text(&at, &requested);
		make_list(&requested, image, &list);
		uint8_t *reference = run(effects[0], image, &list);

		compare(&requested, i, reference, at, image);
		for (int isa = 1; isa <= isa_max; isa++) {
			uint8_t *other = run(effects[isa], image, &list);

			assert_memory_equal(other, reference, bytes);
			free(other);
		}
		free(reference);
		at += bytes;
	}
	assert_ptr_equal(at, data + size);
	for (int isa = 0; isa <= isa_max; isa++)
		effects_free(effects[isa]);
	free(data);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	golden_path = argv[1];
	return test_run(NULL, NULL);
}
