#include "format/where/where_text.h"

#include "format/base/polygons.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum {
	PIECE_MAX = 4096,       /* bytes of a text read at once */
	CHARACTER_MAX = 4,      /* bytes of a character of UTF-8 */
	POLYGON_ROW_SIZE = 8,   /* bytes */
	POLYGON_ROWS_MAX = 512, /* read at once */
};

/* Returns size bytes of a text, at most PIECE_MAX if it is stored; those are copied to buffer. */
static int text_piece(const struct where_sample *sample, const struct where_operand *text,
		      size_t offset, size_t size, char buffer[PIECE_MAX], const char **ret_bytes)
{
	const char *at = text->text.bytes + offset;

	if (text->kind == WHERE_HELD) {
		*ret_bytes = at;
		return 0;
	}
	*ret_bytes = buffer;
	return packimg_read(sample->dataset, sample->index, at, buffer, size) < 0 ? -EBADMSG : 0;
}

static size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

int where_text_compare(const struct where_sample *sample, const struct where_operand *a,
		       const struct where_operand *b, bool only_equality, int *ret_order)
{
	size_t common = min_size(a->text.size, b->text.size);
	int order = (a->text.size > b->text.size) - (a->text.size < b->text.size);
	char buffer_a[PIECE_MAX], buffer_b[PIECE_MAX];
	const char *piece_a, *piece_b;

	if (only_equality && order != 0)
		common = 0;
	for (size_t offset = 0; offset < common; offset += PIECE_MAX) {
		size_t size = min_size(common - offset, PIECE_MAX);

		if (text_piece(sample, a, offset, size, buffer_a, &piece_a) < 0 ||
		    text_piece(sample, b, offset, size, buffer_b, &piece_b) < 0)
			return -EBADMSG;
		int difference = memcmp(piece_a, piece_b, size);
		if (difference != 0) {
			order = difference < 0 ? -1 : 1;
			break;
		}
	}
	*ret_order = order;
	return 0;
}

int where_text_order(const struct where_text *a, const struct where_text *b)
{
	if (a->size != b->size)
		return a->size < b->size ? -1 : 1;
	return memcmp(a->bytes, b->bytes, a->size);
}

/* A range of a list whose texts have one size and begin with the same bytes. */
struct text_range {
	const struct where_operand *list;
	size_t first, end;
};

/* Returns the first text of the range whose size is at least, or more than, the given one. */
static size_t find_size(const struct text_range *range, size_t size, bool more)
{
	size_t low = range->first, high = range->end;

	while (low < high) {
		size_t middle = low + (high - low) / 2, at = range->list[middle].text.size;

		if (at < size || (more && at == size))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Same for the bytes of the texts at an offset. */
static size_t find_piece(const struct text_range *range, size_t offset, const char *piece,
			 size_t size, bool more)
{
	size_t low = range->first, high = range->end;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = memcmp(range->list[middle].text.bytes + offset, piece, size);

		if (order < 0 || (more && order == 0))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int where_text_in(const struct where_sample *sample, const struct where_operand *text,
		  const struct where_operand *list, size_t count, bool *ret_found)
{
	struct text_range range = {list, 0, count};
	char buffer[PIECE_MAX];
	const char *piece;

	range.first = find_size(&range, text->text.size, false);
	range.end = find_size(&range, text->text.size, true);
	for (size_t offset = 0; range.first < range.end && offset < text->text.size;
	     offset += PIECE_MAX) {
		size_t size = min_size(text->text.size - offset, PIECE_MAX);

		if (text_piece(sample, text, offset, size, buffer, &piece) < 0)
			return -EBADMSG;
		range.first = find_piece(&range, offset, piece, size, false);
		range.end = find_piece(&range, offset, piece, size, true);
	}
	*ret_found = range.first < range.end;
	return 0;
}

/* The bytes of a text around the current position of a matcher. */
struct text_window {
	const struct where_sample *sample;
	const struct where_operand *text;
	size_t start, size;
	const char *bytes;
	char *buffer; /* PIECE_MAX bytes */
};

/* A matcher looks at no more bytes after the last '*'. */
static_assert(WHERE_PATTERN_MAX * CHARACTER_MAX < PIECE_MAX, "a window holds what is compared");

/*
 * Returns byte `at` of the text. Bytes before `keep` are not needed any more; those from there on
 * are in the window afterwards, if they are no more than PIECE_MAX before `at`.
 */
static int window_byte(struct text_window *window, size_t keep, size_t at, uint8_t *ret_byte)
{
	if (at >= window->start + window->size) {
		size_t size = min_size(window->text->text.size - keep, PIECE_MAX);

		if (window->text->kind == WHERE_HELD)
			size = window->text->text.size - keep;
		if (text_piece(window->sample, window->text, keep, size, window->buffer,
			       &window->bytes) < 0)
			return -EBADMSG;
		window->start = keep;
		window->size = size;
	}
	*ret_byte = (uint8_t)window->bytes[at - window->start];
	return 0;
}

struct like {
	struct text_window window;
	const struct where_text *pattern;
	size_t in_pattern, in_text;
	/* after the last '*', and the end of the text that it takes */
	bool has_star;
	size_t star_pattern, star_text;
};

static int like_byte(struct like *like, uint8_t *ret_byte)
{
	return window_byte(&like->window, like->has_star ? like->star_text : like->in_text,
			   like->in_text, ret_byte);
}

/* Advances past the continuation bytes of a character. */
static int skip_character(struct like *like)
{
	uint8_t byte;

	like->in_text++;
	for (int i = 1; i < CHARACTER_MAX && like->in_text < like->window.text->text.size; i++) {
		if (like_byte(like, &byte) < 0)
			return -EBADMSG;
		if ((byte & 0xc0) != 0x80)
			break;
		like->in_text++;
	}
	return 0;
}

/* Matches the next byte or character. Returns 1 if it matches, 0 if not. */
static int like_step(struct like *like)
{
	const char *next = like->pattern->bytes + like->in_pattern;
	uint8_t byte;

	if (like->in_pattern == like->pattern->size)
		return 0;
	if (*next == '?') {
		like->in_pattern++;
		return skip_character(like) < 0 ? -EBADMSG : 1;
	}
	bool quoted = *next == '\\';
	if (like_byte(like, &byte) < 0)
		return -EBADMSG;
	if ((uint8_t)next[quoted] != byte)
		return 0;
	like->in_pattern += 1 + quoted;
	like->in_text++;
	return 1;
}

static bool like_takes_star(struct like *like)
{
	bool star = like->in_pattern < like->pattern->size &&
		    like->pattern->bytes[like->in_pattern] == '*';

	if (star) {
		like->has_star = true;
		like->star_pattern = ++like->in_pattern;
		like->star_text = like->in_text;
	}
	return star;
}

int where_text_like(const struct where_sample *sample, const struct where_operand *text,
		    const struct where_text *pattern, bool *ret_matches)
{
	char buffer[PIECE_MAX];
	struct like like = {
		.window = {.sample = sample, .text = text, .buffer = buffer},
		.pattern = pattern,
	};

	*ret_matches = false;
	while (like.in_text < text->text.size) {
		if (like_takes_star(&like)) {
			if (like.in_pattern < pattern->size)
				continue;
			*ret_matches = true;
			return 0;
		}
		int r = like_step(&like);
		if (r < 0)
			return r;
		if (r > 0)
			continue;
		if (!like.has_star)
			return 0;
		like.in_pattern = like.star_pattern;
		like.in_text = ++like.star_text;
	}
	while (like_takes_star(&like))
		;
	*ret_matches = like.in_pattern == pattern->size;
	return 0;
}

int where_count_objects(const struct where_sample *sample, const void *rows, size_t count,
			uint64_t *ret_objects)
{
	uint8_t piece[POLYGON_ROWS_MAX * POLYGON_ROW_SIZE];
	uint64_t objects = 0, vertices = 0;
	bool whole = true;

	for (size_t first = 0; first < count; first += POLYGON_ROWS_MAX) {
		const uint8_t *at = (const uint8_t *)rows + first * POLYGON_ROW_SIZE;
		size_t size = min_size(count - first, POLYGON_ROWS_MAX);

		if (packimg_read(sample->dataset, sample->index, at, piece,
				 size * POLYGON_ROW_SIZE) < 0)
			return -EBADMSG;
		for (size_t row = 0; row < size;) {
			size_t more, start = row;

			row = polygons_next(piece, size, row, &more);
			vertices += more;
			if (start + more == size)
				break; /* the polygon continues in the next piece */
			whole = vertices == 0;
			objects += whole;
			vertices = 0;
		}
	}
	if (!whole || vertices > 0)
		return -EBADMSG;
	*ret_objects = objects;
	return 0;
}
