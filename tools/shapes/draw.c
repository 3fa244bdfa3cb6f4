#include "tools/shapes/draw.h"

#include <math.h>
#include <stddef.h>

/*
 * These constants set how hard the set is. Position, angle, size and the sign of the contrast vary
 * freely, so a linear classifier on the pixels stays near chance, while a small convolutional
 * network learns the set in minutes.
 */
#define SCALE_MIN      0.26f /* radius of the figure, in image sides */
#define SCALE_MAX      0.44f
#define STRETCH_MAX    1.2f  /* ratio of the two axes */
#define CONTRAST_MIN   0.28f /* difference in lightness between figure and background, 0..1 */
#define CONTRAST_MAX   0.5f
#define CLUTTER_SPREAD 0.17f /* largest difference in lightness between clutter and background */
#define CLUTTER_MIN    6     /* number of strokes, blobs and slabs behind the figure */
#define CLUTTER_MAX    14
#define OCCLUDERS_MAX  2 /* number of thin strokes in front of the figure */
#define NOISE_SIGMA    0.025f

struct draw_colour {
	float r, g, b;
};

/* SplitMix64 (Steele, Lea, Flood, 2014). */
static uint64_t random_next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static float random_range(uint64_t *state, float low, float high)
{
	return low + (high - low) * (float)(random_next(state) >> 40) * 0x1p-24f;
}

static unsigned random_below(uint64_t *state, unsigned limit)
{
	return (unsigned)((random_next(state) >> 32) * limit >> 32);
}

/* Random colour of medium saturation whose mean over R, G and B is `light`, 0..1. */
static struct draw_colour random_colour(uint64_t *state, float light)
{
	float hue = random_range(state, 0, 2 * (float)M_PI);
	float strength = random_range(state, 0, 0.22f);

	return (struct draw_colour){
		light + strength * cosf(hue),
		light + strength * cosf(hue - 2 * (float)M_PI / 3),
		light + strength * cosf(hue + 2 * (float)M_PI / 3),
	};
}

static struct draw_colour colour_mix(struct draw_colour a, struct draw_colour b, float share)
{
	return (struct draw_colour){a.r + (b.r - a.r) * share, a.g + (b.g - a.g) * share,
				    a.b + (b.b - a.b) * share};
}

/* Value noise in -1..1: smooth interpolation between random values on a unit lattice. */
static float noise_lattice(uint64_t key, int x, int y)
{
	uint64_t state = key ^ ((uint64_t)(uint32_t)x << 32 | (uint32_t)y);

	return random_range(&state, -1, 1);
}

static float noise_at(uint64_t key, float x, float y)
{
	float cell_x = floorf(x), cell_y = floorf(y);
	float u = x - cell_x, v = y - cell_y;
	int i = (int)cell_x, j = (int)cell_y;

	u = u * u * (3 - 2 * u);
	v = v * v * (3 - 2 * v);
	float top = noise_lattice(key, i, j) * (1 - u) + noise_lattice(key, i + 1, j) * u;
	float bottom =
		noise_lattice(key, i, j + 1) * (1 - u) + noise_lattice(key, i + 1, j + 1) * u;

	return top * (1 - v) + bottom * v;
}

enum texture_kind {
	TEXTURE_STRIPES,
	TEXTURE_CHECKS,
	TEXTURE_DOTS,
	TEXTURE_NOISE,
	TEXTURE_RAMP,
	TEXTURE_COUNT
};

struct texture {
	enum texture_kind kind;
	uint64_t key;
	float along_x, along_y; /* unit vector divided by the pitch */
	struct draw_colour colours[2];
};

static struct texture random_texture(uint64_t *state, float light, float spread)
{
	float angle = random_range(state, 0, 2 * (float)M_PI);
	float pitch = random_range(state, 0.08f, 0.22f);
	float other = light + random_range(state, -spread, spread);

	return (struct texture){
		.kind = random_below(state, TEXTURE_COUNT),
		.key = random_next(state),
		.along_x = cosf(angle) / pitch,
		.along_y = sinf(angle) / pitch,
		.colours = {random_colour(state, light), random_colour(state, other)},
	};
}

/* Ramp from 0 to 1, centred on value 0 and `width` wide. Antialiases the edges of textures. */
static float soft_edge(float value, float width)
{
	return fminf(fmaxf(value / width + 0.5f, 0), 1);
}

/*
 * Colour of the texture at (x, y). Coordinates and the pixel size are fractions of the image side.
 */
static struct draw_colour texture_at(const struct texture *texture, float x, float y, float pixel)
{
	float u = texture->along_x * x + texture->along_y * y;
	float v = texture->along_x * y - texture->along_y * x;
	float width = (float)M_PI * pixel * hypotf(texture->along_x, texture->along_y);
	float share = 0;

	switch (texture->kind) {
	case TEXTURE_STRIPES:
		share = soft_edge(sinf((float)M_PI * u), width);
		break;
	case TEXTURE_CHECKS:
		share = soft_edge(sinf((float)M_PI * u) * sinf((float)M_PI * v), width);
		break;
	case TEXTURE_DOTS:
		share = soft_edge(sinf((float)M_PI * u) * sinf((float)M_PI * v) - 0.4f, width);
		break;
	case TEXTURE_NOISE:
		share = 0.5f + 0.5f * noise_at(texture->key, u, v);
		break;
	default: /* TEXTURE_RAMP: a single gradient over the image */
		share = 0.5f + 0.1f * u;
		break;
	}
	return colour_mix(texture->colours[0], texture->colours[1], fminf(fmaxf(share, 0), 1));
}

enum clutter_kind { CLUTTER_STROKE, CLUTTER_BLOB, CLUTTER_SLAB, CLUTTER_COUNT };

/*
 * A stroke (rounded line), a blob (distorted ellipse) or a slab (translucent band across the whole
 * image).
 */
struct clutter {
	enum clutter_kind kind;
	uint64_t key;
	float x, y, cos, sin; /* centre, in image sides, and direction */
	float length, width;  /* half-lengths of the two axes */
	float opacity;
	struct draw_colour colour;
};

static struct clutter random_clutter(uint64_t *state, float light, enum clutter_kind kind)
{
	float angle = random_range(state, 0, 2 * (float)M_PI);
	struct clutter clutter = {
		.kind = kind,
		.key = random_next(state),
		.x = random_range(state, 0, 1),
		.y = random_range(state, 0, 1),
		.cos = cosf(angle),
		.sin = sinf(angle),
		.opacity = random_range(state, 0.5f, 1),
		.colour = random_colour(
			state, light + random_range(state, -CLUTTER_SPREAD, CLUTTER_SPREAD)),
	};

	switch (kind) {
	case CLUTTER_STROKE:
		clutter.length = random_range(state, 0.1f, 0.4f);
		clutter.width = random_range(state, 0.008f, 0.03f);
		break;
	case CLUTTER_BLOB:
		clutter.length = random_range(state, 0.05f, 0.16f);
		clutter.width = clutter.length * random_range(state, 0.4f, 1);
		break;
	default:
		clutter.length = 2;
		clutter.width = random_range(state, 0.03f, 0.15f);
		clutter.opacity *= 0.6f;
		break;
	}
	return clutter;
}

/* Signed distance in image sides, negative inside. */
static float clutter_distance(const struct clutter *clutter, float x, float y)
{
	float dx = x - clutter->x, dy = y - clutter->y;
	float u = clutter->cos * dx + clutter->sin * dy;
	float v = clutter->cos * dy - clutter->sin * dx;

	if (clutter->kind == CLUTTER_BLOB) {
		float bend = 1 + 0.35f * noise_at(clutter->key, x * 9, y * 9);
		float radius = hypotf(u / clutter->length, v / clutter->width);

		return (radius - bend) * clutter->width;
	}
	return hypotf(fmaxf(fabsf(u) - clutter->length, 0), v) - clutter->width;
}

struct scene {
	float pixel; /* in image sides */
	struct texture background;
	uint64_t noise_key;
	float noise_strength, noise_pitch;
	size_t clutter_count, behind_count; /* the first behind_count are behind the figure */
	struct clutter clutter[CLUTTER_MAX + OCCLUDERS_MAX];
	enum figure figure;
	struct texture texture;
	float x, y;            /* centre of the figure, in image sides */
	float to_figure[2][2]; /* matrix from image sides to figure units */
	float unit;            /* one figure unit, in image sides */
	float opacity;
};

static void scene_place_figure(struct scene *scene, uint64_t *state)
{
	float scale = random_range(state, SCALE_MIN, SCALE_MAX);
	float stretch = powf(STRETCH_MAX, random_range(state, -0.5f, 0.5f));
	float turn = random_range(state, 0, 2 * (float)M_PI);
	float axis = random_range(state, 0, (float)M_PI);
	/*
	 * Rotates, then stretches along another axis, so that a square also becomes a slight
	 * rhombus.
	 */
	float ca = cosf(axis), sa = sinf(axis), ct = cosf(turn), st = sinf(turn);
	float sx = 1 / (scale * stretch), sy = stretch / scale;
	float m00 = ca * ca * sx + sa * sa * sy, m01 = ca * sa * (sx - sy);
	float m11 = sa * sa * sx + ca * ca * sy;

	scene->to_figure[0][0] = ct * m00 + st * m01;
	scene->to_figure[0][1] = ct * m01 + st * m11;
	scene->to_figure[1][0] = -st * m00 + ct * m01;
	scene->to_figure[1][1] = -st * m01 + ct * m11;
	scene->unit = scale;
	/* Keeps the figure inside the image; corners of a stretched figure may extend beyond it. */
	scene->x = random_range(state, scale, 1 - scale);
	scene->y = random_range(state, scale, 1 - scale);
}

static void scene_init(struct scene *scene, uint64_t key, enum figure figure, unsigned side)
{
	uint64_t state = key;
	float light = random_range(&state, 0.25f, 0.75f);
	float contrast = random_range(&state, CONTRAST_MIN, CONTRAST_MAX);
	int brighter = light < 0.4f || (light < 0.6f && random_below(&state, 2));
	float figure_light =
		fminf(fmaxf(brighter ? light + contrast : light - contrast, 0.04f), 0.96f);
	size_t behind = CLUTTER_MIN + random_below(&state, CLUTTER_MAX - CLUTTER_MIN + 1);
	size_t front = random_below(&state, OCCLUDERS_MAX + 1);

	scene->pixel = 1 / (float)side;
	scene->background = random_texture(&state, light, CLUTTER_SPREAD);
	scene->noise_key = random_next(&state);
	scene->noise_strength = random_range(&state, 0, 0.12f);
	scene->noise_pitch = random_range(&state, 3, 12);
	for (size_t i = 0; i < behind; i++)
		scene->clutter[i] =
			random_clutter(&state, light, random_below(&state, CLUTTER_COUNT));
	for (size_t i = behind; i < behind + front; i++)
		scene->clutter[i] = random_clutter(&state, light, CLUTTER_STROKE);
	scene->behind_count = behind;
	scene->clutter_count = behind + front;
	scene->figure = figure;
	scene->texture = random_texture(&state, figure_light, 0.14f);
	scene->opacity = random_range(&state, 0.85f, 1);
	scene_place_figure(scene, &state);
}

/* Fraction of a pixel inside the outline; distance in pixels. */
static float coverage(float distance)
{
	return fminf(fmaxf(0.5f - distance, 0), 1);
}

static struct draw_colour scene_at(const struct scene *scene, float x, float y)
{
	struct draw_colour colour = texture_at(&scene->background, x, y, scene->pixel);
	float noise = noise_at(scene->noise_key, x * scene->noise_pitch, y * scene->noise_pitch);
	float dx = x - scene->x, dy = y - scene->y;
	float u = scene->to_figure[0][0] * dx + scene->to_figure[0][1] * dy;
	float v = scene->to_figure[1][0] * dx + scene->to_figure[1][1] * dy;

	noise *= scene->noise_strength;
	colour = (struct draw_colour){colour.r + noise, colour.g + noise, colour.b + noise};
	for (size_t i = 0; i < scene->behind_count; i++) {
		float distance = clutter_distance(&scene->clutter[i], x, y) / scene->pixel;

		colour = colour_mix(colour, scene->clutter[i].colour,
				    coverage(distance) * scene->clutter[i].opacity);
	}
	if (fabsf(u) < 1.5f && fabsf(v) < 1.5f) {
		float distance = figure_distance(scene->figure, u, v) * scene->unit / scene->pixel;

		if (distance < 0.5f)
			colour = colour_mix(colour, texture_at(&scene->texture, x, y, scene->pixel),
					    coverage(distance) * scene->opacity);
	}
	for (size_t i = scene->behind_count; i < scene->clutter_count; i++) {
		float distance = clutter_distance(&scene->clutter[i], x, y) / scene->pixel;

		colour = colour_mix(colour, scene->clutter[i].colour,
				    coverage(distance) * scene->clutter[i].opacity);
	}
	return colour;
}

static uint8_t quantise(float value)
{
	return (uint8_t)(fminf(fmaxf(value, 0), 1) * 255 + 0.5f);
}

void draw_image(uint64_t key, enum figure figure, unsigned side, uint8_t *pixels)
{
	struct scene scene;
	uint64_t state = key ^ 0x6a09e667f3bcc909u;

	scene_init(&scene, key, figure, side);
	for (unsigned row = 0; row < side; row++)
		for (unsigned column = 0; column < side; column++) {
			struct draw_colour colour =
				scene_at(&scene, ((float)column + 0.5f) * scene.pixel,
					 ((float)row + 0.5f) * scene.pixel);
			/*
			 * The sum of three uniform values in -1..1 has variance 1 and is nearly
			 * normal.
			 */
			float noise = NOISE_SIGMA *
				      (random_range(&state, -1, 1) + random_range(&state, -1, 1) +
				       random_range(&state, -1, 1));

			*pixels++ = quantise(colour.r + noise);
			*pixels++ = quantise(colour.g + noise);
			*pixels++ = quantise(colour.b + noise);
		}
}
