#include "bench/report/whatif.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "format/augment/pipeline.h"
#include "format/packimg.h"
#include "proto/client/connection.h"
#include "tools/packimg/estimate/image_sample.h"

enum {
	CHUNK_PAGES = 1 << 16,
	/*
	 * Spare source pixels: for an output side of N, the stored side is N * 8 / 7, as 256 is for
	 * 224.
	 */
	SPARE = 8,
	SPARE_OF = 7,
	MARGIN_PERCENT =
		/* try a smaller size only if images are larger by this factor, in percent */
	120,
};
#define SAMPLE_BYTES_MAX ((uint64_t)256 << 20)

struct bench {
	struct packimg *dataset;
	struct image_sample sample;
	struct pipeline *parsed;
	struct pipeline *reduced[WHATIF_TRANSFORMS_MAX]; /* pipelines without one transform */
	/*
	 * Indexed by config and image. Each sample keeps its index in the dataset, so that all
	 * configs draw the same crops.
	 */
	struct packimg_sample samples[CONFIG_COUNT][WHATIF_IMAGES];
	struct encoding_variant made[CONFIG_COUNT]; /* own the bytes of the samples */
	unsigned count;
};

static void bench_free(struct bench *bench)
{
	for (enum config config = 0; config < CONFIG_COUNT; config++)
		encoding_variant_deinit(&bench->made[config]);
	image_sample_deinit(&bench->sample);
	pipeline_free(bench->parsed);
	for (unsigned i = 0; i < WHATIF_TRANSFORMS_MAX; i++)
		pipeline_free(bench->reduced[i]);
	if (bench->dataset)
		packimg_close(bench->dataset);
	free(bench);
}

/* Sets a pipeline's size and statistics from the dataset, as the daemon does. */
static int fix_pipeline(const struct packimg *dataset, struct pipeline *parsed,
			struct pipeline_error *reason)
{
	struct packimg_sample first;
	double mean[3], std[3];

	if (!pipeline_has_size(parsed)) {
		int r = packimg_sample(dataset, 0, &first);
		if (r)
			return r;
		r = pipeline_fix_size(parsed, first.width, first.height, reason);
		if (r)
			return r;
	}
	if (!pipeline_needs_statistics(parsed))
		return 0;
	int r = packimg_statistics(dataset, mean, std);
	return r ? r : pipeline_fix_statistics(parsed, mean, std, reason);
}

static int prepare(const struct packimg *dataset, const char *pipeline,
		   struct pipeline **ret_parsed, struct pipeline_error *reason)
{
	struct pipeline *parsed;
	int r = pipeline_parse(pipeline, &parsed, reason);

	if (r)
		return r;
	r = fix_pipeline(dataset, parsed, reason);
	if (r) {
		pipeline_free(parsed);
		return r;
	}
	*ret_parsed = parsed;
	return 0;
}

static int bench_parse(struct bench *bench, const char *pipeline, char *error)
{
	struct pipeline_error reason = {0};
	int r = prepare(bench->dataset, pipeline, &bench->parsed, &reason);

	return r ? error_set(error, r, "%s: %s", pipeline,
			     reason.text[0] ? reason.text : strerror(-r))
		 : 0;
}

static int bench_new(const char *path, const char *pipeline, struct bench **ret_bench, char *error)
{
	struct bench *bench = calloc(1, sizeof(*bench));
	struct packimg_error reason;

	if (!bench)
		return -ENOMEM;
	if (text_is_address(path)) {
		bench_free(bench);
		return error_set(error, -ENOTSUP,
				 "%.300s: the images of a dataset in a store cannot be examined; "
				 "fetch it first: packimg fetch %.300s -o FILE",
				 path, path);
	}
	int r = packimg_open(path, &bench->dataset, &reason);
	if (r) {
		bench_free(bench);
		return error_set(error, r, "%s", reason.text);
	}
	r = bench_parse(bench, pipeline, error);
	if (r) {
		bench_free(bench);
		return r;
	}
	*ret_bench = bench;
	return 0;
}

static unsigned shorter_side(const struct packimg_sample *sample)
{
	return sample->width < sample->height ? sample->width : sample->height;
}

/* Returns the sample in the fastest lossless encoding tried. */
static const struct packimg_sample *lossless(const struct bench *bench, const struct whatif *whatif,
					     unsigned i)
{
	enum config config = whatif->configs[CONFIG_RECODE].changed  ? CONFIG_RECODE
			     : whatif->configs[CONFIG_INDEX].changed ? CONFIG_INDEX
								     : CONFIG_STORED;

	return &bench->samples[config][i];
}

struct encoding_variant whatif_variant(const struct whatif *whatif, enum config config)
{
	switch (config) {
	case CONFIG_INDEX:
		return (struct encoding_variant){.kind = ENCODING_VERBATIM};
	case CONFIG_RECODE:
		return (struct encoding_variant){.kind = ENCODING_VERBATIM, .transcode = true};
	case CONFIG_QUALITY:
		return (struct encoding_variant){.kind = ENCODING_JPEG,
						 .quality = WHATIF_JPEG_QUALITY};
	case CONFIG_SMALLER:
		return (struct encoding_variant){.kind = ENCODING_JPEG,
						 .quality = WHATIF_JPEG_QUALITY,
						 .short_side = whatif->short_side};
	case CONFIG_RAW:
		return (struct encoding_variant){
			.kind = ENCODING_RAW,
			.short_side = whatif->short_side < whatif->side ? whatif->short_side : 0};
	default:
		return (struct encoding_variant){.kind = ENCODING_STORED};
	}
}

/* Returns true if this config stores the image differently. */
static bool changes(const struct encoding_variant *variant, enum config config,
		    const struct packimg_sample *stored)
{
	bool large = variant->short_side && shorter_side(stored) > variant->short_side;

	switch (config) {
	case CONFIG_INDEX:
	case CONFIG_RECODE:
		return packimg_sample_unindexed(stored);
	case CONFIG_QUALITY:
		return stored->codec == PACKIMG_CODEC_JPEG;
	case CONFIG_SMALLER:
		return large;
	case CONFIG_RAW:
		return large || stored->codec != PACKIMG_CODEC_RAW;
	default:
		return false;
	}
}

/*
 * Encodes all images for one config. Images that it would not change, or for which it yields no
 * index, keep their encoding.
 */
static int make(struct bench *bench, struct whatif *whatif, enum config config,
		struct packimg_error *error)
{
	const struct packimg_sample *stored = bench->samples[CONFIG_STORED];
	struct encoding_variant *made = &bench->made[config];
	struct encoding_input images[WHATIF_IMAGES];
	unsigned wanted = 0, next = 0;

	*made = whatif_variant(whatif, config);
	for (unsigned i = 0; i < bench->count; i++)
		if (changes(made, config, &stored[i]))
			images[wanted++] = (struct encoding_input){.stored = &stored[i]};
	int r = encoding_variant_encode(made, images, wanted, 1, NULL, error);
	if (r)
		return r;
	for (unsigned i = 0; i < bench->count; i++) {
		const struct packimg_sample *other = &made->samples[next];
		int is_made = next < made->images && other->index == stored[i].index;

		next += is_made;
		if (is_made && (other->codec != PACKIMG_CODEC_JPEG || other->side)) {
			bench->samples[config][i] = *other;
			whatif->configs[config].changed++;
		} else {
			bench->samples[config][i] =
				config > CONFIG_RECODE ? *lossless(bench, whatif, i) : stored[i];
		}
	}
	return 0;
}

static int choose(struct bench *bench, struct whatif *whatif, struct packimg_error *error)
{
	struct image_sample *sample = &bench->sample;
	int r = image_sample_dataset(sample, bench->dataset, WHATIF_IMAGES, SAMPLE_BYTES_MAX, NULL,
				     error);

	if (r)
		return r;
	if (!sample->count)
		return packimg_fail(
			error, -EBADMSG,
			"none of the images sampled can be decoded; run packimg verify");
	bench->count = whatif->sampled = (unsigned)sample->count;
	whatif->jpegs = (unsigned)sample->jpegs;
	memcpy(bench->samples[CONFIG_STORED], sample->stored,
	       bench->count * sizeof(*sample->stored));
	for (unsigned i = 0; i < bench->count; i++) {
		whatif->side += (double)sample->short_sides[i] / bench->count;
		whatif->unindexed += packimg_sample_unindexed(&sample->stored[i]);
	}
	return 0;
}

static unsigned finished_side(const struct pipeline *parsed)
{
	struct pipeline_shape shape;

	pipeline_shape(parsed, 0, &shape);
	return shape.width < shape.height ? shape.width : shape.height;
}

/* Decides from the dataset's properties whether measuring the config can show a gain. */
static int may_gain(const struct bench *bench, const struct whatif *whatif, enum config config)
{
	double side = whatif->side * 100 / MARGIN_PERCENT;

	switch (config) {
	case CONFIG_STORED:
		return 1;
	case CONFIG_INDEX:
		return whatif->unindexed > 0;
	case CONFIG_RECODE:
		return whatif->unindexed > whatif->configs[CONFIG_INDEX].changed;
	case CONFIG_QUALITY:
		return whatif->jpegs > 0;
	case CONFIG_SMALLER:
		return whatif->short_side < side && pipeline_has_size(bench->parsed);
	case CONFIG_RAW:
		return whatif->jpegs > 0 || whatif->short_side < side;
	default:
		return 0;
	}
}

static int make_all(struct bench *bench, struct whatif *whatif, struct packimg_error *error)
{
	unsigned side = finished_side(bench->parsed) * SPARE / SPARE_OF;

	/* A pipeline without a size delivers the stored size. */
	whatif->short_side = pipeline_has_size(bench->parsed) ? side : PACKIMG_SIDE_MAX;
	for (enum config config = CONFIG_INDEX; config < CONFIG_COUNT; config++) {
		int r = may_gain(bench, whatif, config) ? make(bench, whatif, config, error) : 0;

		if (r)
			return r;
	}
	whatif->unindexable = whatif->unindexed - whatif->configs[CONFIG_INDEX].changed;
	whatif->configs[CONFIG_STORED].changed = bench->count;
	return 0;
}

static int measure(struct bench *bench, struct whatif *whatif, const struct claim_options *claim,
		   struct packimg_error *error)
{
	struct encoding_run runs[CONFIG_COUNT + WHATIF_TRANSFORMS_MAX];
	double *results[CONFIG_COUNT + WHATIF_TRANSFORMS_MAX];
	uint32_t count = 0;

	for (enum config config = 0; config < CONFIG_COUNT; config++) {
		if (!whatif->configs[config].changed)
			continue;
		results[count] = &whatif->configs[config].image_us;
		runs[count++] =
			(struct encoding_run){bench->samples[config], bench->count, bench->parsed};
	}
	for (unsigned i = 0; i < whatif->transform_count; i++) {
		results[count] = &whatif->transforms[i].image_us;
		runs[count++] = (struct encoding_run){bench->samples[CONFIG_STORED], bench->count,
						      bench->reduced[i]};
	}
	int r = encoding_bench_measure(runs, count, claim, 0, NULL, error);
	for (uint32_t i = 0; i < count && !r; i++)
		*results[i] = 1e6 * runs[i].image_s;
	return r;
}

static void count_bytes(const struct bench *bench, struct whatif *whatif)
{
	for (enum config config = 0; config < CONFIG_COUNT; config++) {
		for (unsigned i = 0; i < bench->count && whatif->configs[config].changed; i++) {
			const struct packimg_sample *sample = &bench->samples[config][i];

			whatif->configs[config].bytes +=
				((double)sample->data_size + sample->side_size) / bench->count;
		}
	}
}

static const char blanks[] = " \t\r\n";

/* End of the names of values before a transform, and of the colon; `text` if there are none. */
static const char *names_end(const char *text)
{
	for (const char *at = text;; at++) {
		at += strspn(at, blanks);
		at += strcspn(at, " \t\r\n(,:");
		at += strspn(at, blanks);
		if (*at == ':')
			return at + 1 + strspn(at + 1, blanks);
		if (*at != ',')
			return text;
	}
}

/*
 * End of the transform that begins at text: names of values, its own name and an optional
 * parenthesised argument list.
 */
static const char *transform_end(const char *text)
{
	const char *name = names_end(text), *end = name + strcspn(name, " \t\r\n(");
	const char *open = end + strspn(end, blanks);
	int depth = 0;

	if (*open != '(')
		return end;
	for (end = open; *end; end++) {
		depth += (*end == '(') - (*end == ')');
		if (!depth)
			return end + 1;
	}
	return end;
}

static int is_named(const char *transform, const char *name)
{
	size_t length = strlen(name);

	return strncmp(transform, name, length) == 0 &&
	       (transform[length] == '(' || transform[length] == ' ');
}

/*
 * Omits transform number `number` or, if bytes is set, every transform that makes the output
 * something other than bytes. Writes the remaining pipeline to `rest` and the omitted part to
 * `text`. Returns false if there is no such transform.
 */
static int remove_transform(const char *pipeline, unsigned number, int bytes, char *rest,
			    char text[WHATIF_TRANSFORM_TEXT])
{
	unsigned i = 0;
	int found = 0;

	*rest = text[0] = '\0';
	for (const char *transform = pipeline + strspn(pipeline, blanks); *transform; i++) {
		const char *end = transform_end(transform);
		int out = bytes ? is_named(transform, "normalize") || is_named(transform, "to")
				: i == number;
		size_t used = strlen(text);

		if (out)
			snprintf(text + used, WHATIF_TRANSFORM_TEXT - used, "%s%.*s",
				 found ? " " : "", (int)(end - transform), transform);
		else
			sprintf(rest + strlen(rest), "%.*s ", (int)(end - transform), transform);
		found += out;
		transform = end + strspn(end, blanks);
	}
	return found > 0;
}

static int has_same_shape(const struct pipeline *a, const struct pipeline *b)
{
	struct pipeline_shape x, y;

	pipeline_shape(a, 0, &x);
	pipeline_shape(b, 0, &y);
	return x.width == y.width && x.height == y.height;
}

/*
 * Prepares the pipelines without one transform that are valid, and the one without normalising and
 * casting.
 */
static int make_reduced(struct bench *bench, struct whatif *whatif, const char *pipeline)
{
	char *rest = malloc(2 * strlen(pipeline) + 2);
	unsigned *count = &whatif->transform_count;
	struct pipeline_error reason;

	if (!rest)
		return -ENOMEM;
	for (unsigned i = 0; *count < WHATIF_TRANSFORMS_MAX; i++) {
		struct pipeline **reduced = &bench->reduced[*count];
		int bytes = i == 0; /* first the pipeline without format transforms, then without
				       one transform at a time */

		if (!remove_transform(pipeline, i - 1, bytes, rest,
				      whatif->transforms[*count].text)) {
			if (!bytes)
				break;
			continue;
		}
		if (!pipeline_has_size(bench->parsed) ||
		    prepare(bench->dataset, rest, reduced, &reason))
			continue;
		if (pipeline_has_size(*reduced) && has_same_shape(*reduced, bench->parsed)) {
			++*count;
			continue;
		}
		pipeline_free(*reduced);
		*reduced = NULL;
	}
	free(rest);
	return 0;
}

double whatif_resident(const char *path)
{
	static unsigned char pages[CHUNK_PAGES];
	size_t page = (size_t)sysconf(_SC_PAGESIZE), all = 0, found = 0;
	struct packimg *dataset;

	if (packimg_open(path, &dataset, NULL))
		return 0;
	for (uint32_t i = 0; i < packimg_shard_count(dataset); i++) {
		struct packimg_shard shard;

		if (packimg_shard(dataset, i, &shard))
			continue;
		for (uint64_t at = 0; at < shard.size; at += CHUNK_PAGES * page) {
			uint64_t size = shard.size - at;

			if (size > CHUNK_PAGES * page)
				size = CHUNK_PAGES * page;
			if (mincore((void *)(uintptr_t)(shard.map + at), size, pages))
				continue;
			for (size_t p = 0; p < (size + page - 1) / page; p++)
				found += pages[p] & 1;
			all += (size + page - 1) / page;
		}
	}
	packimg_close(dataset);
	return all ? (double)found / (double)all : 0;
}

static uint64_t bytes_of(const struct packimg *dataset)
{
	struct packimg_shard shard;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < packimg_shard_count(dataset); i++)
		if (!packimg_shard(dataset, i, &shard))
			bytes += shard.size;
	return bytes;
}

/* Measures all configs, and the pipeline without each of its transforms. */
static int measure_all(struct bench *bench, const char *pipeline, const struct claim_options *claim,
		       struct whatif *whatif, struct packimg_error *error)
{
	int r = choose(bench, whatif, error);
	if (r)
		return r;
	r = make_all(bench, whatif, error);
	if (r)
		return r;
	r = make_reduced(bench, whatif, pipeline);
	if (r)
		return r;
	r = measure(bench, whatif, claim, error);
	if (r)
		return r;
	count_bytes(bench, whatif);
	return 0;
}

int whatif_measure(const char *path, const char *pipeline, const struct claim_options *claim,
		   struct whatif *ret_whatif, char *error)
{
	struct whatif whatif = {0};
	struct packimg_error reason = {{0}};
	struct bench *bench = NULL;
	int r = bench_new(path, pipeline, &bench, error);

	if (r)
		return r;
	whatif.images = packimg_count(bench->dataset);
	whatif.bytes = bytes_of(bench->dataset);
	r = measure_all(bench, pipeline, claim, &whatif, &reason);
	bench_free(bench);
	if (r)
		return error_set(error, r, "%s: %s", path,
				 reason.text[0] ? reason.text : strerror(-r));
	*ret_whatif = whatif;
	return 0;
}
