/* Kernels of ends.h. */
#include "trainer/device/cuda/kernels/ends.h"

#include "trainer/device/cuda/kernels/cu/kernel.h"
#include "trainer/device/cuda/kernels/cu/reduce.h"
#include "trainer/device/cuda/kernels/tables.h"

/* ---- the step ---- */

/* One block. */
KERNEL(step_stored, struct step_store, a)
{
	if (kernel_thread() == 0)
		*a.to = a.arguments;
}

/* ---- input ---- */

#define QUAD 4 /* pixels of a thread where rows are whole groups of them */

/*
 * What the step says of its batch, in registers: what is written to y could be part of it, for all
 * the compiler knows.
 */
struct batch {
	const void *images;
	uint32_t count, channels, element, flip;
};

DEVICE struct batch batch_of(const struct step_arguments *step)
{
	struct batch batch;

	batch.images = step->images;
	batch.count = step->count;
	batch.channels = step->channels;
	batch.element = step->element;
	batch.flip = step->flip;
	return batch;
}

/* Where the pixels of a batch are. */
struct source {
	uint64_t first; /* pixel of the batch that becomes the one asked for */
	bool given;     /* the batch has the image */
};

DEVICE struct source find_source(const struct input_normalize *a, const struct batch *batch,
				 uint32_t pixel, uint32_t pixels)
{
	uint32_t line = kernel_divide(pixel, a->by_w), x = pixel - line * a->w;
	struct source source;

	source.given = kernel_divide(line, a->by_h) < batch->count;
	source.first = line * a->w + (batch->flip ? a->w - pixels - x : x);
	return source;
}

DEVICE float batch_value(const struct batch *batch, uint64_t at)
{
	if (batch->element == DEVICE_ELEMENT_U8)
		return (float)((const uint8_t *)batch->images)[at];
	if (batch->element == DEVICE_ELEMENT_F16)
		return kernel_from_f16(((const uint16_t *)batch->images)[at]);
	if (batch->element == DEVICE_ELEMENT_BF16)
		return kernel_from_bf16(((const uint16_t *)batch->images)[at]);
	return ((const float *)batch->images)[at];
}

DEVICE void normalize_pixel(const struct input_normalize *a, const struct batch *batch,
			    uint32_t pixel)
{
	struct source source = find_source(a, batch, pixel, 1);

	for (uint32_t c = 0; c < a->padded; c++) {
		float value = 0;

		if (source.given && c < a->channels) {
			value = batch_value(batch, source.first * batch->channels + c);
			if (batch->element == DEVICE_ELEMENT_U8)
				value = value * a->scale[c] + a->bias[c];
		}
		kernel_store(a->y, (uint64_t)pixel * a->padded + c, a->element, value);
	}
}

/* QUAD pixels of 3 or 4 bytes become as many of four channels. */
DEVICE void load_quad(float v[QUAD][4], const struct input_normalize *a, const struct batch *batch,
		      uint64_t first)
{
	uint32_t word[4];

	if (batch->channels == 4) {
		struct kernel_pack pack = kernel_load16((const uint8_t *)batch->images + first * 4);

		EACH(i, 4)
			word[i] = pack.word[i];
	} else {
		uint32_t packed[3];

		EACH(i, 3)
			packed[i] =
				kernel_load4((const uint8_t *)batch->images + first * 3 + 4 * i);
		word[0] = packed[0];
		word[1] = packed[0] >> 24 | packed[1] << 8;
		word[2] = packed[1] >> 16 | packed[2] << 16;
		word[3] = packed[2] >> 8;
	}
	/* scale and bias of channels that y has beyond the input's are 0 */
	EACH(i, QUAD) {
		EACH(c, 4)
			v[i][c] = (float)(word[i] >> 8 * c & 0xff) * a->scale[c] + a->bias[c];
	}
}

DEVICE void store_quad(void *y, uint64_t first, enum cuda_element element, float v[QUAD][4])
{
	struct kernel_pack pack;

	if (element == CUDA_F32) {
		EACH(i, QUAD) {
			EACH(c, 4)
				pack.word[c] = kernel_to_bits(v[i][c]);
			kernel_store16((float *)y + (first + i) * 4, pack);
		}
		return;
	}
	UNROLL
	for (int i = 0; i < QUAD; i += 2) {
		EACH(j, 4) {
			float even = v[i + j / 2][j % 2 * 2], odd = v[i + j / 2][j % 2 * 2 + 1];

			pack.word[j] = element == CUDA_F16 ? kernel_to_f16x2(even, odd)
							   : kernel_to_bf16x2(even, odd);
		}
		kernel_store16((uint16_t *)y + (first + i) * 4, pack);
	}
}

DEVICE void normalize_quad(const struct input_normalize *a, const struct batch *batch,
			   uint32_t first)
{
	struct source source = find_source(a, batch, first, QUAD);
	float v[QUAD][4];

	EACH(i, QUAD) {
		EACH(c, 4)
			v[i][c] = 0;
	}
	if (source.given)
		load_quad(v, a, batch, source.first);
	if (batch->flip) {
		EACH(c, 4) {
			float first_value = v[0][c], second = v[1][c];

			v[0][c] = v[3][c];
			v[1][c] = v[2][c];
			v[2][c] = second;
			v[3][c] = first_value;
		}
	}
	store_quad(a->y, first, a->element, v);
}

KERNEL_RESIDENT(6, input_normalize_batch, struct input_normalize, a)
{
	const struct batch batch = batch_of(a.step);
	uint64_t pixels = (uint64_t)a.n * a.h * a.w,
		 threads = (uint64_t)kernel_blocks_x() * KERNEL_THREADS;
	uint64_t thread = (uint64_t)kernel_block_x() * KERNEL_THREADS + kernel_thread();

	if (batch.element == DEVICE_ELEMENT_U8 && a.padded == 4 && a.w % QUAD == 0 &&
	    (batch.channels == 3 || batch.channels == 4) && (uintptr_t)batch.images % 16 == 0) {
		for (uint64_t first = thread * QUAD; first < pixels; first += threads * QUAD)
			normalize_quad(&a, &batch, (uint32_t)first);
	} else {
		for (uint64_t pixel = thread; pixel < pixels; pixel += threads)
			normalize_pixel(&a, &batch, (uint32_t)pixel);
	}
}

/* ---- loss ---- */

DEVICE bool has_label(const struct loss_softmax *a, uint32_t sample, int32_t *label)
{
	*label = a->step->labels && sample < a->step->count ? a->step->labels[sample] : -1;
	return *label >= 0 && *label < (int32_t)a->classes;
}

DEVICE float logit(const struct loss_softmax *a, uint32_t sample, uint32_t class_index)
{
	return kernel_load(a->logits, (uint64_t)sample * a->logits_stride + class_index,
			   a->logits_element) *
	       a->logit_scale;
}

/* What a block knows of its sample's logits. */
struct loss_row {
	float largest, target;
	double sum;    /* of exp(z - largest) */
	double total;  /* of z */
	uint32_t rank; /* classes before the label's */
};

DEVICE struct loss_row survey_row(const struct loss_softmax *a, uint32_t sample, int32_t label)
{
	struct loss_row row;
	float largest = -INFINITY;
	double sum = 0, total = 0;
	uint32_t rank = 0;

	row.target = logit(a, sample, (uint32_t)label);
	for (uint32_t i = kernel_thread(); i < a->classes; i += KERNEL_THREADS) {
		float z = logit(a, sample, i);

		largest = z > largest ? z : largest;
		total += (double)z;
		rank += z > row.target || (z == row.target && (int32_t)i < label);
	}
	row.largest = reduce_max_f32(largest);
	row.total = reduce_sum_f64(total);
	row.rank = reduce_sum_u32(rank);
	for (uint32_t i = kernel_thread(); i < a->classes; i += KERNEL_THREADS)
		sum += (double)expf(logit(a, sample, i) - row.largest);
	row.sum = reduce_sum_f64(sum);
	/* a comparison with NaN is false: without this a net that diverged would be always right */
	if (!kernel_finite(row.target))
		row.rank = a->classes;
	return row;
}

DEVICE uint32_t count_labels(const struct loss_softmax *a)
{
	uint32_t count = 0;
	int32_t label;

	for (uint32_t i = kernel_thread(); i < a->n; i += KERNEL_THREADS)
		count += has_label(a, i, &label);
	return reduce_sum_u32(count);
}

/* A block for each sample. */
KERNEL(loss_softmax_rows, struct loss_softmax, a)
{
	uint32_t sample = kernel_block_x(),
		 samples = a.totals ? (uint32_t)a.totals->samples : count_labels(&a);
	float off = a.smoothing / (float)a.classes, on = 1 - a.smoothing + off;
	struct loss_record *record = (struct loss_record *)a.workspace + sample;
	struct loss_row row;
	int32_t label;
	bool labelled = has_label(&a, sample, &label);
	float grow = samples ? (float)(a.state ? a.state->loss_scale : 1) / (float)samples *
				       a.logit_scale
			     : 0;

	row.largest = row.target = 0;
	row.sum = 1;
	row.total = 0;
	row.rank = 0;
	if (labelled)
		row = survey_row(&a, sample, label);
	if (kernel_thread() == 0) {
		/* -sum_i target_i (z_i - lse): the targets add up to 1 */
		record->loss = labelled ? (double)row.largest + log(row.sum) -
						  (double)(on - off) * (double)row.target -
						  (double)off * row.total
					: 0;
		record->samples = labelled;
		record->top1 = labelled && row.rank < 1;
		record->top5 = labelled && row.rank < 5;
	}
	if (!a.dlogits)
		return;
	for (uint32_t i = kernel_thread(); i < a.dlogits_stride; i += KERNEL_THREADS) {
		float gradient = 0;

		if (labelled && i < a.classes) {
			gradient =
				(expf(logit(&a, sample, i) - row.largest) * (float)(1 / row.sum) -
				 off) *
				grow;
			gradient -= (int32_t)i == label ? (on - off) * grow : 0;
		}
		kernel_store(a.dlogits, (uint64_t)sample * a.dlogits_stride + i, a.dlogits_element,
			     gradient);
	}
}

/* One block. */
KERNEL(loss_total, struct loss_softmax, a)
{
	const struct loss_record *records = (const struct loss_record *)a.workspace;
	uint32_t samples = 0, top1 = 0, top5 = 0;
	double loss = 0;

	for (uint32_t i = kernel_thread(); i < a.n; i += KERNEL_THREADS) {
		loss += records[i].loss;
		samples += records[i].samples;
		top1 += records[i].top1;
		top5 += records[i].top5;
	}
	loss = reduce_sum_f64(loss);
	samples = reduce_sum_u32(samples);
	top1 = reduce_sum_u32(top1);
	top5 = reduce_sum_u32(top5);
	if (kernel_thread())
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
	a.results->loss = samples ? loss / samples : 0;
	a.results->grad_norm = 0;
	a.results->loss_scale = a.state ? a.state->loss_scale : 1;
	a.results->updated = false;
	a.results->skipped = false;
}

/* One block. */
KERNEL(loss_counted, struct loss_softmax, a)
{
	uint32_t samples = count_labels(&a);

	if (kernel_thread() == 0)
		a.totals->samples = samples;
}

/* One block. */
KERNEL(loss_shared, struct loss_softmax, a)
{
	if (kernel_thread())
		return;
	a.results->samples = (uint32_t)a.totals->samples;
	a.results->top1 = (uint32_t)a.totals->top1;
	a.results->top5 = (uint32_t)a.totals->top5;
	a.results->loss = a.totals->samples > 0 ? a.totals->loss / a.totals->samples : 0;
}

KERNEL_TABLE step_store_kernel = KERNEL_ENTRY(step_stored);
KERNEL_TABLE input_normalize_kernel = KERNEL_ENTRY(input_normalize_batch);
KERNEL_TABLE loss_softmax_kernel = KERNEL_ENTRY(loss_softmax_rows);
KERNEL_TABLE loss_total_kernel = KERNEL_ENTRY(loss_total);
KERNEL_TABLE loss_count_kernel = KERNEL_ENTRY(loss_counted);
KERNEL_TABLE loss_share_kernel = KERNEL_ENTRY(loss_shared);
