/* Losses of rows of logits, and their gradients. */
#include "trainer/device/cpu/rows.h"
#include "trainer/device/ops.h"

#include <math.h>

static void count_ranks(const float *z, uint32_t classes, int32_t label, struct loss_sums *sums)
{
	uint32_t rank = 0;

	for (uint32_t i = 0; i < classes; i++)
		rank += z[i] > z[label] || (z[i] == z[label] && (int32_t)i < label);
	/*
	 * comparisons with NaN are false: without this check a diverged network would count as
	 * always right
	 */
	if (!isfinite(z[label]))
		rank = classes;
	sums->top1 += rank < 1;
	sums->top5 += rank < 5;
}

/*
 * One sample of a plain loss: replaces z (scaled logits) with the gradient. Targets are smoothed as
 * in ops.h: on_value = 1 - smoothing + smoothing / classes for the label, off_value =
 * smoothing / classes for the other classes.
 */
static double loss_row(const struct loss_args *args, float *restrict z, int32_t label)
{
	uint32_t classes = args->classes;
	float smoothing = args->spec->smoothing, largest = z[0],
	      off_value = smoothing / (float)classes, on_value = 1 - smoothing + off_value;
	float factor = args->gradient_scale * args->spec->logit_scale;
	double sum = 0, total = 0, target = (double)z[label];

	for (uint32_t i = 0; i < classes; i++) {
		largest = z[i] > largest ? z[i] : largest;
		total += (double)z[i];
	}
	for (uint32_t i = 0; i < classes; i++)
		z[i] = exp_fast(z[i] - largest);
	for (uint32_t i = 0; i < classes; i++)
		sum += (double)z[i];
	for (uint32_t i = 0; i < classes; i++)
		z[i] = (z[i] * (float)(1 / sum) - off_value) * factor;
	z[label] -= (on_value - off_value) * factor;
	/* -sum_i target_i (z_i - log_sum_exp(z)), where the targets add up to 1 */
	return (double)largest + log(sum) - (double)(on_value - off_value) * target -
	       (double)off_value * total;
}

/*
 * Targets of a sample per class, smoothed as in ops.h: t = scale * target + offset,
 * with scale = 1 - smoothing and offset = smoothing / classes.
 */
static void loss_target(const struct loss_args *args, size_t row, float *restrict t)
{
	float offset = args->spec->smoothing / (float)args->classes,
	      scale = 1 - args->spec->smoothing;
	bool dense = args->spec->targets == DEVICE_DENSE;
	const float *targets = dense ? args->targets + row * args->classes : NULL;

	for (uint32_t i = 0; i < args->classes; i++)
		t[i] = (dense ? scale * targets[i] : 0) + offset;
	if (dense)
		return;
	if (args->spec->targets == DEVICE_TWO_LABELS) {
		t[args->labels[row]] += scale * args->shares[row];
		t[args->labels2[row]] += scale * (1 - args->shares[row]);
	} else {
		t[args->labels[row]] += scale;
	}
}

/* Softmax cross-entropy: multiplies t by the class weights and replaces z with the gradient. */
static double softmax_row(const struct loss_args *args, float *restrict z, float *restrict t)
{
	const float *weights = args->spec->class_weights;
	uint32_t classes = args->classes;
	float factor = args->gradient_scale * args->spec->logit_scale * args->spec->temperature,
	      largest = z[0];
	double sum = 0, target = 0, all = 0;

	for (uint32_t i = 0; weights && i < classes; i++)
		t[i] *= weights[i];
	for (uint32_t i = 0; i < classes; i++) {
		largest = z[i] > largest ? z[i] : largest;
		target += (double)t[i] * (double)z[i];
		all += (double)t[i];
	}
	for (uint32_t i = 0; i < classes; i++)
		z[i] = exp_fast(z[i] - largest);
	for (uint32_t i = 0; i < classes; i++)
		sum += (double)z[i];
	for (uint32_t i = 0; i < classes; i++)
		z[i] = (z[i] * (float)(all / sum) - t[i]) * factor;
	return all * ((double)largest + log(sum)) - target;
}

/* sum of t log t, the difference between divergence and cross-entropy. */
static double negative_entropy(const float *t, uint32_t classes)
{
	double sum = 0;

	for (uint32_t i = 0; i < classes; i++)
		if (t[i] > 0)
			sum += (double)t[i] * log((double)t[i]);
	return sum;
}

#define SIGMOIDS 512 /* terms per product: each is at most 2, so that it does not overflow */

/*
 * Binary cross-entropy: with s = sigmoid(z) and e = exp(-|z|),
 * -t log(s) - (1 - t) log(1 - s) = max(z, 0) - z t + log(1 + e).
 * Replaces z with the gradient. Without class weights, sums of log(1 + e) are computed as
 * logarithms of products.
 */
static double sigmoid_row(const struct loss_args *args, float *restrict z, const float *restrict t)
{
	const float *weights = args->spec->class_weights;
	float factor = args->gradient_scale * args->spec->logit_scale / (float)args->classes;
	double loss = 0;

	for (uint32_t at = 0; at < args->classes; at += SIGMOIDS) {
		size_t last = at + size_min(args->classes - at, SIGMOIDS);
		double product = 1;

		for (size_t i = at; i < last; i++) {
			float e = exp_fast(z[i] < 0 ? z[i] : -z[i]);
			float weight = weights ? weights[i] : 1;
			double above = (double)(z[i] > 0 ? z[i] : 0) - (double)z[i] * (double)t[i];

			if (weights)
				above = (double)weight * (above + log1p((double)e));
			else
				product *= 1 + (double)e;
			loss += above;
			z[i] = ((z[i] < 0 ? e : 1) / (1 + e) - t[i]) * (weight * factor);
		}
		loss += log(product);
	}
	return loss / args->classes;
}

/*
 * Mean over the outputs of the squared error, or of Huber's function of the error. Replaces z with
 * the gradient. NaN takes the quadratic branch, so that the gradient is NaN too.
 */
static double regression_row(const struct loss_args *args, float *restrict z,
			     const float *restrict t)
{
	bool huber = args->spec->kind == DEVICE_HUBER;
	float factor = args->gradient_scale * args->spec->logit_scale / (float)args->classes;
	double loss = 0;

	for (uint32_t i = 0; i < args->classes; i++) {
		float error = z[i] - t[i];

		if (huber && fabsf(error) >= 1) {
			loss += fabs((double)error) - 0.5;
			z[i] = copysignf(factor, error);
		} else {
			loss += (double)error * (double)error * (huber ? 0.5 : 1);
			z[i] = error * factor * (huber ? 1 : 2);
		}
	}
	return loss / args->classes;
}

/* One sample of any loss: replaces z (fully scaled logits) with the gradient. */
static double loss_any_row(const struct loss_args *args, size_t row, float *restrict z,
			   float *restrict t)
{
	const struct device_loss_spec *spec = args->spec;

	loss_target(args, row, t);
	if (spec->kind == DEVICE_SIGMOID)
		return sigmoid_row(args, z, t);
	if (spec->kind == DEVICE_SQUARED || spec->kind == DEVICE_HUBER)
		return regression_row(args, z, t);
	if (spec->kind == DEVICE_SOFTMAX)
		return softmax_row(args, z, t);
	double entropy = negative_entropy(t, args->classes);
	return (softmax_row(args, z, t) + entropy) * (double)spec->temperature *
	       (double)spec->temperature;
}

/*
 * Divergence from the teacher, times temperature squared. ret_gradient is [3][classes]: the
 * gradient, then two rows of scratch.
 */
static double teacher_row(const struct loss_args *args, size_t row, float *restrict ret_gradient)
{
	const struct device_loss_spec *spec = args->spec;
	uint32_t classes = args->classes;
	float temperature = spec->teacher_temperature, *restrict z = ret_gradient;
	float *restrict t = z + classes, *restrict logit_gap = t + classes;
	float student = spec->logit_scale / temperature, z_largest = -INFINITY,
	      t_largest = -INFINITY;
	float factor = args->gradient_scale * args->teacher_scale * spec->teacher_weight *
		       temperature * spec->logit_scale;
	double z_sum = 0, t_sum = 0, product = 0;

	load_row(z, args->logits, args->logits_element, row * classes, classes);
	for (uint32_t i = 0; i < classes; i++) {
		z[i] *= student;
		t[i] = args->teacher[row * classes + i] / temperature;
		logit_gap[i] = t[i] - z[i];
		z_largest = z[i] > z_largest ? z[i] : z_largest;
		t_largest = t[i] > t_largest ? t[i] : t_largest;
	}
	for (uint32_t i = 0; i < classes; i++) {
		z[i] = exp_fast(z[i] - z_largest);
		t[i] = exp_fast(t[i] - t_largest);
	}
	for (uint32_t i = 0; i < classes; i++) {
		z_sum += (double)z[i];
		t_sum += (double)t[i];
		product += (double)t[i] * (double)logit_gap[i];
	}
	for (uint32_t i = 0; i < classes; i++)
		z[i] = (z[i] * (float)(1 / z_sum) - t[i] * (float)(1 / t_sum)) * factor;
	return ((double)z_largest + log(z_sum) - (double)t_largest - log(t_sum) + product / t_sum) *
	       (double)temperature * (double)temperature;
}

/*
 * The loss combined with a teacher: replaces z, the gradient of the `hard` loss, with the combined
 * gradient.
 */
static double taught_row(const struct loss_args *args, size_t row, float *restrict z, double hard)
{
	float weight = args->spec->teacher_weight, *restrict soft = z + args->classes;
	double divergence = teacher_row(args, row, soft);

	for (uint32_t i = 0; i < args->classes; i++)
		z[i] = (1 - weight) * z[i] + soft[i];
	return (1 - (double)weight) * hard +
	       (double)weight * (double)args->teacher_scale * divergence;
}

void KERNELS_NAMED(loss)(const struct loss_args *args, struct loss_sums *sums)
{
	const struct device_loss_spec *spec = args->spec;
	float *z = args->scratch, scale = spec->logit_scale / spec->temperature;

	for (size_t row = 0; row < args->rows; row++) {
		size_t at = row * args->classes;
		int32_t label = args->labels[row];
		double loss = 0;

		if (label < 0 || label >= (int32_t)args->classes) {
			memset(z, 0, args->classes * sizeof(float));
		} else {
			load_row(z, args->logits, args->logits_element, at, args->classes);
			for (uint32_t i = 0; i < args->classes; i++)
				z[i] *= scale;
			count_ranks(z, args->classes, label, sums);
			loss = args->plain ? loss_row(args, z, label)
					   : loss_any_row(args, row, z, z + args->classes);
			if (args->teacher)
				loss = taught_row(args, row, z, loss);
			sums->samples++;
			sums->loss += loss;
		}
		args->losses[row] = (float)loss;
		if (args->gradient)
			store_row(args->gradient, z, args->gradient_element, at, args->classes);
	}
}
