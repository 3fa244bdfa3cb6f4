/*
 * Measures what each stage of a random-resized crop costs one core: entropy decoding, coefficients
 * to pixels, and pixels to the finished sample, with every instruction set, compared with
 * libjpeg-turbo on the same crops of the same file.
 */
#include "bench/stages/stages.h"

#include "format/base/median.h"
#include "format/base/system/cpu.h"
#include "format/base/text/options.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

enum { KEY_SIDE = 256, KEY_ROUNDS, KEY_JSON, KEY_DUMP, ROUNDS_MAX = 99 };

struct options {
	const char *file, *dump;
	unsigned count, side, rounds;
	bool json, counted;
};

static const struct argp_option arguments[] = {
	{"side", KEY_SIDE, "PIXELS", 0, "Crops are resized to this (default 224)", 0},
	{"rounds", KEY_ROUNDS, "N", 0, "All decoders in turn, N times; medians count (default 5)",
	 0},
	{"json", KEY_JSON, 0, 0, "Every round as JSON in place of the table", 0},
	{"dump", KEY_DUMP, "FILE", 0,
	 "Write the crops' pixels for other programs: width and height (uint32), then RGB", 0},
	{0}};

static unsigned number(struct argp_state *state, const char *text, unsigned long high)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (end == text || *end || *text == '-' || !value || value > high)
		argp_error(state, "\"%s\" must be a number from 1 to %lu", text, high);
	return (unsigned)value;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case KEY_SIDE:
		options->side = number(state, text, 4096);
		return 0;
	case KEY_ROUNDS:
		options->rounds = number(state, text, ROUNDS_MAX);
		return 0;
	case KEY_JSON:
		options->json = true;
		return 0;
	case KEY_DUMP:
		options->dump = text;
		return 0;
	case ARGP_KEY_ARG:
		if (!options->file)
			options->file = text;
		else if (!options->counted)
			options->count = number(state, text, 1000000), options->counted = true;
		else
			return ARGP_ERR_UNKNOWN;
		return 0;
	case ARGP_KEY_END:
		if (!options->file)
			argp_error(state, "which dataset?");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

struct results {
	double us[DECODER_COUNT][CROP_STAGES][ROUNDS_MAX];
	unsigned rounds;
	bool has[DECODER_COUNT];
};

/* Median of a stage, minus another stage unless `less` is -1. */
static double median(const struct results *results, enum decoder decoder, int stage, int less)
{
	double values[ROUNDS_MAX];

	for (unsigned i = 0; i < results->rounds; i++)
		values[i] = results->us[decoder][stage][i] -
			    (less < 0 ? 0 : results->us[decoder][less][i]);
	return median_sort(values, results->rounds);
}

/* Median over the rounds of the cost of libjpeg-turbo's stage relative to our entropy stage. */
static double times_as_long(const struct results *results, enum decoder decoder,
			    enum crop_stage theirs)
{
	double values[ROUNDS_MAX];

	for (unsigned i = 0; i < results->rounds; i++)
		values[i] = results->us[DECODER_TURBO][theirs][i] /
			    results->us[decoder][CROP_ENTROPY][i];
	return median_sort(values, results->rounds);
}

static void print_line(const struct results *results, const char *name, int stage, int less,
		       double unit)
{
	printf("%-44s", name);
	for (int decoder = 0; decoder < DECODER_COUNT; decoder++) {
		double value = results->has[decoder]
				       ? median(results, (enum decoder)decoder, stage, less) / unit
				       : NAN;

		if (isnan(value))
			printf("%14s", "");
		else
			printf(unit == 1 ? "%14.1f" : "%14.3f", value);
	}
	putchar('\n');
}

static void print_table(const struct options *options, const struct crops *crops,
			const struct results *results)
{
	enum decoder best = (enum decoder)CPU_ISA_AVX512;

	while (best > (enum decoder)CPU_ISA_C && !results->has[best])
		best--;
	double pixel = crops->pixels / crops->count * 1e-3;

	printf("%s: %u crops to %u (%u of images with an index); libjpeg-turbo %d.%d.%d; medians "
	       "of %u rounds\n\n",
	       options->file, crops->count, options->side, crops->indexed,
	       LIBJPEG_TURBO_VERSION_NUMBER / 1000000, LIBJPEG_TURBO_VERSION_NUMBER / 1000 % 1000,
	       LIBJPEG_TURBO_VERSION_NUMBER % 1000, results->rounds);
	printf("%-44s", "microseconds of CPU time per crop");
	for (int decoder = 0; decoder < DECODER_COUNT; decoder++)
		printf("%14s", decoder_name((enum decoder)decoder));
	putchar('\n');
	print_line(results, "entropy stage", CROP_ENTROPY, -1, 1);
	print_line(results, "coefficients to pixels", CROP_DECODE, CROP_ENTROPY, 1);
	print_line(results, "  the same, ns per pixel of the crop", CROP_DECODE, CROP_ENTROPY,
		   pixel);
	print_line(results, "decode: both", CROP_DECODE, -1, 1);
	print_line(results, "resize, flip and store", CROP_SAMPLE, CROP_DECODE, 1);
	print_line(results, "back end: coefficients to finished sample", CROP_SAMPLE, CROP_ENTROPY,
		   1);
	print_line(results, "  the same, warm (see below)", CROP_WARM_SAMPLE, CROP_WARM_ENTROPY, 1);
	print_line(results, "finished sample", CROP_SAMPLE, -1, 1);
	print_line(results, "whole image: decode", CROP_IMAGE, -1, 1);
	print_line(results, "whole image: coefficients", CROP_COEFFICIENTS, -1, 1);
	print_line(results, "whole image: the difference", CROP_IMAGE, CROP_COEFFICIENTS, 1);
	printf("\nEvery crop is of another image and goes to another place of a batch, as in the "
	       "daemon; warm: each is made several times in a row to one place, and the least "
	       "time counts.\n");
	printf("The crop's region takes libjpeg-turbo %.2f times as long as the entropy stage "
	       "takes %s; its entropy share alone %.2f times.\n",
	       times_as_long(results, best, CROP_DECODE), decoder_name(best),
	       times_as_long(results, best, CROP_ENTROPY));
}

static void print_json(const struct crops *crops, const struct results *results)
{
	json_t *root = json_pack("{s:i, s:i, s:i, s:f, s:f}", "crops", (int)crops->count, "indexed",
				 (int)crops->indexed, "side", (int)crops->side, "pixels_per_crop",
				 crops->pixels / crops->count, "bytes_per_image",
				 crops->bytes / crops->count);
	json_t *all = json_object();

	for (int decoder = 0; decoder < DECODER_COUNT; decoder++) {
		json_t *stages = json_object();

		for (int stage = 0; results->has[decoder] && stage < CROP_STAGES; stage++) {
			json_t *values = json_array();

			for (unsigned i = 0; i < results->rounds; i++)
				json_array_append_new(values,
						      json_real(results->us[decoder][stage][i]));
			if (!isnan(results->us[decoder][stage][0]))
				json_object_set(stages, stage_name((enum crop_stage)stage), values);
			json_decref(values);
		}
		if (results->has[decoder])
			json_object_set(all, decoder_name((enum decoder)decoder), stages);
		json_decref(stages);
	}
	json_object_set_new(root, "us", all);
	json_dumpf(root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
	putchar('\n');
	json_decref(root);
}

/* Measures all decoders in turn, round after round. Returns 0, or -1 with a message. */
static int run(const struct crops *crops, struct results *results)
{
	for (unsigned round = 0; round < results->rounds; round++)
		for (int decoder = 0; decoder < DECODER_COUNT; decoder++) {
			struct times times;

			if (decoder != DECODER_TURBO && decoder > (int)cpu_isa_supported())
				continue;
			stages_measure(crops, (enum decoder)decoder, &times);
			if (times.error[0]) {
				fprintf(stderr, "stages_bench: %s: %s\n",
					decoder_name((enum decoder)decoder), times.error);
				return -1;
			}
			results->has[decoder] = true;
			for (int stage = 0; stage < CROP_STAGES; stage++)
				results->us[decoder][stage][round] = times.us[stage];
		}
	return 0;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {arguments, parse, "FILE.pimg [COUNT]",
					 "What each stage of COUNT (default 300) random-resized "
					 "crops costs one core, compared with libjpeg-turbo."};
	static struct results results;
	struct options options = {.count = 300, .side = 224, .rounds = 5};
	struct packimg_error error;
	struct packimg *dataset;
	struct crops crops;
	char pipeline[64];

	options_parse(&argp, argc, argv, &options);
	results.rounds = options.rounds;
	snprintf(pipeline, sizeof(pipeline), "random_resized_crop(%u) hflip", options.side);
	if (packimg_open(options.file, &dataset, &error) < 0) {
		fprintf(stderr, "stages_bench: %s\n", error.text);
		return 1;
	}
	if (crops_choose(dataset, pipeline, options.count, &crops, &error) < 0) {
		fprintf(stderr, "stages_bench: %s: %s\n", options.file, error.text);
		packimg_close(dataset);
		return 1;
	}
	int r = run(&crops, &results);

	if (r == 0 && options.json)
		print_json(&crops, &results);
	else if (r == 0)
		print_table(&options, &crops, &results);
	if (r == 0 && options.dump) {
		r = stages_dump(&crops, options.dump);
		if (r < 0)
			fprintf(stderr, "stages_bench: %s: %s\n", options.dump, strerror(-r));
	}
	crops_deinit(&crops);
	packimg_close(dataset);
	return r ? 1 : 0;
}
