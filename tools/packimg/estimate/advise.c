/*
 * packimg advise: measures size and feed rate of each encoding on a sample of images, and
 * recommends one.
 */
#include "format/base/text/options.h"
#include "format/base/text/printable.h"
#include "tools/packimg/common/command.h"
#include "tools/packimg/common/progress.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/estimate/recommend.h"
#include "tools/packimg/estimate/source_sample.h"

#include "format/augment/pipeline.h"

#include <errno.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	VARIANTS_MAX = 16,
	SAMPLE_DEFAULT = 200,
	SAMPLE_MAX = 20000, /* limit, because all variants are in memory at the same time */
};

struct advise {
	const char *path, *pipeline, *csv;
	uint64_t wanted, cores; /* wanted: number of images to sample */
	double rate, seconds;
	unsigned jobs;
	bool json, quiet;
	struct source_sample source;
	struct pipeline *parsed;
	struct encoding_variant variants[VARIANTS_MAX];
	uint32_t variant_count;
};

#define AT(member) offsetof(struct advise, member)

static const struct options_row options[] = {
	{"sample", 'n', "N", "images to sample (default: 200)", OPTIONS_U64, AT(wanted), 1,
	 SAMPLE_MAX},
	{"rate", 'r', "N", "images/s that the training needs", OPTIONS_DOUBLE, AT(rate),
	 .min = DBL_TRUE_MIN, .max = 1e12, .refusal = "is not a positive number"},
	{"cores", 'c', "N", "cores of the daemon (default: those of this process)", OPTIONS_U64,
	 AT(cores), 1, 1 << 20},
	{"pipeline", 0, "TEXT", "transforms to apply (default: random_resized_crop(224) hflip)",
	 OPTIONS_TEXT, AT(pipeline)},
	{"csv", 0, "FILE", "also write the measurements as CSV", OPTIONS_TEXT, AT(csv)},
	{"seconds", 0, "S", "CPU time to measure each encoding (default: 0.5)", OPTIONS_DOUBLE,
	 AT(seconds), .min = DBL_TRUE_MIN, .max = 1e12, .refusal = "is not a positive number"},
	{"jobs", 'j', "N", "threads that encode the sample (default: all CPUs)", OPTIONS_UNSIGNED,
	 AT(jobs), 1, COMMAND_JOBS_MAX},
	{"json", 'J', NULL, "print JSON", OPTIONS_FLAG, AT(json)},
	{"quiet", 'q', NULL, "no progress", OPTIONS_FLAG, AT(quiet)},
	{.argument = "SRC", .kind = OPTIONS_ARGUMENT, .at = AT(path)},
	{0},
};

static void add_variant(struct advise *advise, enum encoding_kind kind, uint32_t short_side,
			int quality)
{
	advise->variants[advise->variant_count++] = (struct encoding_variant){
		.kind = kind, .short_side = short_side, .quality = quality};
}

/*
 * Returns true if at least a tenth of the images exceed the limit; with fewer, the variant would
 * only compare encoders.
 */
static bool limits_some(const struct image_sample *sample, uint32_t side)
{
	return sample->short_sides[(sample->count - 1) * 9 / 10] > side;
}

/* Lists the variants; the first is the unchanged images. */
static void list_variants(struct advise *advise)
{
	static const uint32_t sides[] = {512, 384, 256};
	static const int qualities[] = {95, 90, 85};
	const struct image_sample *sample = &advise->source.sample;
	uint32_t raw_side = limits_some(sample, 256) ? 256 : 0;
	bool any = false;

	if (sample->pixels)
		add_variant(advise, ENCODING_STORED, 0, 0);
	else
		add_variant(advise, ENCODING_VERBATIM, 0, 0);
	if (!sample->pixels && sample->jpegs)
		add_variant(advise, ENCODING_UNINDEXED, 0, 0);
	for (size_t s = 0; s < sizeof(sides) / sizeof(*sides); s++) {
		if (!limits_some(sample, sides[s]))
			continue;
		any = true;
		for (size_t q = 0; q < sizeof(qualities) / sizeof(*qualities); q++)
			add_variant(advise, ENCODING_JPEG, sides[s], qualities[q]);
	}
	for (size_t q = 0; !any && q < sizeof(qualities) / sizeof(*qualities); q++)
		add_variant(advise, ENCODING_JPEG, 0, qualities[q]);
	add_variant(advise, ENCODING_RAW_ZSTD, raw_side, 0);
	add_variant(advise, ENCODING_RAW, raw_side, 0);
}

static int make_transform(struct advise *advise, struct packimg_error *error)
{
	/* any values will do, because the work is the same */
	static const double mean[3] = {124, 116, 104}, std[3] = {58, 57, 57};
	struct pipeline_error fault;

	if (pipeline_parse(advise->pipeline, &advise->parsed, &fault))
		return packimg_fail(error, -EINVAL, "--pipeline: %s", fault.text);
	if (!pipeline_has_size(advise->parsed))
		return packimg_fail(error, -EINVAL,
				    "--pipeline: \"%s\" does not set the size of its output; begin "
				    "with random_resized_crop(N) or resize(WxH)",
				    advise->pipeline);
	if (pipeline_fix_statistics(advise->parsed, mean, std, &fault))
		return packimg_fail(error, -EINVAL, "--pipeline: %s", fault.text);
	return 0;
}

static int advise_measure(struct advise *advise, struct packimg_error *error)
{
	/* The batch size is unknown, so use one that does not limit claims. */
	const struct claim_options claim = {.batch_size = UINT32_MAX, .workers = 1, .alone = true};
	struct encoding_run runs[VARIANTS_MAX];
	struct progress progress;
	int r = 0;

	list_variants(advise);
	progress_init(&progress, "encoding a sample",
		      advise->source.sample.count * advise->variant_count, advise->quiet);
	for (uint32_t i = 0; !r && i < advise->variant_count; i++) {
		r = encoding_variant_encode(&advise->variants[i], advise->source.sample.images,
					    advise->source.sample.count, advise->jobs,
					    command_interrupted, error);
		progress_update(&progress, (i + 1) * advise->source.sample.count,
				(i + 1) * advise->source.sample.bytes);
	}
	progress_clear(&progress);
	if (r)
		return r;
	for (uint32_t i = 0; i < advise->variant_count; i++)
		runs[i] = (struct encoding_run){advise->variants[i].samples,
						advise->variants[i].images, advise->parsed};
	r = encoding_bench_measure(runs, advise->variant_count, &claim, advise->seconds,
				   command_interrupted, error);
	if (r)
		return r;
	for (uint32_t i = 0; i < advise->variant_count; i++)
		advise->variants[i].images_per_s = runs[i].count ? 1 / runs[i].image_s : 0;
	return 0;
}

static struct recommend_request recommend_request_of(const struct advise *advise)
{
	return (struct recommend_request){
		.variants = advise->variants,
		.count = advise->variant_count,
		.cores = (double)advise->cores,
		.wanted = advise->rate,
	};
}

static const char *codec_of(const struct encoding_variant *variant)
{
	return variant->kind == ENCODING_RAW        ? "raw"
	       : variant->kind == ENCODING_RAW_ZSTD ? "raw+zstd"
	       : variant->kind == ENCODING_STORED   ? "stored"
						    : "jpeg";
}

static int write_csv(const struct advise *advise)
{
	FILE *file = fopen(advise->csv, "we");

	if (!file)
		return command_fail("%s: %s", advise->csv, strerror(errno));
	fputs("way,codec,verbatim,indexed,short_side,quality,images,bytes_per_image,"
	      "index_bytes_per_image,images_per_s_core,cores,images_per_s,dataset_images,"
	      "dataset_bytes\n",
	      file);
	for (uint32_t i = 0; i < advise->variant_count; i++) {
		const struct encoding_variant *variant = &advise->variants[i];
		double each = encoding_variant_mean(variant, variant->bytes);

		fprintf(file, "\"%s\",%s,%d,%d,", encoding_variant_name(TEXT, variant),
			codec_of(variant), variant->kind <= ENCODING_UNINDEXED,
			variant->index_bytes > 0);
		if (variant->short_side)
			fprintf(file, "%u", variant->short_side);
		fputc(',', file);
		if (variant->quality)
			fprintf(file, "%d", variant->quality);
		fprintf(file, ",%llu,%.1f,%.1f,%.1f,%llu,%.1f,%llu,%.0f\n",
			(unsigned long long)variant->images, each,
			encoding_variant_mean(variant, variant->index_bytes), variant->images_per_s,
			(unsigned long long)advise->cores,
			variant->images_per_s * (double)advise->cores,
			(unsigned long long)advise->source.sample.of,
			each * (double)advise->source.sample.of);
	}
	bool bad = ferror(file);
	if (fclose(file) || bad)
		return command_fail("%s: %s", advise->csv, strerror(errno));
	return 0;
}

static void print_table(const struct advise *advise)
{
	double first = encoding_variant_mean(&advise->variants[0], advise->variants[0].bytes);

	printf("%-28s %12s %8s %12s %12s %12s\n", "", "bytes/image", "relative", "total",
	       "images/s/core", "x cores");
	for (uint32_t i = 0; i < advise->variant_count; i++) {
		const struct encoding_variant *variant = &advise->variants[i];
		double each = encoding_variant_mean(variant, variant->bytes);

		if (!variant->images)
			continue;
		double rate = variant->images_per_s;
		printf("%-28s %12s %8.2f %12s %13s %12s\n", encoding_variant_name(TEXT, variant),
		       text_count(TEXT, (uint64_t)(each + 0.5)), first > 0 ? each / first : 0,
		       text_bytes(TEXT, (uint64_t)(each * (double)advise->source.sample.of)),
		       text_count(TEXT, (uint64_t)(rate + 0.5)),
		       text_count(TEXT, (uint64_t)(rate * (double)advise->cores + 0.5)));
	}
}

static int advise_report(const struct advise *advise)
{
	const struct recommend_request request = recommend_request_of(advise);
	const struct image_sample *sample = &advise->source.sample;
	uint64_t bad = sample->unread + sample->count - advise->variants[0].images;

	printable_line(stdout, "%s: %s of %s image%s, %s; %llu core%s", advise->path,
		       text_count(TEXT, sample->count), text_count(TEXT, sample->of),
		       text_plural(sample->of), advise->pipeline, (unsigned long long)advise->cores,
		       text_plural(advise->cores));
	putchar('\n');
	print_table(advise);
	putchar('\n');
	unindexed_print(&advise->variants[0].unindexed);
	if (bad)
		printable_line(stdout, "  left out  %s image%s that cannot be used%s%s",
			       text_count(TEXT, bad), text_plural(bad),
			       advise->variants[0].first_fault.text[0] ? ", the first: " : "",
			       advise->variants[0].first_fault.text);
	recommend_write(&request, stdout);
	return 0;
}

static int advise_report_json(const struct advise *advise)
{
	const struct recommend_request request = recommend_request_of(advise);
	json_t *json = json_object(), *list = json_array();
	char *text = NULL;
	size_t size;

	FILE *file = open_memstream(&text, &size);
	if (file)
		recommend_write(&request, file);
	if (!file || fclose(file)) {
		json_decref(json);
		json_decref(list);
		free(text);
		return command_fail("out of memory");
	}
	for (uint32_t i = 0; i < advise->variant_count; i++) {
		const struct encoding_variant *variant = &advise->variants[i];

		json_array_append_new(
			list,
			json_pack("{sssssisisIsfsfsf}", "way", encoding_variant_name(TEXT, variant),
				  "codec", codec_of(variant), "short_side",
				  (int)variant->short_side, "quality", variant->quality, "images",
				  (json_int_t)variant->images, "bytes_per_image",
				  encoding_variant_mean(variant, variant->bytes),
				  "index_bytes_per_image",
				  encoding_variant_mean(variant, variant->index_bytes),
				  "images_per_s_core", variant->images_per_s));
	}
	json_object_set_new(json, "ways", list);
	json_put_count(json, "images", advise->source.sample.of);
	json_put_count(json, "sample", advise->source.sample.count);
	json_put_count(json, "left_out", advise->source.sample.unread);
	json_put_count(json, "cores", advise->cores);
	json_object_set_new(json, "unindexed", unindexed_json(&advise->variants[0].unindexed));
	uint32_t chosen = recommend_choose(&request, request.wanted);
	json_object_set_new(json, "choice",
			    chosen == UINT32_MAX ? json_null()
						 : json_string(encoding_variant_name(
							   TEXT, &advise->variants[chosen])));
	json_object_set_new(json, "advice", json_string(text));
	free(text);
	return command_print_json(json);
}

static int advise_load_and_measure(struct advise *advise, struct packimg_error *error)
{
	int r = make_transform(advise, error);
	if (r)
		return r;
	r = source_sample_init(&advise->source, advise->path, advise->wanted, error);
	return r ? r : advise_measure(advise, error);
}

static int advise_run(struct advise *advise)
{
	struct packimg_error error = {{0}};

	int r = advise_load_and_measure(advise, &error);
	if (r)
		return r == -EINTR ? COMMAND_FAILED
				   : command_fail("%s", error.text[0] ? error.text : strerror(-r));
	if (advise->csv && write_csv(advise))
		return COMMAND_FAILED;
	r = advise->json ? advise_report_json(advise) : advise_report(advise);
	return r ? COMMAND_FAILED : COMMAND_OK;
}

int command_advise(int argc, char **argv)
{
	static const struct argp argp = {
		.args_doc = "SRC",
		.doc = "Measure encodings on a sample of images, and recommend one.\vSRC is a "
		       "source as for convert, or a dataset. Encodes a sample in several sizes and "
		       "qualities in memory, runs the pipeline on each encoding on one core, and "
		       "recommends one, with the reason.",
	};
	struct advise *advise = calloc(1, sizeof(*advise));

	if (!advise)
		return command_fail("out of memory");
	advise->pipeline = "random_resized_crop(224) hflip";
	advise->wanted = SAMPLE_DEFAULT;
	advise->cores = advise->jobs = command_cpu_count();
	advise->seconds = 0.5;
	options_read(options, &argp, argc, argv, advise);
	command_catch_interrupts();
	int status = advise_run(advise);
	for (uint32_t i = 0; i < advise->variant_count; i++)
		encoding_variant_deinit(&advise->variants[i]);
	source_sample_deinit(&advise->source);
	pipeline_free(advise->parsed);
	free(advise);
	command_die_of_interrupt(COMMAND_NOTHING_WRITTEN);
	return status;
}
