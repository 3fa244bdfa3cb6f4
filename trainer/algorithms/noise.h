/*
 * The gradient noise scale: how large a batch may be before more images in it stop being worth as
 * much as more steps (McCandlish et al. 2018, "An Empirical Model of Large-Batch Training",
 * arXiv:1812.06162, section 2.2 and appendix A.1).
 *
 * What is estimated is the simple noise scale tr(Sigma) / |G|^2, of the gradient G of the whole
 * loss and the covariance Sigma of one sample's, from squared norms of mean gradients of two batch
 * sizes. Each step gives unbiased estimates of both; their ratio is not, so each is averaged over
 * steps first, by exponential moving averages whose bias is corrected. A plain value, of one
 * thread.
 */
#pragma once

struct noise {
	double squared_norm; /* averages of |G|^2 and tr(Sigma), which begin at 0 */
	double trace;
	double weight; /* of what has been added, among them */
};

/* What a step measured: squared norms of the mean gradients of `small` and of `big` samples. */
struct noise_norms {
	double small, big; /* small < big */
	double small_squared, big_squared;
};

void noise_add(struct noise *noise, const struct noise_norms *norms);
/*
 * In samples. INFINITY: |G|^2 is not above what noise makes of it, so that the scale is larger than
 * can be measured by so few steps with such batches; NAN: nothing was added. 0: there is no noise.
 */
double noise_scale(const struct noise *noise);
