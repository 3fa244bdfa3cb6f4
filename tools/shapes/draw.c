#include "tools/shapes/draw.h"

#include <math.h>
#include <stddef.h>

/*
 * What makes the set hard or easy. As it is, a linear classifier on the pixels stays near chance,
 * because position, angle, size and light-on-dark against dark-on-light vary freely, while a small
 * convolutional net learns it in minutes.
 */
#define SCALE_MIN      0.26f /* radius of the figure, in image sides */
#define SCALE_MAX      0.44f
#define STRETCH_MAX    1.2f  /* one axis against the other */
#define CONTRAST_MIN   0.28f /* lightness of the figure against the background's, 0..1 */
#define CONTRAST_MAX   0.5f
#define CLUTTER_SPREAD 0.17f /* lightness of clutter around the background's */
#define CLUTTER_MIN    6     /* strokes, blobs and slabs behind the figure */
#define CLUTTER_MAX    14
#define OCCLUDERS_MAX  2 /* thin strokes in front of it */
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

/* A hue of middling saturation whose mean is `light`, 0..1. */
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

/* Value noise: random values on a lattice of unit cells, smoothly interpolated; -1..1. */
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
	float along_x, along_y; /* unit vector over the pitch */
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

/*
 * Smooth step about 0 as wide as about a pixel, so that textures are antialiased as the outlines
 * are.
 */
static float soft_edge(float value, float width)
{
	return fminf(fmaxf(value / width + 0.5f, 0), 1);
}

/* Colour at (x, y) in image sides; pixel is one pixel in that unit. */
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
	default: /* TEXTURE_RAMP: one sweep over the image */
		share = 0.5f + 0.1f * u;
		break;
	}
	return colour_mix(texture->colours[0], texture->colours[1], fminf(fmaxf(share, 0), 1));
}

enum clutter_kind { CLUTTER_STROKE, CLUTTER_BLOB, CLUTTER_SLAB, CLUTTER_COUNT };

/*
 * A stroke (rounded line), a blob (bent ellipse) or a slab (half-transparent band right across the
 * image).
 */
struct clutter {
	enum clutter_kind kind;
	uint64_t key;
	float x, y, cos, sin; /* middle, in image sides, and direction */
	float length, width;  /* half of each */
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

/* Distance in image sides, negative inside. */
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
	float x, y;            /* middle of the figure, in image sides */
	float to_figure[2][2]; /* from image sides to figure units */
	float unit;            /* of the figure, in image sides */
	float opacity;
};

static void scene_place_figure(struct scene *scene, uint64_t *state)
{
	float scale = random_range(state, SCALE_MIN, SCALE_MAX);
	float stretch = powf(STRETCH_MAX, random_range(state, -0.5f, 0.5f));
	float turn = random_range(state, 0, 2 * (float)M_PI);
	float axis = random_range(state, 0, (float)M_PI);
	/*
	 * Turned first, then stretched along an axis of its own: a square also becomes a slight
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
	/* Wholly inside the image, but for the corner of a stretched one. */
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

/* Share of a pixel that lies inside, for a distance in pixels. */
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
			 * Sum of three uniform values: variance 1 at +-1 each, near enough to a
			 * normal one.
			 */
			float noise = NOISE_SIGMA *
				      (random_range(&state, -1, 1) + random_range(&state, -1, 1) +
				       random_range(&state, -1, 1));

			*pixels++ = quantise(colour.r + noise);
			*pixels++ = quantise(colour.g + noise);
			*pixels++ = quantise(colour.b + noise);
		}
}
