/*
 * Batch size search: finds which sizes fit into device memory, how fast they are, and up to which
 * size larger batches pay off, given the gradient noise scale (find_noise.c).
 *
 * Planning finds which sizes fit: doubles from FIND_UNIT, then bisects in multiples of it. Powers
 * of two and the largest size are timed on images of the first batch, without a feed. Each of
 * several passes times all sizes, and the median counts, so that a machine that becomes slower
 * affects all sizes alike.
 *
 * With batch size B and noise scale N, training needs 1 + B / N times the images that small batches
 * need (McCandlish et al. 2018, section 2.3: E = E_min (1 + B / B_crit), with N for B_crit). So
 * training time is proportional to (1 + B / N) / (images per second). The search suggests the size
 * that minimises it.
 */
#include "format/base/system/clock.h"
#include "format/base/text/printable.h"
#include "trainer/device/graph.h"
#include "trainer/device/steps.h"
#include "trainer/log/picture.h"
#include "trainer/run/output/result_files.h"
#include "trainer/run/search/find.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	FIND_UNIT = 8,
	FIND_BATCH_MAX = 65536, /* maximum of data.batch_size */
	FIND_SIZES = 16,
	FIND_PASSES = 3,
	FIND_STEPS_MAX = 50, /* steps per size and pass */
};

#define FIND_ROUND_S 0.5  /* target duration of a size's steps in one pass */
#define FIND_STEP_S  20.0 /* slower steps end the timing of larger sizes */
#define FIND_NEAR    0.95 /* fraction of the highest speed that counts as equally fast */
/*
 * Learning rate for timing: practically keeps the weights unchanged, since the same images repeat.
 */
#define FIND_NO_RATE 1e-9

struct find_size {
	uint32_t batch;
	double seconds[FIND_PASSES]; /* per step, in each pass */
	double images_per_second;
	uint64_t arena_bytes;
};

struct find_batch {
	struct run *run;
	struct find_size sizes[FIND_SIZES]; /* ascending */
	unsigned count;
	uint32_t largest, bound;
	bool bounded;    /* even the upper bound fits, so the largest size is unknown */
	char why[1024];  /* why larger sizes do not fit */
	char *images;    /* [recipe's batch size] images of the first batch */
	int32_t *labels; /* [recipe's batch size] */
	float *targets;  /* with data.target: [recipe's batch size][classes], else NULL */
	struct feed_batch first;
	struct find_noise_result noise;
	uint32_t recipe_batch;
	bool slow; /* larger sizes were skipped because a step takes over FIND_STEP_S */
};

/* ---- which sizes fit ---- */

/*
 * Plans the training graph of a batch size. If the recipe evaluates, also plans the evaluation
 * graph, since both are in memory together; frees an evaluation graph of another size first.
 */
static int find_plan(struct run *run, uint32_t batch)
{
	struct run_graph *eval = &run->network.eval;
	uint32_t height = eval->height, width = eval->width;
	grad_accum_set(&run->ctx, batch, 1);
	if (eval->count != data_val_share(&run->data))
		run_graph_release(eval);
	int r = run_plan_train(run);
	return r < 0 || !height ? r : run_plan_eval(run, height, width);
}

/* True if the size fits. Otherwise stores the reason, which need not be a lack of memory. */
static bool find_fits(struct find_batch *find, uint32_t batch)
{
	bool fits = find_plan(find->run, batch) == 0;
	progress_line(&find->run->ctx.progress, "batches of %u images %s", batch,
		      fits ? "fit" : "do not fit");
	if (fits)
		return true;
	snprintf(find->why, sizeof(find->why), "%.*s", (int)sizeof(find->why) - 1,
		 find->run->ctx.error);
	return false;
}

static int find_largest(struct find_batch *find)
{
	struct run *run = find->run;
	uint32_t fits = 0, fails = 0;
	for (uint32_t batch = FIND_UNIT; batch <= find->bound && !fails; batch *= 2) {
		if (*run->ctx.options.stop)
			return run_fail(&run->ctx, -EINTR, "--find-batch-size: stopped");
		if (find_fits(find, batch))
			fits = batch;
		else
			fails = batch;
	}
	/* all powers of two fit: search up to the bound */
	if (!fails)
		fails = find->bound + FIND_UNIT;
	while (fails - fits > FIND_UNIT) {
		uint32_t middle = (fits + fails) / 2 / FIND_UNIT * FIND_UNIT;
		if (*run->ctx.options.stop)
			return run_fail(&run->ctx, -EINTR, "--find-batch-size: stopped");
		if (find_fits(find, middle))
			fits = middle;
		else
			fails = middle;
	}
	if (!fits)
		return run_fail(&run->ctx, -ENOMEM,
				"--find-batch-size: even batches of %d images do not fit: %.900s",
				FIND_UNIT, find->why);
	find->largest = fits;
	find->bounded = fits + FIND_UNIT > find->bound;
	return 0;
}

/* ---- speed ---- */

/* Frees what find_fill() has made. */
static void find_free(const struct device_batch *batch)
{
	free((void *)batch->images);
	free((void *)batch->labels);
	free((void *)batch->targets);
}

/* Builds a batch by repeating the first batch's images. Free it with find_free(). */
static int find_fill(const struct find_batch *find, uint32_t batch, struct device_batch *ret_batch)
{
	struct run *run = find->run;
	struct feed_batch filled = find->first;
	const size_t image = find->first.image_bytes / find->first.count;
	const size_t outputs = find->targets ? run->data.classes : 0;
	char *images = malloc((size_t)batch * image);
	int32_t *labels = malloc((size_t)batch * sizeof(*labels));
	float *targets = find->targets ? malloc(batch * outputs * sizeof(*targets)) : NULL;
	bool enough = images && labels && (targets || !find->targets);
	for (uint32_t i = 0; enough && i < batch; i++) {
		uint32_t from = i % find->first.count;
		memcpy(images + i * image, find->images + from * image, image);
		labels[i] = find->labels[from];
		if (targets)
			memcpy(targets + i * outputs, find->targets + from * outputs,
			       outputs * sizeof(*targets));
	}
	filled.count = batch;
	filled.images = images;
	filled.labels = labels;
	int r = enough ? run_train_batch(run, NULL, &filled, ret_batch)
		       : run_fail(&run->ctx, -ENOMEM, "out of memory");
	if (r < 0)
		*ret_batch = (struct device_batch){.images = images, .labels = labels};
	ret_batch->targets = targets;
	if (r < 0)
		find_free(ret_batch);
	return r;
}

/* Runs steps on a batch. Returns the time per step in *ret_seconds. */
static int find_run(struct run *run, const struct device_batch *batch, unsigned steps,
		    double *ret_seconds)
{
	uint64_t ticket;
	double start = clock_s(CLOCK_MONOTONIC);
	for (unsigned i = 0; i < steps; i++) {
		if (*run->ctx.options.stop)
			return run_fail(&run->ctx, -EINTR, "--find-batch-size: stopped");
		int r = run_update(run, batch, &ticket);
		if (r < 0)
			return r;
		r = device_upload_done(run->network.train.graph, ticket, true);
		if (r < 0)
			return run_fail_step(run, r, "copying a batch");
	}
	int r = run_collect(run, 0);
	*ret_seconds = (clock_s(CLOCK_MONOTONIC) - start) / steps;
	return r;
}

/* Times steps on a batch. */
static int find_time_batch(struct run *run, const struct device_batch *batch, double *ret_seconds)
{
	double once;
	/* the first step is slower, so the second one determines the number of steps */
	int r = find_run(run, batch, 1, &once);
	if (r < 0)
		return r;
	if (once < FIND_STEP_S) {
		r = find_run(run, batch, 1, &once);
		if (r < 0)
			return r;
	}
	double steps = fmin(fmax(ceil(FIND_ROUND_S / once), 1), FIND_STEPS_MAX);
	return find_run(run, batch, (unsigned)steps, ret_seconds);
}

static int find_time(struct find_batch *find, struct find_size *size, unsigned pass)
{
	struct run *run = find->run;
	struct device_graph_info info;
	struct device_batch batch;
	int r = find_plan(run, size->batch);
	if (r < 0)
		return r;
	r = augment_open(&run->augment);
	if (r < 0)
		return r;
	r = find_fill(find, size->batch, &batch);
	if (r < 0)
		return r;
	device_graph_info(run->network.train.graph, &info);
	size->arena_bytes = info.arena_bytes;
	r = find_time_batch(run, &batch, &size->seconds[pass]);
	if (r == 0)
		progress_line(&run->ctx.progress,
			      "batches of %u images: %.1f images/s, pass %u of %d", size->batch,
			      size->batch / size->seconds[pass], pass + 1, FIND_PASSES);
	find_free(&batch);
	return r;
}

static int find_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void find_summarise(struct find_size *size)
{
	double sorted[FIND_PASSES];
	memcpy(sorted, size->seconds, sizeof(sorted));
	qsort(sorted, FIND_PASSES, sizeof(*sorted), find_compare);
	size->images_per_second = size->batch / sorted[FIND_PASSES / 2];
}

/*
 * First pass, in ascending order. If a size runs out of memory despite its plan, discards it and
 * all larger ones.
 */
static int find_time_first(struct find_batch *find)
{
	struct run *run = find->run;
	for (unsigned i = 0; i < find->count; i++) {
		int r = find_time(find, &find->sizes[i], 0);
		if (r == -ENOMEM && i) {
			snprintf(find->why, sizeof(find->why), "%.1000s", run->ctx.error);
			find->count = i;
			find->largest = find->sizes[i - 1].batch;
			find->bounded = false;
			return 0;
		}
		if (r < 0)
			return r;
		find->slow = find->sizes[i].seconds[0] > FIND_STEP_S && i + 1 < find->count;
		if (find->slow)
			find->count = i + 1;
	}
	return 0;
}

/* A later pass; odd passes run in descending order. */
static int find_time_pass(struct find_batch *find, unsigned pass)
{
	for (unsigned i = 0; i < find->count; i++) {
		unsigned at = pass % 2 ? find->count - 1 - i : i;
		int r = find_time(find, &find->sizes[at], pass);
		if (r < 0)
			return r;
	}
	return 0;
}

static int find_speeds(struct find_batch *find)
{
	struct run *run = find->run;
	for (uint32_t batch = FIND_UNIT; batch < find->largest; batch *= 2)
		find->sizes[find->count++].batch = batch;
	find->sizes[find->count++].batch = find->largest;
	run->hook.lr_factor = FIND_NO_RATE;
	int r = find_time_first(find);
	for (unsigned pass = 1; pass < FIND_PASSES && r == 0; pass++)
		r = find_time_pass(find, pass);
	for (unsigned i = 0; i < find->count; i++)
		find_summarise(&find->sizes[i]);
	return r;
}

/* ---- evaluation ---- */

/* Training time with a size, up to a factor common to all sizes. */
static double find_training_time(const struct find_batch *find, const struct find_size *size)
{
	double scale = find->noise.scale;
	double more = scale > 0 ? size->batch / scale : 0;
	return (1 + more) / size->images_per_second;
}

static const struct find_size *find_fastest(const struct find_batch *find)
{
	const struct find_size *best = &find->sizes[0];
	for (unsigned i = 1; i < find->count; i++)
		if (find->sizes[i].images_per_second > best->images_per_second)
			best = &find->sizes[i];
	return best;
}

/* Smallest size that is about as fast as the fastest (FIND_NEAR). */
static const struct find_size *find_fast_enough(const struct find_batch *find)
{
	double speed_max = find_fastest(find)->images_per_second;
	const struct find_size *size = find->sizes;
	while (size->images_per_second < FIND_NEAR * speed_max)
		size++;
	return size;
}

static bool find_has_noise(const struct find_batch *find)
{
	return isfinite(find->noise.scale) && find->noise.scale > 0;
}

static const struct find_size *find_suggestion(const struct find_batch *find)
{
	const struct find_size *best = &find->sizes[0];
	if (isinf(find->noise.scale))
		return find_fastest(find);
	if (!find_has_noise(find))
		return find_fast_enough(find);
	for (unsigned i = 1; i < find->count; i++)
		if (find_training_time(find, &find->sizes[i]) < find_training_time(find, best))
			best = &find->sizes[i];
	return best;
}

static void find_write_csv(const void *data, FILE *file)
{
	const struct find_batch *find = data;
	const struct find_size *best = find_suggestion(find);
	fputs("batch_size,images_per_second,ms_per_step,arena_mib,training_time\n", file);
	for (unsigned i = 0; i < find->count; i++) {
		const struct find_size *size = &find->sizes[i];
		fprintf(file, "%u,%.9g,%.9g,%.9g,", size->batch, size->images_per_second,
			1e3 * size->batch / size->images_per_second,
			(double)size->arena_bytes / (1 << 20));
		if (find_has_noise(find))
			fprintf(file, "%.9g",
				find_training_time(find, size) / find_training_time(find, best));
		fputc('\n', file);
	}
}

static void find_draw(const void *data, FILE *file)
{
	const struct find_batch *find = data;
	const struct find_size *best = find_suggestion(find);
	double batch[FIND_SIZES], speed[FIND_SIZES], scale = find->noise.scale;
	char text[64];
	struct picture picture = {file,
				  FIND_UNIT,
				  2 * (double)find->largest,
				  0,
				  1.1 * find_fastest(find)->images_per_second,
				  .base = 2};
	picture.top = picture_open(file, 1, 1);
	picture_note(file, 0, "dots: single measurements; line: their median");
	picture_begin(&picture, "batch size", "images/s");
	for (unsigned i = 0; i < find->count; i++) {
		batch[i] = find->sizes[i].batch;
		speed[i] = find->sizes[i].images_per_second;
		for (unsigned pass = 0; pass < FIND_PASSES; pass++)
			picture_dot(&picture, batch[i], batch[i] / find->sizes[i].seconds[pass]);
	}
	picture_curve(&picture, &picture_black, batch, speed, find->count);
	snprintf(text, sizeof(text), "largest %u", find->largest);
	picture_mark(&picture, find->largest, 100, "#666", text);
	snprintf(text, sizeof(text), "suggested %u", best->batch);
	picture_mark(&picture, best->batch, 220, "#06c", text);
	snprintf(text, sizeof(text), "noise scale %.3g", scale);
	if (find_has_noise(find) && scale >= FIND_UNIT && scale <= picture.to)
		picture_mark(&picture, scale, 360, "#c30", text);
	picture_end(&picture);
	picture_close(file);
}

static void find_print_table(const struct find_batch *find, FILE *file)
{
	const struct find_size *best = find_suggestion(find);
	fprintf(file, "%10s %12s %10s %12s %14s\n", "batch size", "images/s", "ms/step",
		"memory MiB", "training time");
	for (unsigned i = 0; i < find->count; i++) {
		const struct find_size *size = &find->sizes[i];
		char time[32] = "";
		if (find_has_noise(find))
			snprintf(time, sizeof(time), "%.2f",
				 find_training_time(find, size) / find_training_time(find, best));
		fprintf(file, "%10u %12.1f %10.2f %12.1f %14s\n", size->batch,
			size->images_per_second, 1e3 * size->batch / size->images_per_second,
			(double)size->arena_bytes / (1 << 20), time);
	}
}

static void find_print_fits(const struct find_batch *find, FILE *file)
{
	fprintf(file, "largest that fits   %u", find->largest);
	if (!find->bounded)
		printable_line(file, ": %s", find->why);
	else if (find->bound < FIND_BATCH_MAX)
		fprintf(file,
			": larger sizes were not tried, since an epoch has only %llu samples\n",
			(unsigned long long)find->run->data.epoch_samples);
	else
		fprintf(file,
			": the device has memory for more than the largest data.batch_size\n");
	if (find->slow)
		fprintf(file,
			"                    steps take more than %.0f s from %u on, so larger "
			"sizes were not timed\n",
			FIND_STEP_S, find->sizes[find->count - 1].batch);
}

static void find_print_noise(const struct find_batch *find, FILE *file)
{
	const struct find_noise_result *noise = &find->noise;
	fputs("noise scale         ", file);
	if (!noise->steps)
		fprintf(file,
			"unknown: data.batch_size = %u is not divisible into two or more "
			"micro-batches; use an even number of images\n",
			find->recipe_batch);
	else if (isinf(noise->scale))
		fprintf(file,
			"too large to measure with %u steps of batches of %u: noise dominates the "
			"gradient, so larger batches pay off\n",
			noise->steps, find->recipe_batch);
	else
		fprintf(file,
			"%.3g images, from gradients of %g and of %u images over %u steps from the "
			"initial weights; it grows during training\n",
			noise->scale, noise->small, find->recipe_batch, noise->steps);
}

static void find_print_suggestion(const struct find_batch *find, FILE *file)
{
	const struct find_size *best = find_suggestion(find), *fastest = find_fastest(find);
	fprintf(file,
		"fastest             %u, with %.1f images/s; sizes from %u on are less than %.0f "
		"%% slower\n",
		fastest->batch, fastest->images_per_second, find_fast_enough(find)->batch,
		100 * (1 - FIND_NEAR));
	fprintf(file, "suggested           data.batch_size=%u: ", best->batch);
	if (!find_has_noise(find))
		fprintf(file, "%s\n",
			best == fastest ? "the fastest" : "the smallest that is as fast as any");
	else
		fprintf(file,
			"training with batch size B needs 1 + B / %.3g times the images of small "
			"batches; this size takes the least time\n",
			find->noise.scale);
	fputs("                    another batch size needs another learning rate: see "
	      "optim.lr_base_size and --find-lr\n",
	      file);
	if (find->recipe_batch > find->largest)
		fprintf(file,
			"                    data.batch_size = %u does not fit as a whole: "
			"train.accumulate=auto computes it in micro-batches%s\n",
			find->recipe_batch,
			network_has_batch_norms(&find->run->network)
				? ", whose statistics batch norms then use"
				: "");
}

/* ---- all of it ---- */

static int find_keep_first(struct find_batch *find)
{
	const struct feed_batch *batch = &find->run->input.batch;
	const float *targets = find->run->input.feed.targets;
	const size_t numbers = (size_t)batch->count * find->run->data.classes;
	find->first = *batch;
	find->images = malloc(batch->image_bytes);
	find->labels = malloc(batch->count * sizeof(*find->labels));
	find->targets = targets ? malloc(numbers * sizeof(*targets)) : NULL;
	if (!find->images || !find->labels || (targets && !find->targets))
		return run_fail(&find->run->ctx, -ENOMEM, "out of memory");
	if (targets)
		memcpy(find->targets, targets, numbers * sizeof(*targets));
	memcpy(find->images, batch->images, batch->image_bytes);
	for (uint32_t i = 0; i < batch->count; i++)
		find->labels[i] = batch->labels ? batch->labels[i] : -1;
	return 0;
}

/* Measures the noise scale, while the feed still delivers batches of the recipe's size. */
static int find_noise(struct find_batch *find)
{
	struct run *run = find->run;
	uint32_t parts = find_noise_parts(run);
	find->noise.scale = NAN;
	if (!parts)
		return 0;
	grad_accum_set(&run->ctx, run->ctx.recipe->data.batch_size, parts);
	return find_noise_measure(run, &find->noise);
}

static int find_all(struct find_batch *find)
{
	struct run *run = find->run;
	uint64_t samples = run->data.epoch_samples;
	uint64_t bound = samples < FIND_BATCH_MAX ? samples : FIND_BATCH_MAX;
	find->bound = (uint32_t)bound / FIND_UNIT * FIND_UNIT;
	find->recipe_batch = (uint32_t)run->ctx.recipe->data.batch_size;
	if (!find->bound)
		return run_fail(&run->ctx, -EINVAL,
				"--find-batch-size: an epoch has %llu sample%s, but the smallest "
				"batch to try has %d",
				(unsigned long long)samples, samples == 1 ? "" : "s", FIND_UNIT);
	int r = find_keep_first(find);
	if (r < 0)
		return r;
	r = find_noise(find);
	if (r < 0)
		return r;
	/* for pipelines with a size schedule, use the first epoch's image size */
	input_set_size(&run->input, find->first.height, find->first.width);
	r = find_largest(find);
	return r < 0 ? r : find_speeds(find);
}

static int find_report(struct run *run, const struct find_batch *find, FILE *file)
{
	const char *name = run->ctx.options.find_batch_size;
	int r = result_file_write(&run->ctx, "--find-batch-size", name, ".csv", find_write_csv,
				  find);
	if (r < 0)
		return r;
	r = result_file_write(&run->ctx, "--find-batch-size", name, ".svg", find_draw, find);
	if (r < 0)
		return r;
	find_print_table(find, file);
	find_print_fits(find, file);
	find_print_noise(find, file);
	find_print_suggestion(find, file);
	fprintf(file, "%s.csv, %s.svg: the table and a plot of it\n", name, name);
	return 0;
}

int run_find_batch_size(struct run *run, FILE *file)
{
	if (run->ctx.comm->world > 1)
		return run_fail_everywhere(
			&run->ctx, -EINVAL,
			"--find-batch-size measures one device: start it without mpirun, and "
			"multiply the result by the number of ranks");
	struct find_batch *find = calloc(1, sizeof(*find));
	if (!find)
		return run_fail(&run->ctx, -ENOMEM, "out of memory");
	find->run = run;
	int r = find_all(find);
	if (r == 0)
		r = find_report(run, find, file);
	free(find->images);
	free(find->labels);
	free(find->targets);
	free(find);
	return r;
}
