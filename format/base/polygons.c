#include "format/base/polygons.h"

#include "format/base/copy_once.h"

#include <math.h>

enum { ROW_SIZE = 2 * sizeof(float) };

static bool is_vertex(const void *rows, size_t row)
{
	float point[2];

	copy_once(point, (const uint8_t *)rows + row * ROW_SIZE, sizeof(point));
	return isfinite(point[0]) && isfinite(point[1]);
}

size_t polygons_next(const void *rows, size_t count, size_t first, size_t *ret_vertices)
{
	size_t end = first;

	while (end < count && is_vertex(rows, end))
		end++;
	*ret_vertices = end - first;
	return end < count ? end + 1 : count;
}

uint64_t polygons_count(const void *rows, size_t count)
{
	uint64_t objects = 0;
	bool whole = true;

	for (size_t row = 0; row < count;) {
		size_t vertices;

		row = polygons_next(rows, count, row, &vertices);
		whole = vertices == 0;
		objects += whole;
	}
	return whole ? objects : UINT64_MAX;
}

size_t polygons_keep(void *rows, size_t count, const uint8_t *keep, size_t objects)
{
	uint8_t *bytes = rows;
	size_t kept = 0, object = 0;

	for (size_t row = 0; row < count && object < objects;) {
		size_t vertices, next = polygons_next(rows, count, row, &vertices);

		if (keep[object]) {
			memmove(bytes + kept * ROW_SIZE, bytes + row * ROW_SIZE,
				(next - row) * ROW_SIZE);
			kept += next - row;
		}
		object += vertices == 0;
		row = next;
	}
	return kept;
}
