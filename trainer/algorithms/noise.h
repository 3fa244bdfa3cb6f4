/*
 * The gradient noise scale: the batch size up to which more images per batch are about as useful as
 * more steps (McCandlish et al. 2018, "An Empirical Model of Large-Batch Training",
 * arXiv:1812.06162, section 2.2 and appendix A.1).
 *
 * Estimates the simple noise scale, tr(Sigma) / |G|^2, where G is the gradient of the full loss and
 * Sigma the covariance of per-sample gradients. The input is the squared norms of mean gradients at
 * two batch sizes. Each step gives unbiased estimates of |G|^2 and tr(Sigma), but not of their
 * ratio, so each is averaged over steps before the division, by bias-corrected exponential moving
 * averages. A plain value; use from one thread.
 */
#pragma once

struct noise {
	double squared_norm; /* running averages of |G|^2 and tr(Sigma), initially 0 */
	double trace;
	double weight; /* total weight of the values added to the averages */
};

/*
 * One step's measurement: squared norms of the mean gradients over `small` and over `big` samples.
 */
struct noise_norms {
	double small, big; /* small < big */
	double small_squared, big_squared;
};

void noise_add(struct noise *noise, const struct noise_norms *norms);
/*
 * The noise scale in samples. INFINITY if the estimate of |G|^2 is not positive: the scale is too
 * large to be measured with this many steps and samples. NAN if nothing was added; 0 if there is no
 * noise.
 */
double noise_scale(const struct noise *noise);
