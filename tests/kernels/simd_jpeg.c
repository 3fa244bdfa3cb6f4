/*
 * Kernels of the JPEG decoder: every instruction set against the C reference. --bench also times
 * the equivalent work of libjpeg-turbo, as far as its passes can be separated.
 *
 * Inputs end at an inaccessible page, after the padding that jpeg_kernels.h permits kernels to
 * read. Outputs end at such a page, after the padding that kernels may write.
 */
#include "tests/kernels/cpu.h"

#include "format/codec/jpeg/jpeg_frame.h"
#include "format/codec/jpeg/kernels/jpeg_kernels.h"
#include "tests/kernels/turbo_passes.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT_MAX = 700 /* pixels or samples */, BLOCKS_MAX = 70, ROWS_MAX = 6 };

static uint32_t round_up(uint32_t count, uint32_t multiple)
{
	return (count + multiple - 1) / multiple * multiple;
}

/* ---- inverse DCT ---- */

/* Draws coefficients like those of photographs, 16-bit numbers, or 16-bit extremes. */
static void draw_coefficients(int16_t natural[BLOCKS_MAX * 64], int16_t quant[64])
{
	uint32_t kind = cpu_below(4);

	for (unsigned i = 0; i < BLOCKS_MAX * 64; i++) {
		uint32_t r = cpu_random();
		unsigned k = i % 64;

		if (kind == 0)
			natural[i] = (int16_t)r;
		else if (kind == 1)
			natural[i] = r & 1 ? INT16_MAX : INT16_MIN;
		else
			natural[i] = (int16_t)((int)(r >> 8) % 600 / (int)(1 + k / 2) *
					       ((r & 255) < 255 / (1 + k / 4)));
	}
	for (unsigned k = 0; k < 64; k++)
		quant[k] = (int16_t)(kind < 2 ? cpu_random() : 1 + cpu_below(60));
}

/*
 * Tests w blocks of 2^how x 2^how samples each. Coefficients and factors are in the order of the
 * instruction set.
 */
static void idct(const struct kernel_case *k, enum cpu_isa isa)
{
	const struct jpeg_kernels *kernels = jpeg_kernels_of(isa);
	static int16_t natural[BLOCKS_MAX * 64], quant[64];
	static int16_t coefficients[BLOCKS_MAX * 64] __attribute__((aligned(128)));
	static int16_t factors[64] __attribute__((aligned(64)));
	uint32_t places[BLOCKS_MAX + JPEG_KERNEL_BLOCKS],
		padded = round_up(k->w, JPEG_KERNEL_BLOCKS);
	unsigned scale = *(const unsigned *)k->settings;
	size_t lines = (size_t)1 << scale, stride = lines * padded + cpu_below(70),
	       size = (lines - 1) * stride + lines * padded;
	uint8_t *out;

	draw_coefficients(natural, quant);
	for (uint32_t i = 0; i < padded; i++)
		places[i] = cpu_below(BLOCKS_MAX);
	for (unsigned i = 0; i < BLOCKS_MAX * 64; i++)
		coefficients[i] =
			natural[i / 64 * 64 +
				(kernels->zigzag ? jpeg_zigzag_position[i % 64] : i % 64)];
	for (unsigned i = 0; i < 64; i++)
		factors[i] = quant[kernels->quant_order ? kernels->quant_order[i] : i];
	out = cpu_writes(0, size);
	CPU_RUN(kernels->idct[scale](coefficients, places, k->w, factors, out, stride));
	for (size_t row = 0; row < lines; row++) {
		cpu_result(out + row * stride, lines * k->w);
		for (size_t i = lines * padded; i < stride && row + 1 < lines; i++)
			if (out[row * stride + i] != CPU_CANARY)
				kernels_fail("byte %zu beside row %zu is written", i, row);
	}
}

/* ---- rows of samples ---- */

/* A kernel that works on rows, its inputs and its output. */
struct row_kernel {
	size_t sample, outputs;  /* bytes per input sample, output bytes per sample */
	uint32_t inputs, around; /* number of input rows; samples read on each side of a sample */
	uint32_t sums; /* number of last inputs that are sums of four samples (at most 1020) */
	void (*call)(const struct jpeg_kernels *kernels, uint8_t *const in[ROWS_MAX], uint8_t *out,
		     uint32_t count);
};

static void call_column_sums(const struct jpeg_kernels *kernels, uint8_t *const in[ROWS_MAX],
			     uint8_t *out, uint32_t count)
{
	kernels->column_sums(in[0], in[1], (uint16_t *)(void *)out, count);
}

static void call_upsample_v(const struct jpeg_kernels *kernels, uint8_t *const in[ROWS_MAX],
			    uint8_t *out, uint32_t count)
{
	kernels->upsample_v((const uint16_t *)(const void *)in[0], out, count, 1 + (count & 1));
}

static void call_upsample_h(const struct jpeg_kernels *kernels, uint8_t *const in[ROWS_MAX],
			    uint8_t *out, uint32_t count)
{
	kernels->upsample_h(in[0], out, count);
}

static void call_rgb(const struct jpeg_kernels *kernels, uint8_t *const in[ROWS_MAX], uint8_t *out,
		     uint32_t count)
{
	kernels->rgb(in[0], in[1], in[2], out, count);
}

/* Converts a row with two pixels per chroma sample. */
static void call_rgb_hv(const struct jpeg_kernels *kernels, uint8_t *const in[ROWS_MAX],
			uint8_t *out, uint32_t count)
{
	const struct jpeg_rows_pair cb = {in[1], in[2]}, cr = {in[3], in[4]};
	const uint8_t *const y[2] = {in[0], NULL};
	uint8_t *const outputs[2] = {out, NULL};

	kernels->rgb_hv(y, &cb, &cr, count & 1, outputs, 2 * count);
}

/* As call_rgb_hv(), for the second of two rows. */
static void call_rgb_hv_2(const struct jpeg_kernels *kernels, uint8_t *const in[ROWS_MAX],
			  uint8_t *out, uint32_t count)
{
	static uint8_t first[6 * (COUNT_MAX + JPEG_KERNEL_SAMPLES)];
	const struct jpeg_rows_pair cb = {in[1], in[2]}, cr = {in[3], in[4]};
	const uint8_t *const y[2] = {in[5], in[0]};
	uint8_t *const outputs[2] = {first, out};

	kernels->rgb_hv(y, &cb, &cr, count & 1, outputs, 2 * count);
}

static void call_grey(const struct jpeg_kernels *kernels, uint8_t *const in[ROWS_MAX], uint8_t *out,
		      uint32_t count)
{
	kernels->grey(in[0], out, count);
}

/* column_sums, upsample_v, upsample_h, rgb, rgb_hv, rgb_hv of two, grey */
static const struct row_kernel row_kernels[] = {
	{1, 2, 2, 0, 0, call_column_sums}, {2, 1, 1, 0, 1, call_upsample_v},
	{1, 2, 1, 1, 0, call_upsample_h},  {1, 3, 3, 0, 0, call_rgb},
	{2, 6, 5, 1, 0, call_rgb_hv},      {2, 6, 6, 1, 0, call_rgb_hv_2},
	{1, 3, 1, 0, 0, call_grey},
};

/*
 * Tests w samples. Inputs are readable up to the rounded-up count, and for the samples on each
 * side.
 */
static void row(const struct kernel_case *k, enum cpu_isa isa)
{
	const struct row_kernel *kernel = k->settings;
	uint32_t count = k->w, samples = round_up(count, JPEG_KERNEL_SAMPLES) + 2 * kernel->around;
	uint8_t *in[ROWS_MAX] = {NULL};

	for (uint32_t i = 0; i < kernel->inputs; i++) {
		uint16_t *sums = cpu_reads(kernel->sample * samples);

		for (uint32_t j = 0; j < samples && i + kernel->sums >= kernel->inputs; j++)
			sums[j] %= 1021;
		in[i] = (uint8_t *)sums + kernel->sample * kernel->around;
	}
	uint8_t *out = cpu_writes(kernel->outputs * count,
				  kernel->outputs * round_up(count, JPEG_KERNEL_SAMPLES));
	CPU_RUN(kernel->call(jpeg_kernels_of(isa), in, out, count));
}

static void convert_colours(const struct jpeg_kernels *kernels, uint8_t chroma, uint8_t *out)
{
	uint8_t y[256], cb[256], cr[256];

	memset(cb, chroma, sizeof(cb));
	for (unsigned i = 0; i < 256; i++)
		y[i] = (uint8_t)i;
	for (unsigned i = 0; i < 256; i++) {
		memset(cr, (int)i, sizeof(cr));
		kernels->rgb(y, cb, cr, out + (size_t)768 * i, 256);
	}
}

/* Tests all combinations of luma and chroma values, with one value of blue chroma per case. */
static void all_colours(const struct kernel_case *k, enum cpu_isa isa)
{
	uint8_t *out = cpu_writes((size_t)768 * 256, (size_t)768 * 256);

	CPU_RUN(convert_colours(jpeg_kernels_of(isa), (uint8_t)(k->w - 1), out));
}

/* ---- unstuffing ---- */

/*
 * Draws bytes in which, up to a random offset, each FF is followed by a zero. Returns the number of
 * bytes that unstuffing gives before the first FF without a zero after it; *ret_read is the number
 * of bytes before that FF, or `size` if there is none.
 */
static size_t draw_stuffed(uint8_t *data, uint32_t size, uint8_t *expected, size_t *ret_read)
{
	uint32_t ends = cpu_below(4 * size + 1), seldom = 1 + cpu_below(80);
	size_t at = 0, done = 0;

	for (uint32_t i = 0; i < size; i++) {
		data[i] = cpu_below(seldom) ? (uint8_t)cpu_below(4) : 255;
		if (i > 0 && data[i - 1] == 255)
			data[i] = i < ends ? 0 : (uint8_t)(1 + cpu_below(255));
	}
	while (at < size && (data[at] != 255 || (at + 1 < size && data[at + 1] == 0))) {
		expected[done++] = data[at];
		at += data[at] == 255 ? 2 : 1;
	}
	*ret_read = at;
	return done;
}

static void unstuff(const struct kernel_case *k, enum cpu_isa isa)
{
	uint32_t size = k->w - 1;
	static uint8_t expected[COUNT_MAX];
	uint8_t *data = cpu_reads(size), *out;
	size_t at, done = draw_stuffed(data, size, expected, &at), read = SIZE_MAX, written = 0;

	out = cpu_writes(done, done + 64);
	CPU_RUN(written = jpeg_kernels_of(isa)->unstuff(data, size, out, &read));
	if (written != done || read != at || memcmp(out, expected, done) != 0)
		kernels_fail("%zu bytes of %zu, not %zu of %zu", written, read, done, at);
}

/* Times unstuffing with two stuffed bytes in 100, as in photographs. */
static void timed_unstuff(const struct kernel_case *k, enum cpu_isa isa)
{
	uint8_t *scan = cpu_reads(k->w), *out = cpu_writes(0, k->w + 64);
	size_t read;

	for (size_t i = 0; i < k->w; i++)
		scan[i] = i > 0 && scan[i - 1] == 255 ? 0
			  : cpu_below(50) == 0        ? 255
						      : (uint8_t)cpu_below(255);
	CPU_RUN(jpeg_kernels_of(isa)->unstuff(scan, k->w, out, &read));
}

static const unsigned scales[] = {0, 1, 2, 3};

static const struct kernel_test tests[] = {
	CHECK_WIDTHS_EACH(row, COUNT_MAX, 1, row_kernels),
	CHECK_WIDTHS(unstuff, COUNT_MAX, 4),
	CHECK_WIDTHS_EACH(idct, BLOCKS_MAX, 20, scales),
	CHECK_WIDTHS(all_colours, 256, 1),
};

/* ---- timed: a row of blocks as the decoder passes it, and one image row of the same width ---- */

/* Returns the time of upsampling and colour conversion in ns per pixel. */
static double turbo_colour(int components, int h, int v)
{
	struct turbo_pass pass = {.components = components, .h = h, .v = v, .denominator = 1};
	double rgb = turbo_pass_ns(&pass);

	if (rgb < 0)
		exit(1);
	pass.raw = true;
	return (rgb - turbo_pass_ns(&pass)) / (TURBO_PASS_WIDTH * TURBO_PASS_HEIGHT);
}

/*
 * Returns the time per pixel. `how`: components, and the pixels per chroma sample, horizontally and
 * vertically.
 */
static double turbo_rgb(const struct kernel_case *k)
{
	const int *how = k->settings;

	return how[1] * how[2] * turbo_colour(how[0], how[1], how[2]);
}

static double turbo_idct(const struct kernel_case *k)
{
	struct turbo_pass pass = {1, 1, 1, true, 8u >> *(const unsigned *)k->settings};

	return turbo_pass_ns(&pass) / (TURBO_PASS_WIDTH / 8 * TURBO_PASS_HEIGHT / 8);
}

static const int full[] = {3, 1, 1}, halved[] = {3, 2, 2}, grey[] = {1, 1, 1};

/* clang-format off */
#define TURBO(measured) .implementation = "libjpeg-turbo", .measure = (measured)
#define IDCT(name, scale) \
	{"idct", name, idct, .n = 1, .h = 1, .w = 44, .c = 1, .settings = &scales[scale], .unit = "block"}, \
	{"idct", name, .settings = &scales[scale], .unit = "block", TURBO(turbo_idct)}
#define ROW(name, index) \
	{"row", name, row, .n = 1, .h = 1, .w = 341, .c = 1, .settings = &row_kernels[index], .unit = "sample of input"}
#define TURBO_ROW(name, shape) \
	{"row", name, .settings = shape, .unit = "sample of input", TURBO(turbo_rgb)}

static const struct kernel_case timed[] = {
	{"unstuff", NULL, timed_unstuff, .n = 1, .h = 1, .w = 2048, .c = 1, .unit = "byte"},
	IDCT("idct to 1x1", 0),
	IDCT("idct to 2x2", 1),
	IDCT("idct to 4x4", 2),
	IDCT("idct", 3),
	ROW("column_sums", 0),
	ROW("upsample_v", 1),
	ROW("upsample_h", 2),
	ROW("rgb", 3),
	TURBO_ROW("rgb", full),
	ROW("rgb_hv", 4),
	ROW("rgb_hv of two", 5),
	TURBO_ROW("rgb_hv of two", halved),
	ROW("grey", 6),
	TURBO_ROW("grey", grey),
};
/* clang-format on */

KERNELS_MAIN(&cpu_kernels, tests, timed)
