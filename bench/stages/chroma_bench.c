/*
 * Effect of chroma=fast on the samples of a dataset: runs the same pipeline with and without it,
 * sample by sample. Reports mean, root mean square and maximum difference, and the CPU time on one
 * core with warm caches.
 */
#include "format/augment/pipeline.h"
#include "format/base/median.h"
#include "format/base/system/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 7, MODES = 2, COUNT_DEFAULT = 500, SEED = 1 };

static const char *const modes[MODES] = {"exact", "fast"};

struct bench {
	struct packimg *dataset;
	struct pipeline *pipelines[MODES];
	struct pipeline_scratch *scratch;
	struct packimg_sample *samples;
	uint64_t count;
	uint8_t *outputs[MODES];
	size_t size;
};

static _Noreturn void fail(const char *text)
{
	fprintf(stderr, "chroma_bench: %s\n", text);
	exit(1);
}

static unsigned number(const char *text, unsigned max)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (end == text || *end || value == 0 || value > max)
		fail("usage: chroma_bench FILE.pimg [COUNT [SIDE]]");
	return (unsigned)value;
}

static void begin(struct bench *bench, const char *path, unsigned count, unsigned side)
{
	struct packimg_error error;
	struct pipeline_error reason;
	char text[128];

	if (packimg_open(path, &bench->dataset, &error) < 0)
		fail(error.text);
	uint64_t stored = packimg_count(bench->dataset);

	bench->count = count < stored ? count : stored;
	bench->samples = calloc(bench->count, sizeof(*bench->samples));
	if (!bench->samples || pipeline_scratch_new(&bench->scratch) < 0)
		fail("out of memory");
	for (uint64_t i = 0; i < bench->count; i++)
		if (packimg_sample(bench->dataset, i * stored / bench->count, &bench->samples[i]) <
		    0)
			fail("a sample cannot be read");
	for (int mode = 0; mode < MODES; mode++) {
		snprintf(text, sizeof(text), "random_resized_crop(%u, chroma=%s) hflip", side,
			 modes[mode]);
		if (pipeline_parse(text, &bench->pipelines[mode], &reason) < 0)
			fail(reason.text);
		bench->size = pipeline_sample_size_max(bench->pipelines[mode]);
		bench->outputs[mode] = aligned_alloc(64, (bench->size + 63) & ~(size_t)63);
		if (!bench->outputs[mode])
			fail("out of memory");
	}
}

static void apply(struct bench *bench, int mode, uint64_t sample, struct pipeline_times *times)
{
	struct packimg_error error;

	if (pipeline_apply(bench->pipelines[mode], bench->scratch, &bench->samples[sample], SEED, 0,
			   bench->outputs[mode], times, &error) < 0)
		fail(error.text);
}

static void compare(struct bench *bench)
{
	uint64_t sum = 0, squares = 0, histogram[256] = {0};
	double bytes = (double)bench->count * (double)bench->size;
	unsigned greatest = 255;

	for (uint64_t i = 0; i < bench->count; i++) {
		apply(bench, 0, i, NULL);
		apply(bench, 1, i, NULL);
		for (size_t j = 0; j < bench->size; j++)
			histogram[abs(bench->outputs[0][j] - bench->outputs[1][j])]++;
	}
	for (unsigned d = 0; d < 256; d++) {
		sum += d * histogram[d];
		squares += d * d * histogram[d];
	}
	while (greatest > 0 && histogram[greatest] == 0)
		greatest--;
	printf("difference of 8-bit values: mean %.3f, greatest %u, PSNR %.1f dB; %.2f %% differ "
	       "by more than 1, %.3f %% by more than 4\n",
	       (double)sum / bytes, greatest, 10 * log10(255.0 * 255 * bytes / (double)squares),
	       100 * (1 - (double)(histogram[0] + histogram[1]) / bytes),
	       100 * (1 - (double)(histogram[0] + histogram[1] + histogram[2] + histogram[3] +
				   histogram[4]) /
				  bytes));
}

/*
 * Alternates the modes sample by sample, so that other load slows both alike. Runs each twice; the
 * second time the sample is in cache.
 */
static void measure(struct bench *bench)
{
	double us[MODES][ROUNDS], ratio[ROUNDS], decode[MODES] = {0}, all[MODES] = {0};

	for (int round = 0; round < ROUNDS; round++) {
		double spent[MODES] = {0};

		for (uint64_t i = 0; i < bench->count; i++)
			for (int mode = 0; mode < MODES; mode++) {
				struct pipeline_times times = {0};

				apply(bench, mode, i, NULL);
				double start = 1e6 * clock_s(CLOCK_PROCESS_CPUTIME_ID);

				apply(bench, mode, i, &times);
				spent[mode] += 1e6 * clock_s(CLOCK_PROCESS_CPUTIME_ID) - start;
				decode[mode] += (double)times.decode;
				all[mode] += (double)(times.decode + times.resize + times.store);
			}
		for (int mode = 0; mode < MODES; mode++)
			us[mode][round] = spent[mode] / (double)bench->count;
		ratio[round] = us[1][round] / us[0][round];
	}
	double exact = median_sort(us[0], ROUNDS), fast = median_sort(us[1], ROUNDS);
	double middle = median_sort(ratio, ROUNDS);

	printf("microseconds of CPU time per sample, medians of %d rounds: exact %.1f, fast %.1f "
	       "(%.3f times as much, from %.3f to %.3f); of that decoding %.1f and %.1f\n",
	       ROUNDS, exact, fast, middle, ratio[0], ratio[ROUNDS - 1], exact * decode[0] / all[0],
	       fast * decode[1] / all[1]);
}

int main(int argc, char **argv)
{
	struct bench bench = {0};

	if (argc < 2 || argc > 4)
		fail("usage: chroma_bench FILE.pimg [COUNT [SIDE]]");
	begin(&bench, argv[1], argc > 2 ? number(argv[2], 1000000) : COUNT_DEFAULT,
	      argc > 3 ? number(argv[3], PIPELINE_SIDE_MAX) : 224);
	compare(&bench);
	measure(&bench);
	for (int mode = 0; mode < MODES; mode++) {
		pipeline_free(bench.pipelines[mode]);
		free(bench.outputs[mode]);
	}
	pipeline_scratch_free(bench.scratch);
	free(bench.samples);
	packimg_close(bench.dataset);
	return 0;
}
