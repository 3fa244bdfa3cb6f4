/*
 * Learning rate finder (Smith, WACV 2017, arXiv:1506.01186, section 3.3). Trains briefly from the
 * initial weights with a rate that grows at every step, then analyses the losses (find_rate.h).
 * Makes the two usual suggestions: the rate of steepest descent, and a tenth of the rate at the
 * lowest loss. Losses are smoothed as in fastai, by an exponential moving average with bias
 * correction.
 */
#include "trainer/algorithms/find_rate.h"
#include "trainer/log/picture.h"
#include "trainer/run/output/result_files.h"
#include "trainer/run/run_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum {
	FIND_STEPS = 100,
	/* number of initial steps whose losses are ignored and do not end the search */
	FIND_SETTLED = 10,
};

#define FIND_FROM     1e-6
#define FIND_TO       10.0
#define FIND_MEMORY   0.9 /* decay of the moving average */
#define FIND_LOSS_MAX 4.0 /* multiple of the lowest loss that ends the search */

struct find {
	double rate[FIND_STEPS], loss[FIND_STEPS], smooth[FIND_STEPS];
	unsigned count, steepest, lowest; /* indices */
};

static bool find_is_over(const struct find *find, double loss_min)
{
	double last = find->smooth[find->count - 1];
	return !isfinite(last) || (find->count > FIND_SETTLED && last > FIND_LOSS_MAX * loss_min);
}

/* Trains. A non-finite loss ends the training and is not used. */
static int find_train(struct run *run, struct find *find)
{
	double mean = 0, loss_min = INFINITY;
	for (unsigned i = 0; i < FIND_STEPS; i++) {
		run->hook.lr_factor = FIND_FROM * pow(FIND_TO / FIND_FROM, i / (FIND_STEPS - 1.0));
		int r = run_step(run);
		if (r)
			return r;
		r = run_collect(run, 0);
		if (r < 0)
			return r;
		mean = FIND_MEMORY * mean + (1 - FIND_MEMORY) * run->meter.last_loss;
		find->rate[i] = run->hook.lr_factor;
		find->loss[i] = run->meter.last_loss;
		find->smooth[i] = mean / (1 - pow(FIND_MEMORY, i + 1.0));
		find->count = i + 1;
		if (find_is_over(find, loss_min))
			break;
		loss_min = fmin(loss_min, find->smooth[i]);
	}
	while (find->count && !isfinite(find->smooth[find->count - 1]))
		find->count--;
	return 0;
}

static int find_read(struct run *run, struct find *find)
{
	if (find->count < FIND_SETTLED + 2)
		return run_fail(&run->ctx, -EDOM,
				"--find-lr: the loss is not finite from step %u on, even at a "
				"learning rate of %.3g, so the rate is not the cause; use "
				"--detect-anomaly to find it",
				find->count + 1, FIND_FROM);
	find_rate_read(find->smooth, FIND_SETTLED, find->count, &find->steepest, &find->lowest);
	return 0;
}

static void find_write_csv(const void *data, FILE *file)
{
	const struct find *find = data;
	fputs("step,lr,loss,smoothed\n", file);
	for (unsigned i = 0; i < find->count; i++)
		fprintf(file, "%u,%.9g,%.9g,%.9g\n", i + 1, find->rate[i], find->loss[i],
			find->smooth[i]);
}

/* ---- plot ---- */

static void find_draw_marks(const struct find *find, const struct picture *picture)
{
	char text[64];
	snprintf(text, sizeof(text), "steepest %.2g", find->rate[find->steepest]);
	picture_mark(picture, find->rate[find->steepest], 120, "#06c", text);
	snprintf(text, sizeof(text), "minimum / 10 %.2g", find->rate[find->lowest] / 10);
	picture_mark(picture, find->rate[find->lowest] / 10, 280, "#c30", text);
}

static void find_draw(const void *data, FILE *file)
{
	const struct find *find = data;
	double loss_min = INFINITY, loss_max = -INFINITY;
	for (unsigned i = 0; i < find->count; i++) {
		loss_min = fmin(loss_min, find->smooth[i]);
		loss_max = fmax(loss_max, find->smooth[i]);
	}
	double margin = 0.05 * (loss_max - loss_min) + 1e-9;
	struct picture picture = {
		file, FIND_FROM, FIND_TO, loss_min - margin, loss_max + margin, .base = 10};
	picture.top = picture_open(file, 1, 1);
	picture_note(file, 0, "dots: losses of steps; line: their running mean");
	picture_begin(&picture, "learning rate", "loss");
	for (unsigned i = 0; i < find->count; i++)
		if (isfinite(find->loss[i]))
			picture_dot(&picture, find->rate[i], find->loss[i]);
	picture_curve(&picture, &picture_black, find->rate, find->smooth, find->count);
	find_draw_marks(find, &picture);
	picture_end(&picture);
	picture_close(file);
}

/* ---- all of it ---- */

/* Rank 0: reports the result. */
static int find_report(struct run *run, const struct find *find, FILE *file)
{
	const char *name = run->ctx.options.find_lr;
	int r = result_file_write(&run->ctx, "--find-lr", name, ".csv", find_write_csv, find);
	if (r < 0)
		return r;
	r = result_file_write(&run->ctx, "--find-lr", name, ".svg", find_draw, find);
	if (r < 0)
		return r;
	fprintf(file,
		"%s.csv, %s.svg: %u steps with batches of %llu, learning rates from %.1e to "
		"%.1e\nsteepest descent of the loss at     optim.lr=%.2g\na tenth of the minimum's "
		"(%.2g)     optim.lr=%.2g\n",
		name, name, find->count, (unsigned long long)run->ctx.recipe->data.batch_size,
		find->rate[0], find->rate[find->count - 1], find->rate[find->steepest],
		find->rate[find->lowest], find->rate[find->lowest] / 10);
	return 0;
}

static int find_lr(struct run *run, struct find *find, FILE *file)
{
	int r = find_train(run, find);
	if (r == -EINTR || r == RUN_LOST)
		return run_fail(&run->ctx, -EINTR, "--find-lr: stopped after %u steps",
				find->count);
	if (r < 0)
		return r;
	r = find_read(run, find);
	if (r < 0 || run->ctx.comm->rank)
		return r;
	return find_report(run, find, file);
}

int run_find_lr(struct run *run, FILE *file)
{
	struct find *find = calloc(1, sizeof(*find));
	if (!find)
		return -ENOMEM;
	int r = find_lr(run, find, file);
	free(find);
	return r;
}
