/*
 * trainer --overfit-batch: trains on the first batch only, without regularisation. A network that
 * cannot memorise a batch has an error in labels, pixels or learning rate (Karpathy 2019, A Recipe
 * for Training Neural Networks).
 */
#include "trainer/run/run_internal.h"

#include <errno.h>

enum { OVERFIT_STEPS = 300 };

#define OVERFIT_LOSS 0.05 /* fraction of the first loss */

struct overfit {
	unsigned steps;
	double first, loss, top1;
	bool classes; /* with data.target there is no top-1, and the loss alone counts */
};

/* Formats the top-1 behind `before`, if there is one. */
static void overfit_top1_text(const struct overfit *overfit, const char *before, char ret_text[64])
{
	*ret_text = '\0';
	if (overfit->classes)
		snprintf(ret_text, 64, "%s%.2f %%", before, 100 * overfit->top1);
}

static int overfit_step(struct run *run, struct overfit *overfit)
{
	struct checkpoint_totals before = run->state.whole;
	int r = run_step(run);
	if (r)
		return r;
	r = run_collect(run, 0);
	if (r < 0)
		return r;
	const struct checkpoint_totals *now = &run->state.whole;
	overfit->loss = run->meter.last_loss;
	overfit->top1 = (double)(now->top1 - before.top1) / (double)(now->samples - before.samples);
	if (!overfit->steps++)
		overfit->first = overfit->loss;
	return 0;
}

static bool overfit_is_learned(const struct overfit *overfit)
{
	return (!overfit->classes || overfit->top1 == 1) &&
	       overfit->loss < OVERFIT_LOSS * overfit->first;
}

static int overfit_train(struct run *run, struct overfit *overfit, FILE *file)
{
	char top1[64];
	while (overfit->steps < OVERFIT_STEPS && !overfit_is_learned(overfit)) {
		int r = overfit_step(run, overfit);
		if (r)
			return r;
		overfit_top1_text(overfit, "  top-1 ", top1);
		/* after step 1, 2, 4, 8, ... */
		if (!run->ctx.comm->rank && !(overfit->steps & (overfit->steps - 1)))
			fprintf(file, "step %3u  loss %.5f%s\n", overfit->steps, overfit->loss,
				top1);
	}
	return 0;
}

int run_overfit_batch(struct run *run, FILE *file)
{
	struct overfit overfit = {.classes = !run->data.target.outputs};
	char top1[64];
	int r = overfit_train(run, &overfit, file);
	if (r == -EINTR || r == RUN_LOST)
		return run_fail(&run->ctx, -EINTR, "--overfit-batch: stopped after %u steps",
				overfit.steps);
	if (r < 0)
		return r;
	overfit_top1_text(&overfit, ", and top-1 is ", top1);
	if (!overfit_is_learned(&overfit))
		return run_fail_everywhere(
			&run->ctx, -EDOM,
			"--overfit-batch: after %u steps on the same images the loss is %.4f (it "
			"was %.4f)%s: check the labels (loaderctl dataset "
			"shows the classes), data.mean and data.std, and optim.lr (--find-lr)",
			overfit.steps, overfit.loss, overfit.first, top1);
	if (!run->ctx.comm->rank)
		fprintf(file,
			"the network memorised the first batch in %u steps: loss %.5f (it was "
			"%.4f)\n",
			overfit.steps, overfit.loss, overfit.first);
	return 0;
}
