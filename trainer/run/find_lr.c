/*
 * The learning-rate finder (Smith, WACV 2017, arXiv:1506.01186, section 3.3): from the initial
 * weights a short training whose rate grows from step to step, and what its losses suggest. Where
 * they fall steepest, and a tenth of where they are least, are the two usual readings. Losses are
 * smoothed as fastai does it: a running mean whose bias is corrected.
 */
#include "trainer/run/run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	FIND_STEPS = 100,
	FIND_SETTLED = 10, /* steps before which nothing is read or given up */
	FIND_WIDTH = 720,
	FIND_HEIGHT = 420,
	FIND_LEFT = 64, /* margins of the picture */
	FIND_TOP = 32,
	FIND_RIGHT = 24,
	FIND_BOTTOM = 48,
};

#define FIND_FROM   1e-6
#define FIND_TO     10.0
#define FIND_MEMORY 0.9 /* of the running mean */
#define FIND_WORST  4.0 /* times the least loss: further there is nothing to see */

struct find {
	double rate[FIND_STEPS], loss[FIND_STEPS], smooth[FIND_STEPS];
	unsigned count, steepest, least;
};

static bool find_is_over(const struct find *find, double least)
{
	double last = find->smooth[find->count - 1];
	return !isfinite(last) || (find->count > FIND_SETTLED && last > FIND_WORST * least);
}

/* Losses that are not finite end it; they are not among what is read. */
static int find_train(struct run *run, struct find *find)
{
	double mean = 0, least = INFINITY;
	for (unsigned i = 0; i < FIND_STEPS; i++) {
		run->find_rate = FIND_FROM * pow(FIND_TO / FIND_FROM, i / (FIND_STEPS - 1.0));
		int r = run_step(run);
		if (!r)
			r = run_collect(run, 0);
		if (r)
			return r;
		mean = FIND_MEMORY * mean + (1 - FIND_MEMORY) * run->last_loss;
		find->rate[i] = run->find_rate;
		find->loss[i] = run->last_loss;
		find->smooth[i] = mean / (1 - pow(FIND_MEMORY, i + 1.0));
		find->count = i + 1;
		if (find_is_over(find, least))
			break;
		least = fmin(least, find->smooth[i]);
	}
	while (find->count && !isfinite(find->smooth[find->count - 1]))
		find->count--;
	return 0;
}

/* Rates are spaced evenly on a logarithmic scale, so differences are slopes on it. */
static int find_read(struct run *run, struct find *find)
{
	if (find->count < FIND_SETTLED + 2)
		return run_fail(run, -EDOM,
				"--find-lr: the loss is not finite from step %u on, at a learning "
				"rate of %.3g: something else is wrong; --detect-anomaly names it",
				find->count + 1, FIND_FROM);
	find->steepest = find->least = FIND_SETTLED;
	for (unsigned i = FIND_SETTLED; i + 1 < find->count; i++) {
		double fall = find->smooth[i - 1] - find->smooth[i + 1];
		unsigned best = find->steepest;
		if (fall > find->smooth[best - 1] - find->smooth[best + 1])
			find->steepest = i;
	}
	for (unsigned i = FIND_SETTLED; i < find->count; i++)
		if (find->smooth[i] < find->smooth[find->least])
			find->least = i;
	return 0;
}

static void find_write_csv(const struct find *find, FILE *file)
{
	fputs("step,lr,loss,smoothed\n", file);
	for (unsigned i = 0; i < find->count; i++)
		fprintf(file, "%u,%.9g,%.9g,%.9g\n", i + 1, find->rate[i], find->loss[i],
			find->smooth[i]);
}

/* ---- the picture ---- */

struct frame {
	double least, most; /* losses */
};

static double frame_x(double rate)
{
	return FIND_LEFT + (FIND_WIDTH - FIND_LEFT - FIND_RIGHT) * log(rate / FIND_FROM) /
				   log(FIND_TO / FIND_FROM);
}

static double frame_y(const struct frame *frame, double loss)
{
	double share = (fmin(loss, frame->most) - frame->least) / (frame->most - frame->least);
	return FIND_HEIGHT - FIND_BOTTOM - (FIND_HEIGHT - FIND_TOP - FIND_BOTTOM) * share;
}

static struct frame frame_of(const struct find *find)
{
	struct frame frame = {INFINITY, -INFINITY};
	for (unsigned i = 0; i < find->count; i++) {
		frame.least = fmin(frame.least, find->smooth[i]);
		frame.most = fmax(frame.most, find->smooth[i]);
	}
	double margin = 0.05 * (frame.most - frame.least) + 1e-9;
	return (struct frame){frame.least - margin, frame.most + margin};
}

static void draw_axes(const struct frame *frame, FILE *file)
{
	for (double rate = FIND_FROM; rate < FIND_TO * 1.5; rate *= 10)
		fprintf(file,
			"<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"#ddd\"/>"
			"<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.0e</text>\n",
			frame_x(rate), frame_x(rate), FIND_TOP, FIND_HEIGHT - FIND_BOTTOM,
			frame_x(rate), FIND_HEIGHT - FIND_BOTTOM + 18, rate);
	for (int i = 0; i <= 4; i++) {
		double loss = frame->least + (frame->most - frame->least) * i / 4;
		fprintf(file,
			"<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>"
			"<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.3g</text>\n",
			FIND_LEFT, FIND_WIDTH - FIND_RIGHT, frame_y(frame, loss),
			frame_y(frame, loss), FIND_LEFT - 6, frame_y(frame, loss) + 4, loss);
	}
	fprintf(file, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">learning rate</text>\n",
		(FIND_WIDTH + FIND_LEFT - FIND_RIGHT) / 2, FIND_HEIGHT - 8);
	fprintf(file, "<text x=\"%d\" y=\"%d\">loss</text>\n", FIND_LEFT, FIND_TOP - 12);
}

static void draw_mark(double rate, double x, const char *color, const char *text, FILE *file)
{
	fprintf(file,
		"<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"%s\" "
		"stroke-dasharray=\"4 3\"/><text x=\"%.1f\" y=\"%d\" fill=\"%s\">%s %.2g</text>\n",
		frame_x(rate), frame_x(rate), FIND_TOP, FIND_HEIGHT - FIND_BOTTOM, color, x,
		FIND_TOP - 12, color, text, rate);
}

static void find_draw(const struct find *find, FILE *file)
{
	struct frame frame = frame_of(find);
	fprintf(file,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
		"font-family=\"sans-serif\" font-size=\"12\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
		FIND_WIDTH, FIND_HEIGHT);
	draw_axes(&frame, file);
	for (unsigned i = 0; i < find->count; i++)
		if (isfinite(find->loss[i]))
			fprintf(file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"1.5\" fill=\"#999\"/>\n",
				frame_x(find->rate[i]),
				frame_y(&frame, fmax(find->loss[i], frame.least)));
	fputs("<polyline fill=\"none\" stroke=\"black\" stroke-width=\"1.5\" points=\"", file);
	for (unsigned i = 0; i < find->count; i++)
		fprintf(file, "%.1f,%.1f ", frame_x(find->rate[i]),
			frame_y(&frame, find->smooth[i]));
	fputs("\"/>\n", file);
	draw_mark(find->rate[find->steepest], FIND_LEFT + 120, "#06c", "steepest", file);
	draw_mark(find->rate[find->least] / 10, FIND_LEFT + 280, "#c30", "minimum / 10", file);
	fputs("</svg>\n", file);
}

/* ---- all of it ---- */

static int find_put(struct run *run, const struct find *find, const char *ending,
		    void (*write)(const struct find *find, FILE *file))
{
	char path[CHECKPOINT_PATH_MAX];
	if (snprintf(path, sizeof(path), "%s%s", run->options.find_lr, ending) >= (int)sizeof(path))
		return run_fail(run, -ENAMETOOLONG, "--find-lr=%.100s... is too long",
				run->options.find_lr);
	FILE *file = fopen(path, "we");
	int r = file ? 0 : -errno;
	if (file) {
		write(find, file);
		r = ferror(file) ? -EIO : 0;
		if (fclose(file) && !r)
			r = -errno;
	}
	return r ? run_fail(run, r, "%s: %s", path, strerror(-r)) : 0;
}

/* Rank 0's part. */
static int find_tell(struct run *run, const struct find *find, FILE *file)
{
	int r = find_put(run, find, ".csv", find_write_csv);
	if (!r)
		r = find_put(run, find, ".svg", find_draw);
	if (r)
		return r;
	fprintf(file,
		"%s.csv, %s.svg: %u steps with batches of %llu, learning rates from %.1e to %.1e\n"
		"the loss falls steepest at          optim.lr=%.2g\n"
		"a tenth of where it is least (%.2g) optim.lr=%.2g\n",
		run->options.find_lr, run->options.find_lr, find->count,
		(unsigned long long)run->recipe->data.batch_size, find->rate[0],
		find->rate[find->count - 1], find->rate[find->steepest], find->rate[find->least],
		find->rate[find->least] / 10);
	return 0;
}

int run_find_lr(struct run *run, FILE *file)
{
	struct find *find = calloc(1, sizeof(*find));
	int r = find ? find_train(run, find) : -ENOMEM;
	if (r == -EINTR || r == RUN_LOST)
		r = run_fail(run, -EINTR, "--find-lr: stopped after %u steps", find->count);
	if (!r)
		r = find_read(run, find);
	if (!r && run->comm->rank == 0)
		r = find_tell(run, find, file);
	free(find);
	return r;
}
