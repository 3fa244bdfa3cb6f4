#include "trials.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <xxhash.h>

#include "connection.h"
#include "packimg.h"
#include "transform.h"

enum {
	ALIGN = 64, /* of stored bytes, and readable behind them, as packimg.h promises */
	TARGETS =
		64, /* finished samples before memory is written again: beyond the caches near the core, as a batch is */
	ROUNDS = 5,
	CHUNK_PAGES = 1 << 16,
	/* Sources of pixels to spare: where the pipeline makes N of a side, N * 8 / 7 is what 256 is for 224. */
	SPARE = 8,
	SPARE_OF = 7,
	MARGIN_PERCENT =
		120, /* images must be that much larger than a size for that to be worth a trial */
};
#define SAMPLE_BYTES_MAX ((uint64_t)256 << 20)

/* What is measured against each other: these samples through this pipeline. */
struct contest {
	const struct packimg_sample *samples;
	const struct transform *transform;
	double turns[ROUNDS]; /* microseconds per image */
	double *result;
};

struct bench {
	struct packimg *dataset;
	struct transform *transform;
	struct transform_scratch *scratch;
	struct packimg_decoder *decoder;
	struct packimg_encoder *encoder;
	struct packimg_transcoder *transcoder;
	uint8_t *targets;
	size_t target_size;
	/* By way and image; index as in the dataset, so that all ways draw the same crops. */
	struct packimg_sample samples[TRIAL_COUNT][TRIAL_IMAGES];
	unsigned count;
	void *memory[TRIAL_COUNT * TRIAL_IMAGES * 2];
	unsigned memory_count;
	struct transform *shorter[TRIAL_STEPS_MAX]; /* pipelines without a step */
	struct contest contests[TRIAL_COUNT + TRIAL_STEPS_MAX];
	unsigned contest_count;
};

static void bench_free(struct bench *bench)
{
	for (unsigned i = 0; i < bench->memory_count; i++)
		free(bench->memory[i]);
	packimg_transcoder_free(bench->transcoder);
	packimg_encoder_free(bench->encoder);
	packimg_decoder_free(bench->decoder);
	transform_scratch_free(bench->scratch);
	transform_free(bench->transform);
	for (unsigned i = 0; i < TRIAL_STEPS_MAX; i++)
		transform_free(bench->shorter[i]);
	if (bench->dataset)
		packimg_close(bench->dataset);
	free(bench->targets);
	free(bench);
}

/* Prepares a pipeline as the daemon does. */
static int prepare(const struct packimg *dataset, const char *pipeline,
		   struct transform **ret_transform, struct transform_error *reason)
{
	struct transform *transform = NULL;
	struct packimg_sample first;
	double mean[3], std[3];
	int r = transform_parse(pipeline, &transform, reason);

	if (!r && !transform_has_size(transform)) {
		r = packimg_sample(dataset, 0, &first);
		if (!r)
			r = transform_fix_size(transform, first.width, first.height, reason);
	}
	if (!r && transform_needs_statistics(transform)) {
		r = packimg_statistics(dataset, mean, std);
		if (!r)
			r = transform_fix_statistics(transform, mean, std, reason);
	}
	if (r)
		transform_free(transform);
	else
		*ret_transform = transform;
	return r;
}

static int bench_parse(struct bench *bench, const char *pipeline, char *error)
{
	struct transform_error reason = {0};
	int r = prepare(bench->dataset, pipeline, &bench->transform, &reason);

	return r ? error_set(error, r, "%s: %s", pipeline,
			     reason.text[0] ? reason.text : strerror(-r))
		 : 0;
}

static int bench_new(const char *path, const char *pipeline, struct bench **ret_bench, char *error)
{
	struct bench *bench = calloc(1, sizeof(*bench));
	struct packimg_error reason;
	int r;

	if (!bench)
		return -ENOMEM;
	r = packimg_open(path, &bench->dataset, &reason);
	if (r) {
		bench_free(bench);
		return error_set(error, r, "%s", reason.text);
	}
	r = bench_parse(bench, pipeline, error);
	if (!r) {
		size_t size = transform_sample_size_max(bench->transform);

		bench->target_size = (size + ALIGN - 1) / ALIGN * ALIGN;
		bench->targets = aligned_alloc(ALIGN, bench->target_size * TARGETS);
		r = bench->targets ? 0 : -ENOMEM;
	}
	if (!r)
		r = transform_scratch_new(&bench->scratch);
	if (!r)
		r = packimg_decoder_new(&bench->decoder);
	if (!r)
		r = packimg_encoder_new(&bench->encoder);
	if (!r)
		r = packimg_transcoder_new(&bench->transcoder);
	if (r)
		bench_free(bench);
	else
		*ret_bench = bench;
	return r;
}

/* A copy with the alignment and the readable bytes behind that a file gives; NULL when memory is lacking. */
static const uint8_t *keep(struct bench *bench, const uint8_t *data, size_t size)
{
	uint8_t *copy = aligned_alloc(ALIGN, (size + 2 * ALIGN - 1) / ALIGN * ALIGN);

	if (!copy)
		return NULL;
	memcpy(copy, data, size);
	memset(copy + size, 0, (size + 2 * ALIGN - 1) / ALIGN * ALIGN - size);
	bench->memory[bench->memory_count++] = copy;
	return copy;
}

/* Puts an index beside a JPEG that has none. 0: it has one now; 1: it cannot have one. */
static int add_index(struct bench *bench, struct packimg_sample *sample)
{
	struct packimg_jpeg_info info;
	const uint8_t *side;
	size_t size;

	if (packimg_jpeg_probe(sample->data, sample->data_size, &info, NULL) ||
	    packimg_index_jpeg(bench->decoder, sample->data, sample->data_size, &info, &side,
			       &size))
		return 1;
	sample->side = keep(bench, side, size);
	sample->side_size = (uint32_t)size;
	sample->side_xxh3 = XXH3_64bits(side, size);
	return sample->side ? 0 : -ENOMEM;
}

static int add_recoded(struct bench *bench, struct packimg_sample *sample)
{
	const uint8_t *data;
	size_t size;

	if (packimg_transcode_jpeg(bench->transcoder, sample->data, sample->data_size, &data, &size,
				   NULL))
		return 1;
	sample->data = keep(bench, data, size);
	sample->data_size = (uint32_t)size;
	return sample->data ? add_index(bench, sample) : -ENOMEM;
}

/* All pixels of a sample at this size, 3 bytes each; the caller frees them. NULL: it cannot be had. */
static uint8_t *pixels_of(struct bench *bench, const struct packimg_sample *sample, uint32_t width,
			  uint32_t height)
{
	char text[64];
	struct transform *transform;
	struct transform_error reason;
	struct packimg_error error;
	uint8_t *pixels;

	snprintf(text, sizeof(text), "resize(%ux%u)", width, height);
	if (transform_parse(text, &transform, &reason))
		return NULL;
	pixels = malloc((size_t)width * height * 3 + ALIGN);
	if (pixels &&
	    transform_apply(transform, bench->scratch, sample, 0, 0, pixels, NULL, &error)) {
		free(pixels);
		pixels = NULL;
	}
	transform_free(transform);
	return pixels;
}

/* Encodes again at this size, as JPEG with an index or as pixels. 1: it cannot be done. */
static int add_encoded(struct bench *bench, struct packimg_sample *sample, uint32_t width,
		       uint32_t height, int raw)
{
	uint8_t *pixels = pixels_of(bench, sample, width, height);
	const uint8_t *data = pixels;
	size_t size = (size_t)width * height * 3;
	int r = pixels ? 0 : 1;

	if (!r && !raw)
		r = packimg_encode_jpeg(bench->encoder, pixels, (size_t)width * 3, width, height, 3,
					TRIAL_JPEG_QUALITY, false, &data, &size)
			    ? 1
			    : 0;
	if (!r) {
		sample->codec = raw ? PACKIMG_CODEC_RAW : PACKIMG_CODEC_JPEG;
		sample->channels = 3;
		sample->orientation = 1;
		sample->width = width;
		sample->height = height;
		sample->side = NULL;
		sample->side_size = 0;
		sample->data = keep(bench, data, size);
		sample->data_size = (uint32_t)size;
		r = sample->data ? 0 : -ENOMEM;
	}
	free(pixels);
	return r || raw ? r : add_index(bench, sample);
}

static unsigned shorter_side(const struct packimg_sample *sample)
{
	return sample->width < sample->height ? sample->width : sample->height;
}

/* The stored bytes of an image with all that makes them faster without loss. */
static const struct packimg_sample *lossless(const struct bench *bench, const struct trials *trials,
					     unsigned i)
{
	enum trial_way way = trials->ways[TRIAL_RECODE].changed	 ? TRIAL_RECODE
			     : trials->ways[TRIAL_INDEX].changed ? TRIAL_INDEX
								 : TRIAL_STORED;

	return &bench->samples[way][i];
}

/* One way for one image; where the way would not change it, it stays as it is. */
static int make(struct bench *bench, struct trials *trials, enum trial_way way, unsigned i)
{
	const struct packimg_sample *stored = &bench->samples[TRIAL_STORED][i];
	struct packimg_sample *sample = &bench->samples[way][i];
	int indexed = packimg_sample_indexed(stored), r = 1;
	uint32_t width = stored->width, height = stored->height;
	unsigned side = shorter_side(stored);

	*sample = *stored;
	if (way != TRIAL_QUALITY && side > trials->short_side) {
		width = (uint32_t)lround((double)width * trials->short_side / side);
		height = (uint32_t)lround((double)height * trials->short_side / side);
	}
	switch (way) {
	case TRIAL_INDEX:
		if (sample->codec == PACKIMG_CODEC_JPEG && !indexed)
			r = add_index(bench, sample);
		break;
	case TRIAL_RECODE:
		if (sample->codec != PACKIMG_CODEC_JPEG || indexed)
			break;
		r = add_index(bench, sample);
		if (r == 1)
			r = add_recoded(bench, sample);
		break;
	case TRIAL_QUALITY:
		if (sample->codec == PACKIMG_CODEC_JPEG)
			r = add_encoded(bench, sample, width, height, 0);
		break;
	case TRIAL_SMALLER:
		if (width != stored->width || height != stored->height)
			r = add_encoded(bench, sample, width, height, 0);
		break;
	case TRIAL_RAW:
		if (width != stored->width || sample->codec != PACKIMG_CODEC_RAW)
			r = add_encoded(bench, sample, width, height, 1);
		break;
	default:
		break;
	}
	if (r < 0)
		return r;
	if (r)
		*sample = way > TRIAL_RECODE ? *lossless(bench, trials, i) : *stored;
	else
		trials->ways[way].changed++;
	return 0;
}

static int try_once(struct bench *bench, const struct contest *contest, uint64_t epoch, unsigned i)
{
	struct packimg_error error;

	return transform_apply(contest->transform, bench->scratch, &contest->samples[i], 1, epoch,
			       bench->targets + i % TARGETS * bench->target_size, NULL, &error);
}

/* One of each of as many equal stretches as images are wanted; those that cannot be decoded are left out. */
static void choose(struct bench *bench, struct trials *trials)
{
	const struct contest stored = {bench->samples[TRIAL_STORED], bench->transform};
	uint64_t wanted = trials->images < TRIAL_IMAGES ? trials->images : TRIAL_IMAGES, bytes = 0;

	for (uint64_t i = 0; i < wanted && bytes < SAMPLE_BYTES_MAX; i++) {
		struct packimg_sample *sample = &bench->samples[TRIAL_STORED][bench->count];
		uint64_t index = (trials->images * (2 * i + 1)) / (2 * wanted);

		if (packimg_sample(bench->dataset, index, sample) || packimg_sample_check(sample) ||
		    try_once(bench, &stored, 0, bench->count))
			continue;
		bytes += sample->data_size;
		trials->side += shorter_side(sample);
		if (sample->codec == PACKIMG_CODEC_JPEG) {
			trials->jpegs++;
			trials->unindexed += !packimg_sample_indexed(sample);
		}
		bench->count++;
	}
	trials->sampled = bench->count;
	trials->side /= bench->count ? bench->count : 1;
}

static unsigned finished_side(const struct transform *transform)
{
	struct transform_shape shape;

	transform_shape(transform, 0, &shape);
	return shape.width < shape.height ? shape.width : shape.height;
}

/* Is the way worth a trial, by what is known before it is made? */
static int is_worth_it(const struct bench *bench, const struct trials *trials, enum trial_way way)
{
	double side = trials->side * 100 / MARGIN_PERCENT;

	switch (way) {
	case TRIAL_STORED:
		return 1;
	case TRIAL_INDEX:
		return trials->unindexed > 0;
	case TRIAL_RECODE:
		return trials->unindexed > trials->ways[TRIAL_INDEX].changed;
	case TRIAL_QUALITY:
		return trials->jpegs > 0;
	case TRIAL_SMALLER:
		return trials->short_side < side && transform_has_size(bench->transform);
	case TRIAL_RAW:
		return trials->jpegs > 0 || trials->short_side < side;
	default:
		return 0;
	}
}

static int make_all(struct bench *bench, struct trials *trials)
{
	unsigned side = finished_side(bench->transform) * SPARE / SPARE_OF;

	/* Without a size of its own the pipeline delivers what is stored. */
	trials->short_side = transform_has_size(bench->transform) ? side : PACKIMG_SIDE_MAX;
	for (enum trial_way way = TRIAL_INDEX; way < TRIAL_COUNT; way++) {
		if (!is_worth_it(bench, trials, way))
			continue;
		for (unsigned i = 0; i < bench->count; i++) {
			int r = make(bench, trials, way, i);

			if (r)
				return r;
		}
	}
	trials->unindexable = trials->unindexed - trials->ways[TRIAL_INDEX].changed;
	trials->ways[TRIAL_STORED].changed = bench->count;
	return 0;
}

static double cpu_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void enter(struct bench *bench, enum trial_way way, const struct transform *transform,
		  double *result)
{
	bench->contests[bench->contest_count++] = (struct contest){
		.samples = bench->samples[way], .transform = transform, .result = result};
}

static int measure(struct bench *bench, struct trials *trials)
{
	for (enum trial_way way = 0; way < TRIAL_COUNT; way++)
		if (trials->ways[way].changed)
			enter(bench, way, bench->transform, &trials->ways[way].image_us);
	for (unsigned i = 0; i < trials->step_count; i++)
		enter(bench, TRIAL_STORED, bench->shorter[i], &trials->steps[i].image_us);
	/* Round 0 warms memory, caches and tables. */
	for (unsigned round = 0; round <= ROUNDS; round++) {
		for (unsigned c = 0; c < bench->contest_count; c++) {
			struct contest *contest = &bench->contests[c];
			double start = cpu_us();

			for (unsigned i = 0; i < bench->count; i++)
				if (try_once(bench, contest, round, i))
					return -EBADMSG;
			if (round)
				contest->turns[round - 1] = (cpu_us() - start) / bench->count;
		}
	}
	for (unsigned c = 0; c < bench->contest_count; c++) {
		struct contest *contest = &bench->contests[c];

		qsort(contest->turns, ROUNDS, sizeof(double), compare);
		*contest->result = contest->turns[ROUNDS / 2];
	}
	return 0;
}

static void count_bytes(const struct bench *bench, struct trials *trials)
{
	for (enum trial_way way = 0; way < TRIAL_COUNT; way++) {
		for (unsigned i = 0; i < bench->count && trials->ways[way].changed; i++) {
			const struct packimg_sample *sample = &bench->samples[way][i];

			trials->ways[way].bytes +=
				((double)sample->data_size + sample->side_size) / bench->count;
		}
	}
}

/* Where a step ends that begins at text: a name, and what is in parentheses behind it. */
static const char *step_end(const char *text)
{
	const char *end = text + strcspn(text, " \t\r\n(");
	const char *open = end + strspn(end, " \t\r\n");
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

static int is_named(const char *step, const char *name)
{
	size_t length = strlen(name);

	return !strncmp(step, name, length) && (step[length] == '(' || step[length] == ' ');
}

/*
 * Leaves out step number `number`; with `bytes` all that makes the output other than bytes. Writes the rest to `rest` and what is left out to
 * `text`. False: there is no such step.
 */
static int leave_out(const char *pipeline, unsigned number, int bytes, char *rest,
		     char text[TRIAL_STEP_TEXT])
{
	unsigned i = 0;
	int found = 0;

	*rest = text[0] = '\0';
	for (const char *step = pipeline + strspn(pipeline, " \t\r\n"); *step; i++) {
		const char *end = step_end(step);
		int out = bytes ? is_named(step, "normalize") || is_named(step, "to") : i == number;
		size_t used = strlen(text);

		if (out)
			snprintf(text + used, TRIAL_STEP_TEXT - used, "%s%.*s", found ? " " : "",
				 (int)(end - step), step);
		else
			sprintf(rest + strlen(rest), "%.*s ", (int)(end - step), step);
		found += out;
		step = end + strspn(end, " \t\r\n");
	}
	return found > 0;
}

static int has_same_shape(const struct transform *a, const struct transform *b)
{
	struct transform_shape x, y;

	transform_shape(a, 0, &x);
	transform_shape(b, 0, &y);
	return x.width == y.width && x.height == y.height;
}

/* Pipelines without a step, as far as they are pipelines, and the one without normalising and casting. */
static int make_shorter(struct bench *bench, struct trials *trials, const char *pipeline)
{
	char *rest = malloc(2 * strlen(pipeline) + 2);
	unsigned *count = &trials->step_count;
	struct transform_error reason;

	if (!rest)
		return -ENOMEM;
	for (unsigned i = 0; *count < TRIAL_STEPS_MAX; i++) {
		struct transform **shorter = &bench->shorter[*count];
		int bytes = i == 0; /* first this, then the steps one by one */

		if (!leave_out(pipeline, i - 1, bytes, rest, trials->steps[*count].text)) {
			if (!bytes)
				break;
			continue;
		}
		if (!transform_has_size(bench->transform) ||
		    prepare(bench->dataset, rest, shorter, &reason))
			continue;
		if (transform_has_size(*shorter) && has_same_shape(*shorter, bench->transform)) {
			++*count;
			continue;
		}
		transform_free(*shorter);
		*shorter = NULL;
	}
	free(rest);
	return 0;
}

double trials_resident(const char *path)
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

int trials_measure(const char *path, const char *pipeline, struct trials *ret_trials, char *error)
{
	struct trials trials = {0};
	struct bench *bench = NULL;
	int r = bench_new(path, pipeline, &bench, error);

	if (r)
		return r;
	trials.images = packimg_count(bench->dataset);
	trials.bytes = bytes_of(bench->dataset);
	choose(bench, &trials);
	if (!bench->count)
		r = error_set(error, -EBADMSG,
			      "%s: none of the images sampled can be decoded; run packimg verify",
			      path);
	if (!r)
		r = make_all(bench, &trials);
	if (!r)
		r = make_shorter(bench, &trials, pipeline);
	if (!r)
		r = measure(bench, &trials);
	if (!r)
		count_bytes(bench, &trials);
	bench_free(bench);
	if (r && !error[0])
		error_set(error, r, "%s: %s", path, strerror(-r));
	if (!r)
		*ret_trials = trials;
	return r;
}
