#include "format/augment/paste.h"
#include "format/augment/apply/coordinates.h"
#include "format/augment/grammar/transforms.h"
#include "format/base/polygons.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Numbers from 1 to this that objects get. */
enum { NUMBERS_MAX_GIVEN = 65535 };

void paste_draw(const struct pipeline *pipeline, uint64_t seed, uint64_t epoch, uint64_t index,
		struct paste *ret_paste)
{
	const struct pipeline_paste *step = pipeline_paste(pipeline);
	struct paste paste = {0};

	if (step->position >= 0) {
		random_init(&paste.random, seed, epoch, index, RANDOM_PASTE);
		paste.on = (double)random_float(&paste.random) < step->probability;
		paste.other = (uint64_t)random_u32(&paste.random) << 32;
		paste.other |= random_u32(&paste.random);
	}
	*ret_paste = paste;
}

void paste_choose(const struct paste *paste, uint8_t *ret_chosen, uint32_t count)
{
	struct random_stream random = paste->random;

	memset(ret_chosen, 0, count);
	for (uint32_t i = 0; i < count; i++)
		ret_chosen[random_below(&random, count)] = 1;
}

bool paste_takes_numbers(enum schema_element element)
{
	return element == SCHEMA_U8 || element == SCHEMA_U16 || element == SCHEMA_I16 ||
	       element == SCHEMA_I32 || element == SCHEMA_I64;
}

int32_t paste_largest_number(enum schema_element element)
{
	return element == SCHEMA_U8    ? UINT8_MAX
	       : element == SCHEMA_I16 ? INT16_MAX
				       : NUMBERS_MAX_GIVEN;
}

/* Returns a number of a mask or of boxes; 0 if no mask can have it. */
static int32_t load_number(enum schema_element element, const uint8_t *at)
{
	uint16_t half;
	int32_t whole;
	int64_t wide;

	switch (element) {
	case SCHEMA_U8:
		return *at;
	case SCHEMA_U16:
	case SCHEMA_I16:
		memcpy(&half, at, sizeof(half));
		return element == SCHEMA_U16 ? half : (int16_t)half;
	case SCHEMA_I32:
		memcpy(&whole, at, sizeof(whole));
		return whole;
	default:
		memcpy(&wide, at, sizeof(wide));
		return wide >= INT32_MIN && wide <= INT32_MAX ? (int32_t)wide : 0;
	}
}

void paste_numbers_load(enum schema_element element, const void *rows, uint32_t count,
			struct paste_number *ret_numbers)
{
	size_t size = schema_element_size(element);

	for (uint32_t i = 0; i < count; i++)
		ret_numbers[i] = (struct paste_number){
			load_number(element, (const uint8_t *)rows + i * size), i};
}

static int compare_numbers(const void *a, const void *b)
{
	const struct paste_number *x = a, *y = b;

	if (x->number != y->number)
		return x->number < y->number ? -1 : 1;
	return x->object < y->object ? -1 : x->object > y->object;
}

void paste_numbers_sort(struct paste_number *numbers, uint32_t count)
{
	qsort(numbers, count, sizeof(*numbers), compare_numbers);
}

/* Returns the place of the first object with the number; UINT32_MAX if there is none. */
static uint32_t find_number(const struct paste_objects *objects, int32_t number)
{
	uint32_t low = 0, high = objects->count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (objects->numbers[middle].number < number)
			low = middle + 1;
		else
			high = middle;
	}
	bool found = number > 0 && low < objects->count && objects->numbers[low].number == number;

	return found ? low : UINT32_MAX;
}

/* Pixels x to end of row y, all of one object or of none. */
struct run {
	uint32_t x, y, end;
	uint32_t place; /* in objects->numbers; UINT32_MAX for none */
	int32_t number;
};

/* Returns an element, repeated in all bytes. */
static uint64_t repeat_element(const uint8_t *at, size_t size)
{
	uint64_t same;
	uint32_t word;
	uint16_t half;

	switch (size) {
	case 1:
		return *at * 0x0101010101010101u;
	case 2:
		memcpy(&half, at, sizeof(half));
		return half * 0x0001000100010001u;
	case 4:
		memcpy(&word, at, sizeof(word));
		return word * 0x0000000100000001u;
	default:
		memcpy(&same, at, sizeof(same));
		return same;
	}
}

enum { BLOCK_WORDS = 8 };

/* Returns true if a block has only this word. */
static bool block_is(const uint8_t *block, uint64_t same)
{
	uint64_t words[BLOCK_WORDS], differ = 0;

	memcpy(words, block, sizeof(words));
	for (int i = 0; i < BLOCK_WORDS; i++)
		differ |= words[i] ^ same;
	return differ == 0;
}

/* Returns the end of the elements from x on that equal the one at x. size: bytes of an element. */
static uint32_t run_end(const uint8_t *row, uint32_t x, uint32_t width, size_t size)
{
	const uint64_t same = repeat_element(row + x * size, size);
	const size_t end = width * size;
	size_t at = (x + 1) * size;
	uint64_t next;

	while (at + sizeof(next) * BLOCK_WORDS <= end && block_is(row + at, same))
		at += sizeof(next) * BLOCK_WORDS;
	for (; at + sizeof(next) <= end; at += sizeof(next)) {
		memcpy(&next, row + at, sizeof(next));
		if (next != same) /* little-endian: the first bytes are the lowest */
			return (uint32_t)((at + (unsigned)__builtin_ctzll(next ^ same) / 8) / size);
	}
	while (at < end && repeat_element(row + at, size) == same)
		at += size;
	return (uint32_t)(at / size);
}

/* Moves to the next run of a mask. Begin with zeros. Returns false after the last one. */
static bool next_run(const struct paste_objects *objects, struct run *run)
{
	size_t size = schema_element_size(objects->element);
	uint32_t width = objects->width;

	if (run->end == width) {
		run->end = 0;
		run->y++;
	}
	if (run->y >= objects->height)
		return false;
	const uint8_t *row = (const uint8_t *)objects->mask + (size_t)run->y * width * size;

	run->x = run->end;
	run->end = run_end(row, run->x, width, size);
	int32_t number = load_number(objects->element, row + run->x * size);

	if (number != run->number || (run->x | run->y) == 0)
		run->place = find_number(objects, number);
	run->number = number;
	return true;
}

static void area_add(struct paste_area *area, uint32_t y, uint32_t x, uint32_t end)
{
	if (area->pixels == 0)
		area->box = (struct pixel_box){x, y, end, y + 1};
	area->box.left = x < area->box.left ? x : area->box.left;
	area->box.right = end > area->box.right ? end : area->box.right;
	area->box.bottom = y + 1;
	area->pixels += end - x;
}

/* Adds the pixels from x to end that are set in `inside`, if not NULL, and not in the cover. */
static void area_add_open(struct paste_area *area, uint32_t y, uint32_t x, uint32_t end,
			  const uint8_t *inside, const uint8_t *cover)
{
	while (x < end) {
		uint32_t from = x;

		while (x < end && (!inside || inside[x]) && !(cover && cover[x]))
			x++;
		if (x > from)
			area_add(area, y, from, x);
		while (x < end && ((inside && !inside[x]) || (cover && cover[x])))
			x++;
	}
}

static void measure_mask(const struct paste_objects *objects, const uint8_t *cover,
			 struct paste_area *whole, struct paste_area *visible)
{
	const struct paste_number *numbers = objects->numbers;
	struct run run = {0};

	memset(whole, 0, objects->count * sizeof(*whole));
	if (cover)
		memset(visible, 0, objects->count * sizeof(*visible));
	while (next_run(objects, &run)) {
		if (run.place == UINT32_MAX)
			continue;
		uint32_t object = numbers[run.place].object;

		area_add(&whole[object], run.y, run.x, run.end);
		if (cover)
			area_add_open(&visible[object], run.y, run.x, run.end, NULL,
				      cover + (size_t)run.y * objects->width);
	}
	for (uint32_t i = 1; i < objects->count; i++)
		if (numbers[i].number == numbers[i - 1].number) {
			whole[numbers[i].object] = whole[numbers[i - 1].object];
			if (cover)
				visible[numbers[i].object] = visible[numbers[i - 1].object];
		}
}

/* Returns the row after the polygons of the object that begins at row `first`. */
static size_t object_end(const struct paste_objects *objects, size_t first)
{
	size_t vertices = 1;

	while (first < objects->vertex_count && vertices > 0)
		first = polygons_next(objects->vertices, objects->vertex_count, first, &vertices);
	return first;
}

static void measure_box(const struct paste_objects *objects, const struct pixel_box *box,
			const uint8_t *cover, struct paste_area *area)
{
	const size_t width = objects->width;

	for (uint32_t y = box->top; y < box->bottom; y++)
		area_add_open(area, y, box->left, box->right, objects->polygons.inside + y * width,
			      cover ? cover + y * width : NULL);
}

static void cover_box(const struct paste_objects *objects, const struct pixel_box *box,
		      uint8_t *cover)
{
	for (uint32_t y = box->top; y < box->bottom; y++)
		for (uint32_t x = box->left; x < box->right; x++) {
			size_t at = (size_t)y * objects->width + x;

			cover[at] |= objects->polygons.inside[at];
		}
}

/*
 * Steps for the polygons of all objects: 64 pictures, and as many crossings as many objects of
 * usual outlines have.
 */
static uint64_t steps_of(const struct paste_objects *objects)
{
	return ((uint64_t)objects->width * objects->height << 6) + (1 << 24);
}

/* Draws object i, whose polygons begin at *row, and sets *row to those of the next one. */
static bool draw_object(struct paste_objects *objects, uint32_t i, size_t *row,
			struct pixel_box *ret_box)
{
	size_t first = *row;

	if (i == 0)
		objects->polygons.steps = steps_of(objects);
	*row = object_end(objects, first);
	return polygon_mask_add(&objects->polygons, objects->vertices + 2 * first, *row - first,
				ret_box);
}

static void measure_polygons(struct paste_objects *objects, const uint8_t *cover,
			     struct paste_area *whole, struct paste_area *visible)
{
	size_t row = 0;

	for (uint32_t i = 0; i < objects->count; i++) {
		struct pixel_box box;
		bool known = draw_object(objects, i, &row, &box);

		whole[i] = (struct paste_area){0};
		if (known)
			measure_box(objects, &box, NULL, &whole[i]);
		if (cover)
			visible[i] = (struct paste_area){0};
		if (known && cover)
			measure_box(objects, &box, cover, &visible[i]);
		polygon_mask_clear(&objects->polygons, &box);
	}
}

static void cover_polygons(struct paste_objects *objects, const uint8_t *chosen, uint8_t *cover)
{
	size_t row = 0;

	for (uint32_t i = 0; i < objects->count; i++) {
		struct pixel_box box;

		if (draw_object(objects, i, &row, &box) && chosen[i])
			cover_box(objects, &box, cover);
		polygon_mask_clear(&objects->polygons, &box);
	}
}

void paste_measure(struct paste_objects *objects, const uint8_t *cover,
		   struct paste_area *ret_whole, struct paste_area *ret_visible)
{
	if (objects->mask)
		measure_mask(objects, cover, ret_whole, ret_visible);
	else
		measure_polygons(objects, cover, ret_whole, ret_visible);
}

void paste_cover(struct paste_objects *objects, const uint8_t *chosen, uint8_t *cover)
{
	struct run run = {0};

	if (!objects->mask) {
		cover_polygons(objects, chosen, cover);
		return;
	}
	while (next_run(objects, &run))
		if (run.place != UINT32_MAX && chosen[objects->numbers[run.place].object])
			memset(cover + (size_t)run.y * objects->width + run.x, 1, run.end - run.x);
}

static void use_number(uint8_t *used, int32_t number)
{
	if (number > 0 && number <= NUMBERS_MAX_GIVEN)
		used[number / 8] |= (uint8_t)(1 << number % 8);
}

void paste_renumber(const struct paste_objects *below, const struct paste_objects *above,
		    uint8_t *chosen, int32_t *ret_numbers)
{
	const struct paste_number *numbers = above->numbers;
	uint8_t used[NUMBERS_MAX_GIVEN / 8 + 1] = {0};
	int32_t next = 0, most = below->most;
	struct run run = {0};

	while (next_run(below, &run))
		use_number(used, run.number);
	for (uint32_t i = 0; i < below->count; i++)
		use_number(used, below->numbers[i].number);
	memset(ret_numbers, 0, above->count * sizeof(*ret_numbers));
	for (uint32_t i = 0; i < above->count;) {
		const int32_t number = numbers[i].number;
		uint32_t end = i;
		int32_t given = 0;
		bool any = false;

		for (; end < above->count && numbers[end].number == number; end++)
			any = any || chosen[numbers[end].object];
		if (any && number > 0 && next <= most) {
			do {
				next++;
			} while (next <= most && used[next / 8] & 1 << next % 8);
			given = next <= most ? next : 0;
		}
		for (; i < end; i++) {
			chosen[numbers[i].object] = given > 0;
			ret_numbers[numbers[i].object] = given;
		}
	}
}

void paste_mask(const struct paste_objects *above, const int32_t *numbers, const uint8_t *cover,
		void *mask)
{
	size_t size = schema_element_size(above->element);
	struct run run = {0};

	while (next_run(above, &run)) {
		size_t at = (size_t)run.y * above->width + run.x;

		if (run.place == UINT32_MAX || !cover[at])
			continue;
		int64_t number = numbers[above->numbers[run.place].object];

		/* the low bytes of a little-endian number are the narrower number */
		for (uint32_t x = run.x; x < run.end; x++, at++)
			memcpy((uint8_t *)mask + at * size, &number, size);
	}
}

/* Returns true if a step erases from finished samples. */
static bool erases_finished(const struct pipeline *pipeline)
{
	for (unsigned i = 0; i < pipeline->transform_count; i++)
		if (pipeline->transforms[i].finished &&
		    pipeline->transforms[i].kind >= TRANSFORM_BOXES_COUNT)
			return true;
	return false;
}

bool paste_window(const struct pipeline *pipeline, const struct paste_objects *objects,
		  const struct paste_area *areas, const uint8_t *chosen,
		  struct pipeline_window *ret_window)
{
	struct pixel_box all = {objects->width, objects->height, 0, 0};

	for (uint32_t i = 0; i < objects->count; i++) {
		const struct pixel_box *box = &areas[i].box;

		if (!chosen[i] || areas[i].pixels == 0)
			continue;
		all.left = box->left < all.left ? box->left : all.left;
		all.top = box->top < all.top ? box->top : all.top;
		all.right = box->right > all.right ? box->right : all.right;
		all.bottom = box->bottom > all.bottom ? box->bottom : all.bottom;
	}
	if (all.bottom == 0)
		return false;
	if (erases_finished(pipeline))
		all = (struct pixel_box){0, 0, objects->width, objects->height};
	*ret_window = (struct pipeline_window){all.left, all.top, all.right - all.left,
					       all.bottom - all.top};
	return true;
}

void paste_pixels(const uint8_t *cover, uint32_t width, uint32_t height,
		  const struct pipeline_window *window, size_t pixel, uint32_t planes,
		  const void *above, void *below)
{
	for (uint32_t y = 0; y < window->height; y++) {
		const uint8_t *row = cover + (size_t)(window->y + y) * width + window->x;

		for (uint32_t x = 0; x < window->width;) {
			uint32_t from = x;

			while (x < window->width && row[x])
				x++;
			for (uint32_t plane = 0; x > from && plane < planes; plane++) {
				size_t at =
					((size_t)plane * window->height + y) * window->width + from;
				size_t to = ((size_t)plane * height + window->y + y) * width +
					    window->x + from;

				memcpy((uint8_t *)below + to * pixel,
				       (const uint8_t *)above + at * pixel, (x - from) * pixel);
			}
			while (x < window->width && !row[x])
				x++;
		}
	}
}

/* Returns the largest distance between the same sides of two boxes. */
static uint32_t largest_move(const struct pixel_box *from, const struct pixel_box *to)
{
	/* what is visible is within the whole */
	const uint32_t moves[4] = {to->left - from->left, to->top - from->top,
				   from->right - to->right, from->bottom - to->bottom};
	uint32_t most = 0;

	for (int i = 0; i < 4; i++)
		most = moves[i] > most ? moves[i] : most;
	return most;
}

bool paste_keeps(const struct pipeline *pipeline, const struct paste_area *whole,
		 const struct paste_area *visible)
{
	const struct pipeline_paste *step = pipeline_paste(pipeline);

	if (visible->pixels == whole->pixels)
		return true;
	return visible->pixels > 0 &&
	       ((double)visible->pixels > step->mask_occluded_thr ||
		largest_move(&whole->box, &visible->box) <= step->bbox_occluded_thr);
}

void paste_shrink_box(const struct coordinates *coordinates, const struct paste_objects *objects,
		      const struct paste_area *whole, const struct paste_area *visible, float *row)
{
	const struct pixel_box *from = &whole->box, *to = &visible->box;
	const float width = (float)objects->width, height = (float)objects->height;
	const float limits[4] = {to->left > from->left ? (float)to->left : -INFINITY,
				 to->top > from->top ? (float)to->top : -INFINITY,
				 to->right < from->right ? (float)to->right : INFINITY,
				 to->bottom < from->bottom ? (float)to->bottom : INFINITY};

	if (memcmp(from, to, sizeof(*from)) != 0 && coordinates->format != SCHEMA_CXCYWHR)
		coordinates_limit_box(coordinates, width, height, limits, row);
}
