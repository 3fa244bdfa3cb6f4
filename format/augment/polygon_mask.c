#include "format/augment/polygon_mask.h"
#include "format/base/polygons.h"

#include <math.h>
#include <string.h>

struct vertex {
	double x, y;
};

size_t polygon_mask_size(uint32_t width, uint32_t height)
{
	return (size_t)height * width + (size_t)height * ((size_t)width + 1);
}

/* Returns the first pixel whose centre is at `at` or after it, `count` if there is none. */
static uint32_t first_pixel(double at, uint32_t count)
{
	double pixel = ceil(at - 0.5);

	return pixel <= 0 ? 0 : pixel >= count ? count : (uint32_t)pixel;
}

static struct vertex vertex_at(const struct polygon_mask *mask, const float *rows, size_t row)
{
	return (struct vertex){rows[2 * row] * mask->scale_x, rows[2 * row + 1] * mask->scale_y};
}

static void box_reach(struct pixel_box *box, uint32_t x, uint32_t y)
{
	box->left = x < box->left ? x : box->left;
	box->right = x > box->right ? x : box->right;
	box->top = y < box->top ? y : box->top;
	box->bottom = y >= box->bottom ? y + 1 : box->bottom;
}

/* Marks where each row of pixels crosses an edge. Returns false if the steps do not suffice. */
static bool mark_edge(struct polygon_mask *mask, struct vertex from, struct vertex to,
		      struct pixel_box *box)
{
	const struct vertex upper = from.y <= to.y ? from : to, lower = from.y <= to.y ? to : from;
	uint32_t end = first_pixel(lower.y, mask->height);

	for (uint32_t y = first_pixel(upper.y, mask->height); y < end; y++) {
		double x =
			upper.x + (y + 0.5 - upper.y) * (lower.x - upper.x) / (lower.y - upper.y);
		uint32_t pixel = first_pixel(x, mask->width);

		if (mask->steps == 0)
			return false;
		mask->steps--;
		mask->starts[(size_t)y * (mask->width + 1) + pixel] ^= 1;
		box_reach(box, pixel, y);
	}
	return true;
}

/* Sets the pixels between marks, which it removes. */
static void fill_box(struct polygon_mask *mask, const struct pixel_box *box, bool sets)
{
	for (uint32_t y = box->top; y < box->bottom; y++) {
		uint8_t *starts = mask->starts + (size_t)y * (mask->width + 1);
		uint8_t *inside = mask->inside + (size_t)y * mask->width, is_inside = 0;

		for (uint32_t x = box->left; sets && x < box->right; x++) {
			is_inside ^= starts[x];
			inside[x] |= is_inside;
		}
		memset(starts + box->left, 0, box->right - box->left + 1);
	}
}

/* Takes the steps of a box. Leaves none, and returns false, if they or those before do not fit. */
static bool take_box(struct polygon_mask *mask, const struct pixel_box *box, bool fits)
{
	uint64_t pixels = (uint64_t)(box->right - box->left) * (box->bottom - box->top);

	fits = fits && pixels <= mask->steps;
	mask->steps = fits ? mask->steps - pixels : 0;
	return fits;
}

static bool add_polygon(struct polygon_mask *mask, const float *rows, size_t vertices,
			struct pixel_box *ret_box)
{
	struct pixel_box box = {mask->width, mask->height, 0, 0};
	struct vertex last;
	bool fits = true;

	*ret_box = (struct pixel_box){0};
	if (vertices < 3)
		return true;
	last = vertex_at(mask, rows, vertices - 1);
	for (size_t i = 0; fits && i < vertices; i++) {
		struct vertex next = vertex_at(mask, rows, i);

		fits = mark_edge(mask, last, next, &box);
		last = next;
	}
	if (box.bottom == 0)
		return fits;
	fits = take_box(mask, &box, fits);
	fill_box(mask, &box, fits);
	*ret_box = box;
	return fits;
}

bool polygon_mask_add(struct polygon_mask *mask, const float *rows, size_t count,
		      struct pixel_box *ret_box)
{
	struct pixel_box all = {mask->width, mask->height, 0, 0}, box;
	bool fits = true;

	for (size_t row = 0; fits && row < count;) {
		size_t vertices, next = polygons_next(rows, count, row, &vertices);

		fits = add_polygon(mask, rows + 2 * row, vertices, &box);
		if (box.bottom > 0) {
			all.left = box.left < all.left ? box.left : all.left;
			all.right = box.right > all.right ? box.right : all.right;
			all.top = box.top < all.top ? box.top : all.top;
			all.bottom = box.bottom > all.bottom ? box.bottom : all.bottom;
		}
		row = next;
	}
	if (all.bottom == 0)
		all = (struct pixel_box){0};
	*ret_box = all;
	return take_box(mask, &all, fits);
}

void polygon_mask_clear(struct polygon_mask *mask, const struct pixel_box *box)
{
	for (uint32_t y = box->top; y < box->bottom; y++)
		memset(mask->inside + (size_t)y * mask->width + box->left, 0,
		       box->right - box->left);
}
