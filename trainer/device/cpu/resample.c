/*
 * Resizes and blends a batch, and selects its rows and columns, during upload
 * (trainer/device/resample.h).
 */
#include "trainer/device/resample.h"
#include "format/base/half.h"
#include "trainer/device/cpu/cpu.h"

#include <errno.h>
#include <stdlib.h>

struct resample {
	const struct cpu_exec *exec;
	const struct device_batch *batch;
	struct device_shape to, from;
	struct device_changes changes;
	const float *scale, *bias; /* per channel, to normalise u8 */
};

int cpu_resample_plan(struct cpu_exec *exec)
{
	struct device_shape shape = exec->graph->input->y->shape;
	size_t row = (size_t)shape.w * shape.c * sizeof(float);

	if (!exec->graph->input->input.resamples)
		return 0;
	exec->changes = malloc(device_changes_bytes(exec->graph));
	exec->rows = malloc(2 * exec->device->thread_pool.threads * row);
	return exec->changes && exec->rows ? 0 : -ENOMEM;
}

/* Instantiated per element type. */
static inline __attribute__((always_inline)) float
value_of(const void *values, enum device_element element, size_t index)
{
	switch (element) {
	case DEVICE_ELEMENT_F16:
		return half_to_float(((const uint16_t *)values)[index]);
	case DEVICE_ELEMENT_BF16:
		return bfloat_to_float(((const uint16_t *)values)[index]);
	case DEVICE_ELEMENT_F32:
		return ((const float *)values)[index];
	case DEVICE_ELEMENT_U8:
		break;
	}
	return (float)((const uint8_t *)values)[index];
}

/* Adds a row of the batch with its columns resampled. first: start of the row's values. */
static inline __attribute__((always_inline)) void add_row(const struct resample *r,
							  enum device_element element, size_t first,
							  float weight, float *to)
{
	uint32_t width = r->to.w, channels = r->to.c;

	for (uint32_t x = 0; x < width; x++) {
		const struct device_tap *tap =
			&r->changes.columns[r->batch->flip ? width - 1 - x : x];

		for (uint32_t c = 0; c < channels; c++) {
			float sum = 0;

			for (uint32_t i = 0; i < tap->count; i++)
				sum += tap->weights[i] *
				       value_of(r->batch->images, element,
						first + (size_t)(tap->first + i) * r->from.c + c);
			to[x * channels + c] += weight * sum;
		}
	}
}

/* Computes a row of the input from one image, without blending. */
static void make_row(const struct resample *r, size_t image, uint32_t y, float *to)
{
	const struct device_tap *tap = &r->changes.rows[y];
	size_t row = (size_t)r->from.w * r->from.c, count = (size_t)r->to.w * r->to.c;

	for (size_t i = 0; i < count; i++)
		to[i] = 0;
	for (uint32_t i = 0; i < tap->count; i++) {
		size_t first = (image * r->from.h + tap->first + i) * row;
		float weight = tap->weights[i];

		switch (r->batch->element) {
		case DEVICE_ELEMENT_F16:
			add_row(r, DEVICE_ELEMENT_F16, first, weight, to);
			break;
		case DEVICE_ELEMENT_BF16:
			add_row(r, DEVICE_ELEMENT_BF16, first, weight, to);
			break;
		case DEVICE_ELEMENT_F32:
			add_row(r, DEVICE_ELEMENT_F32, first, weight, to);
			break;
		case DEVICE_ELEMENT_U8:
			add_row(r, DEVICE_ELEMENT_U8, first, weight, to);
			break;
		}
	}
	if (r->batch->element != DEVICE_ELEMENT_U8)
		return;
	for (uint32_t x = 0; x < r->to.w; x++)
		for (uint32_t c = 0; c < r->to.c; c++, to++)
			*to = *to * r->scale[c] + r->bias[c];
}

/* Copies columns left..right from the partner's row; elsewhere blends both by share. */
static void blend_row(const struct resample *r, const struct device_blend *blend, uint32_t y,
		      float *own, const float *partner)
{
	bool within = y >= blend->top && y < blend->bottom;
	size_t channels = r->to.c, count = r->to.w * channels;
	size_t left = within ? blend->left * channels : count,
	       right = within ? blend->right * channels : count;

	for (size_t i = left; i < right; i++)
		own[i] = partner[i];
	/* a share of 1 must ignore the partner, which may not be finite */
	for (size_t i = 0; i < count && blend->share < 1; i++)
		if (i < left || i >= right)
			own[i] = blend->share * own[i] + (1 - blend->share) * partner[i];
}

void cpu_resample_image(const struct cpu_resample_job *job, size_t image, unsigned thread, char *to)
{
	const struct cpu_exec *exec = job->exec;
	struct resample r = {
		.exec = exec,
		.batch = job->batch,
		.to = exec->graph->input->y->shape,
		.from = device_batch_shape(exec->graph, job->batch),
		.changes = device_changes_at(exec->graph, exec->changes),
		.scale = job->scale,
		.bias = job->bias,
	};
	const struct device_blend *blend = &r.changes.blends[image];
	size_t count = (size_t)r.to.w * r.to.c;
	float *own = exec->rows + 2 * thread * count, *partner = own + count;
	enum element element = exec->device->element;

	for (uint32_t y = 0; y < r.to.h; y++) {
		bool within = y >= blend->top && y < blend->bottom && blend->left < blend->right;

		make_row(&r, image, y, own);
		if (blend->share < 1 || within) {
			make_row(&r, blend->partner, y, partner);
			blend_row(&r, blend, y, own, partner);
		}
		exec->device->loops.kernels->convert(to + y * count * element_size(element),
						     element, own, ELEMENT_F32, count);
	}
}
