/*
 * Compares every instruction set of the JPEG decoder's kernels with the C reference, byte for byte.
 * With --bench [SET], measures each, next to libjpeg-turbo (an additional SET) for the same work.
 *
 * Inputs end at an inaccessible page, after the padding that jpeg_kernels.h permits kernels to
 * read. Outputs are surrounded by canaries, and end at such a page if the kernel must not write
 * beyond them.
 */
#include "format/base/random.h"
#include "format/codec/jpeg/jpeg_frame.h"
#include "format/codec/jpeg/kernels/jpeg_kernels.h"
#include "tests/kernels/guarded.h"
#include "tests/kernels/turbo_passes.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	COUNT_MAX = 700, /* pixels or samples */
	BLOCKS_MAX = 70,
	SETS_MAX = 4,
	CANARY = 0xa5,
};

static const struct jpeg_kernels *sets[SETS_MAX];
static unsigned set_count;
static struct random_stream rng;

static void find_sets(void)
{
	for (int isa = 0; isa <= (int)cpu_isa_supported(); isa++)
		sets[set_count++] = jpeg_kernels_of((enum cpu_isa)isa);
}

static uint32_t round_up(uint32_t count, uint32_t unit)
{
	return (count + unit - 1) / unit * unit;
}

static void fail(const char *set, const char *kernel, uint32_t count, size_t at)
{
	fprintf(stderr, "%s %s, count %u: byte %zu differs from the reference\n", set, kernel,
		count, at);
	exit(1);
}

static void expect_equal(unsigned set, const char *kernel, uint32_t count, const void *found,
			 const void *reference, size_t size)
{
	const uint8_t *a = found, *b = reference;

	for (size_t i = 0; i < size; i++)
		if (a[i] != b[i])
			fail(sets[set]->name, kernel, count, i);
}

/* Fills with noise, or with extreme values only. */
static void fill(uint8_t *bytes, size_t size)
{
	uint32_t kind = random_below(&rng, 4);

	for (size_t i = 0; i < size; i++)
		bytes[i] = kind == 0 ? (uint8_t)(random_u32(&rng) & 1 ? 255 : 0)
				     : (uint8_t)random_u32(&rng);
}

/* ---- inverse DCT ---- */

struct dct_case {
	int16_t natural[BLOCKS_MAX * 64], quant[64];
	uint32_t places[BLOCKS_MAX + JPEG_KERNEL_BLOCKS];
	uint32_t blocks;
};

/* Draws coefficients like those of photographs, 16-bit numbers, or 16-bit extremes. */
static void draw_coefficients(struct dct_case *dct)
{
	uint32_t kind = random_below(&rng, 4);

	for (unsigned i = 0; i < BLOCKS_MAX * 64; i++) {
		uint32_t r = random_u32(&rng);
		unsigned k = i % 64;

		if (kind == 0)
			dct->natural[i] = (int16_t)r;
		else if (kind == 1)
			dct->natural[i] = r & 1 ? INT16_MAX : INT16_MIN;
		else
			dct->natural[i] = (int16_t)((int)(r >> 8) % 600 / (int)(1 + k / 2) *
						    ((r & 255) < 255 / (1 + k / 4)));
	}
	for (unsigned k = 0; k < 64; k++)
		dct->quant[k] = (int16_t)(kind < 2 ? random_u32(&rng) : 1 + random_below(&rng, 60));
	for (uint32_t i = 0; i < round_up(dct->blocks, JPEG_KERNEL_BLOCKS); i++)
		dct->places[i] = random_below(&rng, BLOCKS_MAX);
}

/* Arranges coefficients and factors in the layout of a set of kernels. */
static void arrange(const struct jpeg_kernels *kernels, const struct dct_case *dct,
		    int16_t *coefficients, int16_t *quant)
{
	for (unsigned i = 0; i < BLOCKS_MAX; i++)
		for (unsigned k = 0; k < 64; k++)
			coefficients[64 * i + k] =
				dct->natural[64 * i +
					     (kernels->zigzag ? jpeg_zigzag_position[k] : k)];
	for (unsigned k = 0; k < 64; k++)
		quant[k] = dct->quant[kernels->quant_order ? kernels->quant_order[k] : k];
}

/* Compares the inverse DCT to 2^k x 2^k samples per block. */
static void compare_idct(unsigned k, uint32_t blocks)
{
	static int16_t coefficients[BLOCKS_MAX * 64] __attribute__((aligned(128)));
	static int16_t quant[64] __attribute__((aligned(64)));
	static struct dct_case dct;
	size_t lines = (size_t)1 << k, width = lines * round_up(blocks, JPEG_KERNEL_BLOCKS);
	size_t stride = width + random_below(&rng, 70), size = (lines - 1) * stride + width;
	uint8_t *outputs[SETS_MAX];
	struct guarded guards[SETS_MAX];

	dct.blocks = blocks;
	draw_coefficients(&dct);
	for (unsigned set = 0; set < set_count; set++) {
		outputs[set] = guarded_new(&guards[set], size);
		memset(outputs[set], CANARY, size);
		arrange(sets[set], &dct, coefficients, quant);
		sets[set]->idct[k](coefficients, dct.places, blocks, quant, outputs[set], stride);
		for (unsigned row = 0; row < lines; row++) {
			expect_equal(set, "idct", blocks, outputs[set] + row * stride,
				     outputs[0] + row * stride, lines * blocks);
			for (size_t i = width; i < stride && row + 1 < lines; i++)
				if (outputs[set][row * stride + i] != CANARY)
					fail(sets[set]->name, "idct, beside its output", blocks, i);
		}
	}
	for (unsigned set = 0; set < set_count; set++)
		guarded_free(&guards[set]);
}

/* ---- rows ---- */

/* A row of count samples, readable up to the rounded-up count, with `before` samples in front. */
struct row {
	struct guarded guard;
	uint8_t *first;
};

static struct row row_new(uint32_t count, size_t sample, uint32_t before, uint32_t behind)
{
	size_t size = sample * (before + round_up(count, JPEG_KERNEL_SAMPLES) + behind);
	struct row row;
	uint8_t *begin = guarded_new(&row.guard, size);

	fill(begin, size);
	row.first = begin + sample * before;
	return row;
}

/*
 * Output of a kernel. The bytes that it may write, padding included, end at an inaccessible page.
 */
struct output {
	struct guarded guard;
	uint8_t *first;
	size_t size;
};

static struct output output_new(size_t size)
{
	struct output output = {.size = size};

	output.first = guarded_new(&output.guard, size + 64) + 64;
	memset(output.first - 64, CANARY, size + 64);
	return output;
}

static void output_check(struct output *output, unsigned set, const char *kernel, uint32_t count,
			 const struct output *reference, size_t size)
{
	for (int i = -64; i < 0; i++)
		if (output->first[i] != CANARY)
			fail(sets[set]->name, kernel, count, (size_t)i);
	expect_equal(set, kernel, count, output->first, reference->first, size);
}

enum { ROWS_MAX = 6 };

/* Describes a kernel that works on rows, its inputs and its output. */
struct row_kernel {
	const char *name;
	size_t sample, outputs;  /* bytes per input sample, output bytes per sample */
	uint32_t inputs, around; /* number of input rows; neighbouring samples read on each side */
	uint32_t sums; /* the last inputs, this many, are sums of four samples (at most 1020) */
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

/* Two pixels per chroma sample. */
static void call_rgb_hv(const struct jpeg_kernels *kernels, uint8_t *const in[ROWS_MAX],
			uint8_t *out, uint32_t count)
{
	const struct jpeg_rows_pair cb = {in[1], in[2]}, cr = {in[3], in[4]};
	const uint8_t *const y[2] = {in[0], NULL};
	uint8_t *const outputs[2] = {out, NULL};

	kernels->rgb_hv(y, &cb, &cr, count & 1, outputs, 2 * count);
}

/* The second of two rows. */
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

static const struct row_kernel row_kernels[] = {
	{"column_sums", 1, 2, 2, 0, 0, call_column_sums},
	{"upsample_v", 2, 1, 1, 0, 1, call_upsample_v},
	{"upsample_h", 1, 2, 1, 1, 0, call_upsample_h},
	{"rgb", 1, 3, 3, 0, 0, call_rgb},
	{"rgb_hv", 2, 6, 5, 1, 0, call_rgb_hv},
	{"rgb_hv of two", 2, 6, 6, 1, 0, call_rgb_hv_2},
	{"grey", 1, 3, 1, 0, 0, call_grey},
};
enum { ROW_KERNELS = sizeof(row_kernels) / sizeof(row_kernels[0]) };

static void limit_sums(const struct row_kernel *kernel, struct row *row, uint32_t count)
{
	uint16_t *sums = (uint16_t *)(void *)(row->first - kernel->sample * kernel->around);

	for (uint32_t i = 0; i < round_up(count, JPEG_KERNEL_SAMPLES) + 2 * kernel->around; i++)
		sums[i] %= 1021;
}

static void compare_rows(const struct row_kernel *kernel, uint32_t count)
{
	struct row rows[ROWS_MAX];
	struct output outputs[SETS_MAX];
	uint8_t *in[ROWS_MAX] = {NULL};

	for (uint32_t i = 0; i < kernel->inputs; i++) {
		rows[i] = row_new(count, kernel->sample, kernel->around, kernel->around);
		if (i + kernel->sums >= kernel->inputs)
			limit_sums(kernel, &rows[i], count);
		in[i] = rows[i].first;
	}
	for (unsigned set = 0; set < set_count; set++) {
		outputs[set] = output_new(kernel->outputs * round_up(count, JPEG_KERNEL_SAMPLES));
		kernel->call(sets[set], in, outputs[set].first, count);
		output_check(&outputs[set], set, kernel->name, count, &outputs[0],
			     kernel->outputs * count);
	}
	for (uint32_t i = 0; i < kernel->inputs; i++)
		guarded_free(&rows[i].guard);
	for (unsigned set = 0; set < set_count; set++)
		guarded_free(&outputs[set].guard);
}

/* Compares all combinations of luma and chroma values. */
static void compare_colours(void)
{
	static uint8_t y[256], cb[256], cr[256], reference[768], output[768];

	for (unsigned i = 0; i < 256; i++)
		y[i] = (uint8_t)i;
	for (unsigned chroma = 0; chroma < 65536; chroma++) {
		memset(cb, (int)(chroma & 255), sizeof(cb));
		memset(cr, (int)(chroma >> 8), sizeof(cr));
		sets[0]->rgb(y, cb, cr, reference, 256);
		for (unsigned set = 1; set < set_count; set++) {
			sets[set]->rgb(y, cb, cr, output, 256);
			expect_equal(set, "rgb of all colours", chroma, output, reference,
				     sizeof(output));
		}
	}
}

/*
 * Compares unstuffing of bytes with FFs, each followed by a zero, up to an FF that is not, or that
 * is the last byte.
 */
static void compare_unstuffing(uint32_t size)
{
	uint32_t ends = random_below(&rng, 4 * size + 1), seldom = 1 + random_below(&rng, 80);
	struct guarded guard;
	uint8_t *data = guarded_new(&guard, size ? size : 1);
	static uint8_t expected[COUNT_MAX];
	size_t at = 0, done = 0;

	for (uint32_t i = 0; i < size; i++) {
		data[i] = random_below(&rng, seldom) ? (uint8_t)random_below(&rng, 4) : 255;
		if (i > 0 && data[i - 1] == 255)
			data[i] = i < ends ? 0 : (uint8_t)(1 + random_below(&rng, 255));
	}
	while (at < size && (data[at] != 255 || (at + 1 < size && data[at + 1] == 0))) {
		expected[done++] = data[at];
		at += data[at] == 255 ? 2 : 1;
	}
	for (unsigned set = 0; set < set_count; set++) {
		struct output output = output_new(done + 64);
		size_t read = SIZE_MAX,
		       written = sets[set]->unstuff(data, size, output.first, &read);

		if (written != done || read != at)
			fail(sets[set]->name, "unstuff, its result", size, written);
		expect_equal(set, "unstuff", size, output.first, expected, done);
		guarded_free(&output.guard);
	}
	guarded_free(&guard);
}

static void compare_all(void)
{
	for (uint32_t count = 1; count <= COUNT_MAX; count++) {
		for (unsigned i = 0; i < ROW_KERNELS; i++)
			compare_rows(&row_kernels[i], count);
		for (unsigned i = 0; i < 4; i++)
			compare_unstuffing(count - 1);
	}
	for (unsigned i = 0; i < 20 * BLOCKS_MAX; i++)
		for (unsigned k = 0; k < JPEG_KERNEL_SCALES; k++)
			compare_idct(k, 1 + i % BLOCKS_MAX);
	compare_colours();
}

/* ---- benchmarks ---- */

enum { BENCH_BLOCKS = 44, BENCH_SAMPLES = 341, BENCH_CALLS = 4000, BENCH_ROUNDS = 15 };

static double cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void print(const char *what, const char *set, double ns, const char *unit)
{
	printf("%-14s %-13s %9.3f ns a %s\n", what, set, ns, unit);
}

static const char *const idct_names[] = {"idct to 1x1", "idct to 2x2", "idct to 4x4", "idct"};
static const char per_sample[] = "sample of input";

/* Measures a row of blocks as the decoder passes it, and one image row of the same width. */
static void bench_set(unsigned set)
{
	static int16_t coefficients[BLOCKS_MAX * 64] __attribute__((aligned(128)));
	static int16_t quant[64] __attribute__((aligned(64)));
	static uint8_t samples[ROWS_MAX][2048] __attribute__((aligned(64)));
	static uint8_t output[16384] __attribute__((aligned(64)));
	static struct dct_case dct = {.blocks = BENCH_BLOCKS};
	static uint8_t scan[2048]; /* two stuffed bytes in 100, typical of photographs */
	size_t read;
	uint8_t *in[ROWS_MAX];
	unsigned calls = set ? BENCH_CALLS : BENCH_CALLS / 20, rounds = set ? BENCH_ROUNDS : 3;

	draw_coefficients(&dct);
	arrange(sets[set], &dct, coefficients, quant);
	for (int i = 0; i < ROWS_MAX; i++) {
		in[i] = samples[i] + 64;
		fill(samples[i], sizeof(samples[i]));
	}
	for (size_t i = 0; i < sizeof(scan); i++)
		scan[i] = i > 0 && scan[i - 1] == 255   ? 0
			  : random_below(&rng, 50) == 0 ? 255
							: (uint8_t)random_below(&rng, 255);
	/* kernel -5 is unstuff, -4 to -1 are the inverse DCTs */
	for (int kernel = -5; kernel < ROW_KERNELS; kernel++) {
		double best = 1e18;

		for (unsigned round = 0; round < rounds; round++) {
			double begin = cpu_ns();

			for (unsigned call = 0; call < calls; call++)
				if (kernel == -5)
					sets[set]->unstuff(scan, sizeof(scan), output, &read);
				else if (kernel < 0)
					sets[set]->idct[kernel + 4](coefficients, dct.places,
								    BENCH_BLOCKS, quant, output,
								    512);
				else
					row_kernels[kernel].call(sets[set], in, output,
								 BENCH_SAMPLES);
			double time = (cpu_ns() - begin) * BENCH_CALLS / calls;

			best = time < best ? time : best;
		}
		const char *name = sets[set]->name;

		best /= BENCH_CALLS;
		if (kernel == -5)
			print("unstuff", name, best / sizeof(scan), "byte");
		else if (kernel < 0)
			print(idct_names[kernel + 4], name, best / BENCH_BLOCKS, "block");
		else
			print(row_kernels[kernel].name, name, best / BENCH_SAMPLES, per_sample);
	}
}

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

/* Measures libjpeg-turbo's equivalents of these kernels, as far as its passes can be separated. */
static void bench_turbo(const char *set)
{
	for (unsigned k = 0; k < JPEG_KERNEL_SCALES; k++) {
		struct turbo_pass pass = {1, 1, 1, true, 8u >> k};

		print(idct_names[k], set,
		      turbo_pass_ns(&pass) / (TURBO_PASS_WIDTH / 8 * TURBO_PASS_HEIGHT / 8),
		      "block");
	}
	print("rgb", set, turbo_colour(3, 1, 1), per_sample);
	/* A chroma sample covers four pixels in two rows. */
	print("rgb_hv of two", set, 4 * turbo_colour(3, 2, 2), per_sample);
	print("grey", set, turbo_colour(1, 1, 1), per_sample);
}

int main(int argc, char **argv)
{
	static const char turbo[] = "libjpeg-turbo";

	find_sets();
	random_init(&rng, 5, 0, 0, RANDOM_AUGMENT);
	if (argc > 1 && strcmp(argv[1], "--bench") == 0) {
		for (unsigned set = 0; set < set_count; set++)
			if (argc < 3 || strcmp(argv[2], sets[set]->name) == 0)
				bench_set(set);
		if (argc < 3 || strcmp(argv[2], turbo) == 0)
			bench_turbo(turbo);
		return 0;
	}
	compare_all();
	printf("every set up to %s equals the reference\n", sets[set_count - 1]->name);
	return 0;
}
