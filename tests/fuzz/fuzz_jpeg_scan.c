/*
 * Compares our decoder with libjpeg-turbo on arbitrary scans under headers that our decoder
 * supports. Whatever our decoder accepts must give libjpeg-turbo's pixels: the whole image and a
 * region, as pixels and as planes, at full scale and smaller, without an index and with the index
 * that it makes. Our decoder must accept every valid scan.
 */
#include "format/codec/jpeg/jpeg_baseline.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/support/jpeg_case.h"
#include "tests/fuzz/support/jpeg_reference.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	PIXELS_MAX = JPEG_CASE_SIDE_MAX * JPEG_CASE_SIDE_MAX * 3,
	INDEX_MAX = 1 << 12,
	HELD_MAX = 15, /* maximum number of rows before the requested end that stay available */
	PLANE_HELD_MAX = 24, /* the same limit for planes */
};

static struct jpeg_baseline *decoder;
static enum { UNKNOWN, INSIDE, OUTSIDE } range; /* whether the case's coefficients are in range */
static uint8_t expected[PIXELS_MAX], index_copy[INDEX_MAX], columns[JPEG_CASE_COLUMNS_MAX];

#define FAIL(...)                                                                                  \
	do {                                                                                       \
		fprintf(stderr, __VA_ARGS__);                                                      \
		abort();                                                                           \
	} while (0)

/*
 * Returns true if libjpeg-turbo's pixels are undefined for some coefficients of the case. Computed
 * at most once per case, and only when pixels differ.
 */
static bool out_of_range(const struct jpeg_case *this)
{
	if (range == UNKNOWN)
		range = this->typical || jpeg_reference_in_range(this->file, this->size) ? INSIDE
											 : OUTSIDE;
	return range == OUTSIDE;
}

static void compare_row(const struct jpeg_case *this, const char *what, uint32_t x, uint32_t y,
			uint32_t width, const uint8_t *pixels)
{
	const uint8_t *right = expected + ((size_t)y * this->scaled_width + x) * 3;
	uint32_t i = 0;

	if (memcmp(pixels, right, 3 * (size_t)width) == 0 || out_of_range(this))
		return;
	while (pixels[i] == right[i])
		i++;
	FAIL("%s: %ux%u at 1/%u, sampling %ux%u of %u, columns %u to %u, row %u column %u channel "
	     "%u: %u, "
	     "libjpeg-turbo has %u\n",
	     what, this->width, this->height, this->denominator, this->h, this->v, this->components,
	     x, x + width - 1, y, x + i / 3, i % 3, pixels[i], right[i]);
}

/* Decodes the whole image with one call. */
static int decode_whole(const struct jpeg_case *this, const struct jpeg_source *source,
			const char *what, enum jpeg_verdict verdict)
{
	const struct jpeg_region region = {*source, 0, 0, this->scaled_width, this->scaled_height};
	struct jpeg_rows rows;
	int r = jpeg_baseline_begin(decoder, &region, true, &rows);

	r = r ?: jpeg_baseline_rows(decoder, region.height, NULL);

	for (uint32_t y = 0; r == 0 && verdict != JPEG_VERDICT_FAILED && y < this->scaled_height;
	     y++)
		compare_row(this, what, 0, y, this->scaled_width,
			    rows.data + (size_t)y * this->scaled_width * 3);
	return r;
}

/* Decodes the region, a few rows at a time. */
static int decode_region(const struct jpeg_case *this, const struct jpeg_source *source,
			 const char *what, enum jpeg_verdict verdict)
{
	struct jpeg_rows rows;
	uint32_t step = 1 + this->size % HELD_MAX, done = 0, ready;
	const struct jpeg_region region = {*source, this->x, this->y, this->region_width,
					   this->region_height};
	int r = jpeg_baseline_begin(decoder, &region, false, &rows);

	while (r == 0 && done < this->region_height) {
		uint32_t left = this->region_height - done;

		done += left < step ? left : step;
		r = jpeg_baseline_rows(decoder, done, &ready);
		if (r == 0 && (ready < done || ready > this->region_height))
			FAIL("%u of %u rows ready, %u asked for\n", ready, this->region_height,
			     done);
		for (uint32_t y = done > HELD_MAX ? done - HELD_MAX : 0;
		     r == 0 && y < ready && verdict != JPEG_VERDICT_FAILED; y++)
			compare_row(this, what, this->x, this->y + y, this->region_width,
				    rows.data + (rows.ring ? y % rows.ring : y) * rows.stride);
	}
	return r;
}

/*
 * Compares the rows of one component that are complete once the region is decoded up to row `end`.
 */
static void compare_plane(const struct jpeg_case *this, const char *what, unsigned component,
			  const struct jpeg_samples *plane,
			  const struct jpeg_reference_plane *right, uint32_t end)
{
	uint32_t rows = (end - 1) / plane->v_factor + 1; /* rows that are complete in any case */

	if (rows > plane->height)
		rows = plane->height;
	if (plane->column + plane->width > right->width ||
	    plane->row + plane->height > right->height)
		FAIL("%s: component %u has %u x %u samples from %u, %u of %u x %u\n", what,
		     component, plane->width, plane->height, plane->column, plane->row,
		     right->width, right->height);
	for (uint32_t i = rows > PLANE_HELD_MAX ? rows - PLANE_HELD_MAX : 0; i < rows; i++) {
		const uint8_t *ours = plane->data +
				      (plane->first + i) % plane->ring * plane->stride,
			      *theirs = right->samples + (plane->row + i) * right->stride +
					plane->column;

		if (memcmp(ours, theirs, plane->width) != 0 && !out_of_range(this))
			FAIL("%s: %ux%u at 1/%u, sampling %ux%u, component %u, row %u differs\n",
			     what, this->width, this->height, this->denominator, this->h, this->v,
			     component, plane->row + i);
	}
}

/* Decodes the region's planes, a few rows at a time. */
static int decode_planes(const struct jpeg_case *this, const struct jpeg_source *source,
			 const char *what)
{
	struct jpeg_samples planes[3];
	struct jpeg_reference_plane right[3];
	enum jpeg_verdict verdict =
		jpeg_reference_samples(this->file, this->size, this->denominator, right);
	uint32_t step = 1 + this->size % HELD_MAX, done = 0;
	const struct jpeg_region region = {*source, this->x, this->y, this->region_width,
					   this->region_height};
	int r = jpeg_baseline_begin_planes(decoder, &region, planes);

	while (r == 0 && done < this->region_height) {
		uint32_t left = this->region_height - done;

		done += left < step ? left : step;
		r = jpeg_baseline_rows(decoder, done, NULL);
		for (unsigned i = 0; r == 0 && verdict != JPEG_VERDICT_FAILED && i < 3; i++)
			compare_plane(this, what, i, &planes[i], &right[i], done);
	}
	return r;
}

/* Checks that decoding with the index (of source.index_size bytes) gives the same pixels. */
static void check_indexed(const struct jpeg_case *this, struct jpeg_source source,
			  const uint8_t *index, enum jpeg_verdict verdict)
{
	int whole, part, planes;

	if (source.index_size > sizeof(index_copy))
		FAIL("index of %zu bytes\n", source.index_size);
	source.index = memcpy(index_copy, index, source.index_size);
	whole = decode_whole(this, &source, "whole, indexed", verdict);
	part = decode_region(this, &source, "region, indexed", verdict);
	planes = decode_planes(this, &source, "planes, indexed");
	if (whole < 0 || part < 0 || planes != (this->components == 3 ? 0 : -ENOTSUP))
		FAIL("the index made of it leads to %d, region %d, planes %d\n", whole, part,
		     planes);
}

/* Checks that decoding ahead, in a batch with other images, gives the same results. */
static void check_ahead(const struct jpeg_case *this, const struct jpeg_source *source,
			enum jpeg_verdict verdict, int whole, int part)
{
	const struct jpeg_region regions[] = {
		{*source, this->x, this->y, this->region_width, this->region_height},
		{*source, 0, 0, this->scaled_width, 1},
		{*source, this->x, this->y, 1, 1},
		{*source, 0, 0, this->scaled_width, this->scaled_height},
		{*source, 0, this->scaled_height - 1, 1, 1},
	};
	int r;

	jpeg_baseline_batched(decoder, regions, 2 + this->size % 4);
	r = decode_region(this, source, "region, ahead", verdict);
	if (r != part)
		FAIL("a region gives %d, ahead %d\n", part, r);
	r = decode_whole(this, source, "whole, ahead", verdict);
	if (r != whole)
		FAIL("the whole image gives %d, ahead %d\n", whole, r);
	jpeg_baseline_batched(decoder, NULL, 0);
}

/*
 * libjpeg-turbo rarely fails on these files. If it does, our decoder may still accept the region,
 * because it reads only as far as the region's end.
 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct jpeg_case this;
	enum jpeg_verdict verdict;
	const uint8_t *index;
	int whole, part, planes, indexed;

	if (!decoder && jpeg_baseline_new(&decoder) < 0)
		return 0;
	jpeg_case_build(&this, data, size);
	range = UNKNOWN;
	struct jpeg_source source = {
		this.file,       this.size,       NULL, 0, this.width, this.height,
		this.components, this.denominator};
	verdict = jpeg_reference_decode(this.file, this.size, this.denominator, expected,
					sizeof(expected));
	whole = decode_whole(&this, &source, "whole", verdict);
	part = decode_region(&this, &source, "region", verdict);
	planes = decode_planes(&this, &source, "planes");
	check_ahead(&this, &source, verdict, whole, part);
	indexed = jpeg_baseline_index(decoder, &source, &index, &source.index_size);
	if (this.valid && verdict != JPEG_VERDICT_GOOD)
		FAIL("a valid case is none to libjpeg-turbo: %s\n", jpeg_reference_complaint());
	if (whole == 0 && (verdict == JPEG_VERDICT_FAILED || part < 0))
		FAIL("whole image taken, but verdict %d (%s), region %d\n", verdict,
		     jpeg_reference_complaint(), part);
	/* planes are not upsampled, so they need no neighbouring samples */
	if (this.components == 3 ? part == 0 && planes < 0 : planes >= 0)
		FAIL("region gives %d, its planes %d\n", part, planes);
	if (this.valid && whole != 0)
		FAIL("a valid case gives %d\n", whole);
	if (this.typical && (indexed == 0) != (this.restart % this.mcus_wide == 0))
		FAIL("making an index of a valid case gives %d\n", indexed);
	if (indexed < 0)
		return 0;
	if (whole < 0)
		FAIL("indexed, but decoded only with %d\n", whole);
	check_indexed(&this, source, index, verdict);
	source.index = columns;
	source.index_size = jpeg_case_columns(&this, columns);
	indexed = jpeg_baseline_index(decoder, &source, &index, &source.index_size);
	if (this.typical && indexed < 0)
		FAIL("no index with other columns: %d\n", indexed);
	if (indexed < 0) /* a predictor at one of the new columns exceeds 16 bits */
		return 0;
	check_indexed(&this, source, index, verdict);
	return 0;
}
