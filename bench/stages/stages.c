#include "bench/stages/stages.h"

#include "format/augment/apply/geometry.h"
#include "format/augment/pipeline.h"
#include "format/base/system/clock.h"
#include "format/base/system/ticks.h"
#include "format/codec/jpeg/jpeg_baseline.h"
#include "format/codec/jpeg/jpeg_frame.h"
#include "format/codec/side_data.h"
#include "format/layout.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	SEED = 1,
	OUTPUTS = 256, /* output buffers for finished samples, used in turn, as in a batch */
	SIDE_MIN = 16, /* smaller images are skipped */
	WARM_TIMES = 8,
};

static int fail(struct packimg_error *error, const char *text)
{
	snprintf(error->text, sizeof(error->text), "%s", text);
	return -1;
}

/*
 * Fills in the region that the pipeline crops from a sample. Returns false if the sample is
 * skipped.
 */
static bool crop_fill(struct crop *crop, const struct pipeline *parsed)
{
	const struct packimg_sample *sample = &crop->sample;
	struct jpeg_frame frame;
	struct geometry geometry;

	if (sample->codec != PACKIMG_CODEC_JPEG || sample->orientation != 1 ||
	    sample->width < SIDE_MIN || sample->height < SIDE_MIN ||
	    jpeg_frame_parse(sample->data, sample->data_size, &frame) < 0 ||
	    geometry_make(parsed, sample->width, sample->height, SEED, 0, sample->index, NULL,
			  &geometry, NULL) < 0)
		return false;
	crop->part = (struct turbo_crop){
		.data = sample->data,
		.size = sample->data_size,
		.x = geometry.stages[0].x.low,
		.y = geometry.stages[0].y.low,
		.width = geometry.stages[0].x.high - geometry.stages[0].x.low,
		.height = geometry.stages[0].y.high - geometry.stages[0].y.low,
	};
	return true;
}

static int choose(const struct packimg *dataset, const struct pipeline *parsed, uint32_t count,
		  struct crops *crops, struct packimg_error *error)
{
	uint64_t samples = packimg_count(dataset);

	for (uint64_t i = 0; i < samples && crops->count < count; i++) {
		struct crop *crop = &crops->crops[crops->count];
		/* Try evenly spaced samples first, then the samples in between. */
		uint64_t step = samples / count + !(samples / count),
			 rounds = (samples + step - 1) / step;
		uint64_t index = i % rounds * step + i / rounds;

		if (index >= samples)
			continue;
		if (packimg_sample(dataset, index, &crop->sample) < 0)
			return fail(error, "a sample cannot be read; packimg verify gives details");
		if (!crop_fill(crop, parsed)) {
			crops->skipped++;
			continue;
		}
		crops->count++;
		crops->indexed += packimg_sample_indexed(&crop->sample);
		crops->pixels += (double)crop->part.width * crop->part.height;
		crops->bytes += crop->sample.data_size;
	}
	return crops->count ? 0 : fail(error, "has no upright baseline JPEGs");
}

int crops_choose(const struct packimg *dataset, const char *pipeline, uint32_t count,
		 struct crops *ret_crops, struct packimg_error *error)
{
	struct crops crops = {.pipeline = pipeline};
	struct pipeline_error reason;
	struct pipeline_shape shape;
	struct pipeline *parsed;

	if (pipeline_parse(pipeline, &parsed, &reason) < 0)
		return fail(error, reason.text);
	pipeline_shape(parsed, 0, &shape);
	crops.side = shape.width;
	crops.crops = calloc(count, sizeof(*crops.crops));
	int r = crops.crops ? choose(dataset, parsed, count, &crops, error)
			    : fail(error, "out of memory");
	pipeline_free(parsed);
	if (r < 0)
		crops_deinit(&crops);
	else
		*ret_crops = crops;
	return r;
}

void crops_deinit(struct crops *crops)
{
	free(crops->crops);
	crops->crops = NULL;
}

/* ---- in the decoder's process ---- */

/* State of the process that measures a decoder. */
struct decoder_run {
	const struct crops *crops;
	struct times *times;
	struct turbo *turbo;
	struct jpeg_baseline *baseline;
	struct pipeline *parsed;
	struct pipeline_scratch *scratch;
	uint8_t *outputs;
	size_t output_size;
	/* sum of the fractions from turbo_entropy(); 0 if each crop was decoded in full */
	double share;
};

typedef int (*stage_work)(struct decoder_run *run, const struct crop *crop, uint32_t number);

/* Begins decoding the crop; if `whole`, all of its rows are kept in memory. */
static int baseline_begin(struct jpeg_baseline *baseline, const struct crop *crop, bool whole,
			  struct jpeg_rows *ret_rows)
{
	const struct packimg_sample *sample = &crop->sample;
	const struct turbo_crop *part = &crop->part;
	struct jpeg_region region = {{.data = sample->data,
				      .size = sample->data_size,
				      .width = sample->width,
				      .height = sample->height,
				      .components = sample->channels},
				     part->x,
				     part->y,
				     part->width,
				     part->height};

	side_data_find(sample->side, sample->side_size, PIMG_SIDE_JPEG_INDEX, &region.source.index,
		       &region.source.index_size);
	return jpeg_baseline_begin(baseline, &region, whole, ret_rows);
}

static int baseline_entropy(struct decoder_run *run, const struct crop *crop, uint32_t number)
{
	struct jpeg_rows rows;
	int r = baseline_begin(run->baseline, crop, false, &rows);

	return r ?: jpeg_baseline_coefficients(run->baseline);
}

static int baseline_decode(struct decoder_run *run, const struct crop *crop, uint32_t number)
{
	struct jpeg_rows rows;
	int r = baseline_begin(run->baseline, crop, true, &rows);

	return r ?: jpeg_baseline_rows(run->baseline, crop->part.height, NULL);
}

static int baseline_crop(struct decoder_run *run, const struct crop *crop, uint32_t number)
{
	return pipeline_apply(run->parsed, run->scratch, &crop->sample, SEED, 0,
			      run->outputs + number % OUTPUTS * run->output_size, NULL, NULL);
}

static int turbo_time_entropy(struct decoder_run *run, const struct crop *crop, uint32_t number)
{
	double share = 0;
	int r = turbo_entropy(run->turbo, &crop->part, &share);

	run->share += share;
	return r;
}

static int turbo_time_region(struct decoder_run *run, const struct crop *crop, uint32_t number)
{
	return turbo_region(run->turbo, &crop->part);
}

static int turbo_time_image(struct decoder_run *run, const struct crop *crop, uint32_t number)
{
	return turbo_image(run->turbo, &crop->part);
}

static int turbo_time_coefficients(struct decoder_run *run, const struct crop *crop,
				   uint32_t number)
{
	return turbo_coefficients(run->turbo, &crop->part);
}

/* Functions of both implementations; NULL for warm stages, which reuse another stage's. */
static const struct {
	const char *name;
	stage_work own, theirs;
} stage_rows[CROP_STAGES] = {
	[CROP_ENTROPY] = {"entropy", baseline_entropy, turbo_time_entropy},
	[CROP_DECODE] = {"decode", baseline_decode, turbo_time_region},
	[CROP_SAMPLE] = {"crop", baseline_crop, NULL},
	[CROP_WARM_ENTROPY] = {"warm_entropy", NULL, NULL},
	[CROP_WARM_SAMPLE] = {"warm_crop", NULL, NULL},
	[CROP_IMAGE] = {"image", NULL, turbo_time_image},
	[CROP_COEFFICIENTS] = {"coefficients", NULL, turbo_time_coefficients},
};

const char *decoder_name(enum decoder decoder)
{
	return decoder == DECODER_TURBO ? "libjpeg-turbo" : cpu_isa_name((enum cpu_isa)decoder);
}

const char *stage_name(enum crop_stage stage)
{
	return stage_rows[stage].name;
}

static void try_work(struct decoder_run *run, enum crop_stage stage, stage_work work, uint32_t crop,
		     uint32_t number)
{
	struct times *times = run->times;
	int r = work(run, &run->crops->crops[crop], number);

	if (r < 0)
		snprintf(times->error, sizeof(times->error), "%s, sample %llu: %s",
			 stage_name(stage),
			 (unsigned long long)run->crops->crops[crop].sample.index,
			 run->turbo ? turbo_error(run->turbo) : strerror(-r));
}

/*
 * For each stage, sums over the crops the minimum of several runs. The stages alternate, so that a
 * drifting clock speed affects them alike.
 */
static void measure_warm(struct decoder_run *run, const enum crop_stage stages[2],
			 const stage_work works[2])
{
	double sum[2] = {0};

	for (uint32_t i = 0; i < run->crops->count && !run->times->error[0]; i++) {
		double min[2] = {INFINITY, INFINITY};

		for (unsigned turn = 0; turn < 2 * WARM_TIMES && !run->times->error[0]; turn++) {
			double begin = 1e6 * clock_s(CLOCK_THREAD_CPUTIME_ID);

			try_work(run, stages[turn % 2], works[turn % 2], i, 0);
			min[turn % 2] =
				fmin(min[turn % 2], 1e6 * clock_s(CLOCK_THREAD_CPUTIME_ID) - begin);
		}
		for (int k = 0; k < 2; k++)
			sum[k] += min[k];
	}
	for (int k = 0; k < 2; k++)
		run->times->us[stages[k]] = sum[k] / run->crops->count;
}

/* Microseconds per crop in the second pass. */
static void measure(struct decoder_run *run, enum crop_stage stage, stage_work work)
{
	const struct crops *crops = run->crops;
	struct times *times = run->times;
	double begin = 0;

	for (unsigned pass = 0; pass < 2; pass++) {
		run->share = 0;
		begin = 1e6 * clock_s(CLOCK_THREAD_CPUTIME_ID);
		for (uint32_t i = 0; i < crops->count && !times->error[0]; i++)
			try_work(run, stage, work, i, i);
	}
	times->us[stage] = (1e6 * clock_s(CLOCK_THREAD_CPUTIME_ID) - begin) /
			   (run->share > 0 ? run->share : crops->count);
}

static int run_init(struct decoder_run *run)
{
	struct pipeline_error reason;
	struct pipeline_shape shape;
	int r = jpeg_baseline_new(&run->baseline);

	r = r ?: pipeline_parse(run->crops->pipeline, &run->parsed, &reason);
	r = r ?: pipeline_scratch_new(&run->scratch);
	if (r < 0)
		return r;
	pipeline_shape(run->parsed, 0, &shape);
	/*
	 * As in the daemon: samples begin at a cache line, and the threads' clock is chosen at
	 * start.
	 */
	run->output_size = (shape.sample_size + 63) / 64 * 64;
	run->outputs = aligned_alloc(64, OUTPUTS * run->output_size);
	ticks_init();
	return run->outputs ? 0 : -ENOMEM;
}

/* The exit of the process frees the memory. */
static void measure_our_stages(struct decoder_run *run)
{
	int r = run_init(run);

	if (r < 0) {
		snprintf(run->times->error, sizeof(run->times->error), "%s", strerror(-r));
		return;
	}
	for (unsigned stage = 0; stage < CROP_STAGES; stage++)
		if (stage_rows[stage].own)
			measure(run, stage, stage_rows[stage].own);
	measure_warm(run, (const enum crop_stage[]){CROP_WARM_ENTROPY, CROP_WARM_SAMPLE},
		     (const stage_work[]){baseline_entropy, baseline_crop});
}

static void run_turbo(struct decoder_run *run)
{
	int r = turbo_new(&run->turbo);

	if (r < 0) {
		snprintf(run->times->error, sizeof(run->times->error), "%s", strerror(-r));
		return;
	}
	for (unsigned stage = 0; stage < CROP_STAGES; stage++)
		if (stage_rows[stage].theirs)
			measure(run, stage, stage_rows[stage].theirs);
}

void stages_measure(const struct crops *crops, enum decoder decoder, struct times *ret_times)
{
	struct times *times = mmap(NULL, sizeof(*times), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child = times == MAP_FAILED ? -1 : fork();
	int status = 0;

	if (child == 0) {
		struct decoder_run run = {.crops = crops, .times = times};

		for (int i = 0; i < CROP_STAGES; i++)
			times->us[i] = NAN;
		setenv("LOADERD_ISA", decoder_name(decoder), 1);
		if (decoder == DECODER_TURBO)
			run_turbo(&run);
		else
			measure_our_stages(&run);
		_exit(0);
	}
	*ret_times = (struct times){0};
	if (child < 0 || waitpid(child, &status, 0) < 0)
		snprintf(ret_times->error, sizeof(ret_times->error), "%s", strerror(errno));
	else if (status)
		snprintf(ret_times->error, sizeof(ret_times->error), "%s has died (status %#x)",
			 decoder_name(decoder), (unsigned)status);
	else
		*ret_times = *times;
	if (times != MAP_FAILED)
		munmap(times, sizeof(*times));
}

int stages_dump(const struct crops *crops, const char *path)
{
	struct jpeg_baseline *baseline;
	FILE *file = fopen(path, "we");
	int r = file ? jpeg_baseline_new(&baseline) : -errno;

	if (r < 0) {
		if (file)
			fclose(file);
		return r;
	}
	for (uint32_t i = 0; i < crops->count && !r; i++) {
		const struct turbo_crop *part = &crops->crops[i].part;
		uint8_t head[8] = {(uint8_t)part->width,  (uint8_t)(part->width >> 8),  0, 0,
				   (uint8_t)part->height, (uint8_t)(part->height >> 8), 0, 0};
		struct jpeg_rows rows;

		r = baseline_begin(baseline, &crops->crops[i], true, &rows);
		r = r ?: jpeg_baseline_rows(baseline, part->height, NULL);
		if (r == 0) {
			fwrite(head, sizeof(head), 1, file);
			fwrite(rows.data, 3 * (size_t)part->width, part->height, file);
		}
	}
	jpeg_baseline_free(baseline);
	if (ferror(file) && !r)
		r = -EIO;
	if (fclose(file) && !r)
		r = -errno;
	return r;
}
