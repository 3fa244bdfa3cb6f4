/* Kernels and launchers of loss.h. */
extern "C" {
#include "trainer/device/cuda/kernels/loss.h"
}

#include "trainer/device/cuda/kernels/common/block_reduce.h"
#include "trainer/device/cuda/kernels/common/launch.h"

#include <errno.h>

uint64_t loss_workspace(uint32_t n)
{
	return n * sizeof(struct loss_record);
}

DEVICE bool has_label(const struct loss_arguments *a, uint32_t sample, int32_t *label)
{
	*label = a->step->labels && sample < a->step->count ? a->step->labels[sample] : -1;
	return *label >= 0 && *label < (int32_t)a->classes;
}

DEVICE float logit(const struct loss_arguments *a, uint32_t sample, uint32_t class_index)
{
	return kernel_load(a->logits, (uint64_t)sample * a->logits_stride + class_index,
			   a->logits_element) *
	       a->logit_scale;
}

/* Results of a block's first pass over its sample's logits. */
struct loss_row {
	float largest, target;
	double sum;    /* of exp(z - largest) */
	double total;  /* of z */
	uint32_t rank; /* number of classes ranked before the label's */
};

DEVICE struct loss_row reduce_row(const struct loss_arguments *a, uint32_t sample, int32_t label)
{
	struct loss_row row;
	float largest = -INFINITY;
	double sum = 0, total = 0;
	uint32_t rank = 0;

	row.target = logit(a, sample, (uint32_t)label);
	for (uint32_t i = threadIdx.x; i < a->classes; i += KERNEL_THREADS) {
		float z = logit(a, sample, i);

		largest = z > largest ? z : largest;
		total += (double)z;
		rank += z > row.target || (z == row.target && (int32_t)i < label);
	}
	row.largest = reduce_max(largest);
	row.total = reduce_sum<double>(total);
	row.rank = reduce_sum<uint32_t>(rank);
	for (uint32_t i = threadIdx.x; i < a->classes; i += KERNEL_THREADS)
		sum += (double)expf(logit(a, sample, i) - row.largest);
	row.sum = reduce_sum<double>(sum);
	/* comparisons with NaN are false, so a diverged net would always rank the label first */
	if (!kernel_finite(row.target))
		row.rank = a->classes;
	return row;
}

DEVICE uint32_t count_labels(const struct loss_arguments *a)
{
	uint32_t count = 0;
	int32_t label;

	for (uint32_t i = threadIdx.x; i < a->n; i += KERNEL_THREADS)
		count += has_label(a, i, &label);
	return reduce_sum<uint32_t>(count);
}

/* One block per sample. Softmax loss with one label per sample, without class weights. */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	loss_softmax_kernel(const __grid_constant__ struct loss_arguments a)
{
	uint32_t sample = blockIdx.x,
		 samples = a.totals ? (uint32_t)a.totals->samples : count_labels(&a);
	float off_value = a.smoothing / (float)a.classes, on_value = 1 - a.smoothing + off_value;
	struct loss_record *record = (struct loss_record *)a.workspace + sample;
	struct loss_row row;
	int32_t label;
	bool labelled = has_label(&a, sample, &label);
	float factor = samples ? (float)(a.state ? a.state->loss_scale : 1) / (float)samples *
					 a.logit_scale
			       : 0;

	row.largest = row.target = 0;
	row.sum = 1;
	row.total = 0;
	row.rank = 0;
	if (labelled)
		row = reduce_row(&a, sample, label);
	if (threadIdx.x == 0) {
		/* -sum_i target_i (z_i - lse): the targets add up to 1 */
		record->loss =
			labelled ? (double)row.largest + log(row.sum) -
					   (double)(on_value - off_value) * (double)row.target -
					   (double)off_value * row.total
				 : 0;
		record->samples = labelled;
		record->top1 = labelled && row.rank < 1;
		record->top5 = labelled && row.rank < 5;
	}
	if (!a.dlogits)
		return;
	for (uint32_t i = threadIdx.x; i < a.dlogits_stride; i += KERNEL_THREADS) {
		float gradient = 0;

		if (labelled && i < a.classes) {
			gradient =
				(expf(logit(&a, sample, i) - row.largest) * (float)(1 / row.sum) -
				 off_value) *
				factor;
			gradient -= (int32_t)i == label ? (on_value - off_value) * factor : 0;
		}
		kernel_store(a.dlogits, (uint64_t)sample * a.dlogits_stride + i, a.dlogits_element,
			     gradient);
	}
}

/* ---- all other losses ---- */

/* Target of a sample: dense, or one or two labels. */
struct loss_target {
	const float *dense; /* NULL if the target is given by labels */
	int32_t label, label2;
	float share;         /* weight of the first label */
	float scale, offset; /* value for a class: scale * its share + offset */
};

/* Returns true if the sample has a target. */
DEVICE bool find_target(const struct loss_arguments *a, uint32_t sample, struct loss_target *target)
{
	const int32_t *labels = a->step->labels;
	bool labelled = has_label(a, sample, &target->label);

	target->dense = NULL;
	target->label2 = target->label;
	target->share = 1;
	target->offset = a->smoothing / (float)a->classes;
	target->scale = 1 - a->smoothing;
	if (labelled && a->targets == DEVICE_TWO_LABELS) {
		target->label2 = labels[a->n + sample];
		target->share = ((const float *)labels)[2 * (uint64_t)a->n + sample];
	}
	if (labelled && a->targets == DEVICE_DENSE)
		target->dense = (const float *)labels + a->n + (uint64_t)sample * a->classes;
	return labelled;
}

DEVICE float target_of(const struct loss_target *target, uint32_t class_index)
{
	float value = 0;

	if (target->dense)
		return target->scale * target->dense[class_index] + target->offset;
	value += (int32_t)class_index == target->label ? target->share : 0;
	value += (int32_t)class_index == target->label2 ? 1 - target->share : 0;
	return target->scale * value + target->offset;
}

DEVICE float class_weight(const struct loss_arguments *a, uint32_t class_index)
{
	return a->class_weights ? a->class_weights[class_index] : 1;
}

DEVICE bool is_weighted(const struct loss_arguments *a)
{
	return a->kind == DEVICE_SOFTMAX && a->targets != DEVICE_DENSE && a->class_weights;
}

/* Contribution of a labelled sample to the divisor of the loss. */
DEVICE double target_weight(const struct loss_arguments *a, const struct loss_target *target)
{
	if (!is_weighted(a))
		return 1;
	return (double)target->share * (double)a->class_weights[target->label] +
	       (1 - (double)target->share) * (double)a->class_weights[target->label2];
}

DEVICE double sum_weights(const struct loss_arguments *a)
{
	struct loss_target target;
	double sum = 0;

	for (uint32_t i = threadIdx.x; i < a->n; i += KERNEL_THREADS)
		if (find_target(a, i, &target))
			sum += target_weight(a, &target);
	return reduce_sum<double>(sum);
}

/* Results of a block's first pass over its sample. */
struct loss_sample {
	double loss;
	float largest;
	double sum;    /* of exp(z - largest) */
	double target; /* sum over classes of class weight * target */
	uint32_t rank; /* number of classes ranked before the label's */
};

DEVICE float scaled(const struct loss_arguments *a, uint32_t sample, uint32_t class_index)
{
	return logit(a, sample, class_index) / a->temperature;
}

/* True if the class ranks before the label. */
DEVICE uint32_t comes_before(float z, uint32_t class_index, float of_label, int32_t label)
{
	return z > of_label || (z == of_label && (int32_t)class_index < label);
}

DEVICE void reduce_softmax(const struct loss_arguments *a, uint32_t sample,
			   const struct loss_target *target, struct loss_sample *row)
{
	float of_label = scaled(a, sample, (uint32_t)target->label), largest = -INFINITY;
	double sum = 0, all = 0, product = 0, entropy = 0;
	uint32_t rank = 0;

	for (uint32_t i = threadIdx.x; i < a->classes; i += KERNEL_THREADS) {
		float z = scaled(a, sample, i), t = target_of(target, i), w = class_weight(a, i);

		largest = z > largest ? z : largest;
		all += (double)(w * t);
		product += (double)(w * t) * (double)z;
		if (a->kind == DEVICE_KL && t > 0)
			entropy += (double)(t * logf(t));
		rank += comes_before(z, i, of_label, target->label);
	}
	row->largest = reduce_max(largest);
	row->target = reduce_sum<double>(all);
	product = reduce_sum<double>(product);
	entropy = reduce_sum<double>(entropy);
	row->rank = reduce_sum<uint32_t>(rank);
	for (uint32_t i = threadIdx.x; i < a->classes; i += KERNEL_THREADS)
		sum += (double)expf(scaled(a, sample, i) - row->largest);
	row->sum = reduce_sum<double>(sum);
	row->loss = (row->target * ((double)row->largest + log(row->sum)) - product + entropy) *
		    (double)a->temperature * (double)a->temperature;
	/* comparisons with NaN are false, so a diverged net would always rank the label first */
	if (!kernel_finite(of_label))
		row->rank = a->classes;
}

/* - t log s - (1 - t) log(1 - s) = max(z, 0) - z t + log(1 + e) with e = exp(-|z|) */
DEVICE void reduce_sigmoid(const struct loss_arguments *a, uint32_t sample,
			   const struct loss_target *target, struct loss_sample *row)
{
	float of_label = scaled(a, sample, (uint32_t)target->label);
	double loss = 0;
	uint32_t rank = 0;

	for (uint32_t i = threadIdx.x; i < a->classes; i += KERNEL_THREADS) {
		float z = scaled(a, sample, i), t = target_of(target, i);

		loss += (double)class_weight(a, i) *
			((double)(z > 0 ? z : 0) - (double)z * (double)t +
			 (double)log1pf(expf(z < 0 ? z : -z)));
		rank += comes_before(z, i, of_label, target->label);
	}
	row->loss = reduce_sum<double>(loss) / a->classes;
	row->rank = reduce_sum<uint32_t>(rank);
	if (!kernel_finite(of_label))
		row->rank = a->classes;
}

DEVICE bool is_regression(const struct loss_arguments *a)
{
	return a->kind == DEVICE_SQUARED || a->kind == DEVICE_HUBER;
}

/* True where Huber's function is linear; NaN takes the quadratic branch. */
DEVICE bool is_linear(const struct loss_arguments *a, float error)
{
	return a->kind == DEVICE_HUBER && fabsf(error) >= 1;
}

DEVICE void reduce_regression(const struct loss_arguments *a, uint32_t sample,
			      const struct loss_target *target, struct loss_sample *row)
{
	double loss = 0, quadratic = a->kind == DEVICE_HUBER ? 0.5 : 1;

	for (uint32_t i = threadIdx.x; i < a->classes; i += KERNEL_THREADS) {
		float error = scaled(a, sample, i) - target_of(target, i);

		loss += is_linear(a, error) ? (double)fabsf(error) - 0.5
					    : (double)error * (double)error * quadratic;
	}
	row->loss = reduce_sum<double>(loss) / a->classes;
}

DEVICE float regression_gradient(const struct loss_arguments *a, float error)
{
	float slope = is_linear(a, error)       ? copysignf(1, error)
		      : a->kind == DEVICE_HUBER ? error
						: 2 * error;

	return slope / (float)a->classes;
}

/* Derivative of the sample's loss with respect to a logit, before the common factors. */
DEVICE float gradient_of(const struct loss_arguments *a, uint32_t sample, uint32_t i,
			 const struct loss_target *target, const struct loss_sample *row)
{
	float z = scaled(a, sample, i), t = target_of(target, i), w = class_weight(a, i);

	if (is_regression(a))
		return regression_gradient(a, z - t);
	if (a->kind != DEVICE_SIGMOID)
		return expf(z - row->largest) * (float)(row->target / row->sum) - w * t;
	float e = expf(z < 0 ? z : -z);
	return ((z < 0 ? e : 1) / (1 + e) - t) * w / (float)a->classes;
}

/* Logit of the student or the teacher, divided by the teacher's temperature. */
DEVICE float teacher_scaled(const struct loss_arguments *a, uint32_t sample, uint32_t class_index,
			    bool teacher)
{
	return (teacher ? a->step->teacher[(uint64_t)sample * a->classes + class_index] *
				  a->step->teacher_scale
			: logit(a, sample, class_index)) /
	       a->teacher_temperature;
}

/* Logarithm of the sum of exp(teacher_scaled()) over classes. */
DEVICE double log_sum(const struct loss_arguments *a, uint32_t sample, bool teacher)
{
	float largest = -INFINITY;
	double sum = 0;

	for (uint32_t i = threadIdx.x; i < a->classes; i += KERNEL_THREADS) {
		float z = teacher_scaled(a, sample, i, teacher);

		largest = z > largest ? z : largest;
	}
	largest = reduce_max(largest);
	for (uint32_t i = threadIdx.x; i < a->classes; i += KERNEL_THREADS)
		sum += (double)expf(teacher_scaled(a, sample, i, teacher) - largest);
	return (double)largest + log(reduce_sum<double>(sum));
}

/* Distillation terms of a block's sample. */
struct loss_teacher_terms {
	double student, teacher; /* log_sum() of student and teacher */
	double loss;             /* KL divergence times the square of the temperature */
};

DEVICE float log_probability(const struct loss_arguments *a, uint32_t sample, uint32_t i,
			     const struct loss_teacher_terms *distill, bool teacher)
{
	return (float)((double)teacher_scaled(a, sample, i, teacher) -
		       (teacher ? distill->teacher : distill->student));
}

DEVICE void reduce_teacher(const struct loss_arguments *a, uint32_t sample,
			   struct loss_teacher_terms *distill)
{
	double sum = 0;

	distill->student = log_sum(a, sample, false);
	distill->teacher = log_sum(a, sample, true);
	for (uint32_t i = threadIdx.x; i < a->classes; i += KERNEL_THREADS) {
		float p = log_probability(a, sample, i, distill, true);

		sum += (double)expf(p) *
		       (double)(p - log_probability(a, sample, i, distill, false));
	}
	distill->loss = reduce_sum<double>(sum) * (double)a->teacher_temperature *
			(double)a->teacher_temperature;
}

/* Derivative of the distillation loss with respect to a logit, before the common factors. */
DEVICE float teacher_gradient(const struct loss_arguments *a, uint32_t sample, uint32_t i,
			      const struct loss_teacher_terms *distill)
{
	return (expf(log_probability(a, sample, i, distill, false)) -
		expf(log_probability(a, sample, i, distill, true))) *
	       a->teacher_temperature;
}

/*
 * Factor on the distillation loss. Cancels the later division by `divisor`, because the
 * distillation loss is a mean over samples.
 */
DEVICE double teacher_scale(const struct loss_arguments *a, double divisor)
{
	double samples = a->totals        ? a->totals->samples
			 : is_weighted(a) ? count_labels(a)
					  : divisor;

	return samples > 0 ? (double)a->teacher_weight * divisor / samples : 0;
}

/* One block per sample. Any loss. */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	loss_any_kernel(const __grid_constant__ struct loss_arguments a)
{
	uint32_t sample = blockIdx.x;
	double divisor = a.totals ? a.totals->divisor : sum_weights(&a);
	bool has_teacher = a.teacher_weight > 0;
	double share = has_teacher ? teacher_scale(&a, divisor) : 0;
	struct loss_teacher_terms distill;
	struct loss_record *record = (struct loss_record *)a.workspace + sample;
	struct loss_target target;
	struct loss_sample row;
	bool labelled = find_target(&a, sample, &target);
	float factor = divisor > 0 ? (float)(a.state ? a.state->loss_scale : 1) / (float)divisor *
					     a.logit_scale
				   : 0;
	float hard = factor * a.temperature;

	row.loss = 0;
	row.rank = 0;
	if (labelled && a.kind == DEVICE_SIGMOID)
		reduce_sigmoid(&a, sample, &target, &row);
	else if (labelled && is_regression(&a))
		reduce_regression(&a, sample, &target, &row);
	else if (labelled)
		reduce_softmax(&a, sample, &target, &row);
	distill.student = distill.teacher = distill.loss = 0;
	if (labelled && has_teacher) {
		reduce_teacher(&a, sample, &distill);
		row.loss = (1 - (double)a.teacher_weight) * row.loss + share * distill.loss;
		hard *= 1 - a.teacher_weight;
	}
	if (threadIdx.x == 0) {
		record->loss = row.loss;
		record->weight = labelled ? target_weight(&a, &target) : 0;
		record->samples = labelled;
		record->top1 = labelled && row.rank < 1;
		record->top5 = labelled && row.rank < 5;
	}
	if (!a.dlogits)
		return;
	for (uint32_t i = threadIdx.x; i < a.dlogits_stride; i += KERNEL_THREADS) {
		float gradient = 0;

		if (labelled && i < a.classes)
			gradient = gradient_of(&a, sample, i, &target, &row) * hard;
		if (labelled && has_teacher && i < a.classes)
			gradient +=
				teacher_gradient(&a, sample, i, &distill) * (float)share * factor;
		kernel_store(a.dlogits, (uint64_t)sample * a.dlogits_stride + i, a.dlogits_element,
			     gradient);
	}
}

/* ---- totals ---- */

/* Runs as one block. */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	loss_total_kernel(const __grid_constant__ struct loss_arguments a)
{
	const struct loss_record *records = (const struct loss_record *)a.workspace;
	uint32_t samples = 0, top1 = 0, top5 = 0;
	double loss = 0, divisor = 0;

	for (uint32_t i = threadIdx.x; i < a.n; i += KERNEL_THREADS) {
		loss += records[i].loss;
		if (a.losses)
			a.losses[i] = (float)records[i].loss;
		if (is_weighted(&a))
			divisor += records[i].weight;
		samples += records[i].samples;
		top1 += records[i].top1;
		top5 += records[i].top5;
	}
	loss = reduce_sum<double>(loss);
	samples = reduce_sum<uint32_t>(samples);
	top1 = reduce_sum<uint32_t>(top1);
	top5 = reduce_sum<uint32_t>(top5);
	divisor = is_weighted(&a) ? reduce_sum<double>(divisor) : samples;
	if (threadIdx.x)
		return;
	if (a.totals) {
		a.totals->loss = loss;
		a.totals->top1 = top1;
		a.totals->top5 = top5;
	}
	a.results->step = a.step->step;
	a.results->samples = samples;
	a.results->top1 = top1;
	a.results->top5 = top5;
	a.results->loss = divisor > 0 ? loss / divisor : 0;
	a.results->grad_norm = 0;
	a.results->loss_scale = a.state ? a.state->loss_scale : 1;
	a.results->updated = false;
	a.results->skipped = false;
}

int loss_forward(const struct kernel_device *device, const struct loss_arguments *arguments)
{
	struct loss_arguments a = *arguments;

	if (a.logits_stride < a.classes || (a.dlogits && a.dlogits_stride < a.classes))
		return -EINVAL;
	a.logit_scale = a.logit_scale == 0 ? 1 : a.logit_scale;
	a.temperature = a.temperature == 0 ? 1 : a.temperature;
	a.teacher_temperature = a.teacher_temperature == 0 ? 1 : a.teacher_temperature;
	int r = a.plain ? launch(device, KERNEL(loss_softmax_kernel), a.n, &a)
			: launch(device, KERNEL(loss_any_kernel), a.n, &a);
	return r < 0 ? r : launch(device, KERNEL(loss_total_kernel), 1, &a);
}

/* Runs as one block. */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	loss_count_kernel(const __grid_constant__ struct loss_arguments a)
{
	uint32_t samples = count_labels(&a);
	double divisor = is_weighted(&a) ? sum_weights(&a) : samples;

	if (threadIdx.x)
		return;
	a.totals->samples = samples;
	a.totals->divisor = divisor;
}

int loss_count(const struct kernel_device *device, const struct loss_arguments *arguments)
{
	return launch(device, KERNEL(loss_count_kernel), 1, arguments);
}

/* Runs as one block. */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	loss_share_kernel(const __grid_constant__ struct loss_arguments a)
{
	if (threadIdx.x)
		return;
	a.results->samples = (uint32_t)a.totals->samples;
	a.results->top1 = (uint32_t)a.totals->top1;
	a.results->top5 = (uint32_t)a.totals->top5;
	a.results->loss = a.totals->divisor > 0 ? a.totals->loss / a.totals->divisor : 0;
}

int loss_share(const struct kernel_device *device, const struct loss_arguments *arguments)
{
	return launch(device, KERNEL(loss_share_kernel), 1, arguments);
}
