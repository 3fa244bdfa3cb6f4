/*
 * Kernels and launchers of update.h. The decision runs as one block, all others with one block per
 * chunk. For the norm and the update a thread processes four elements at a time.
 */
extern "C" {
#include "trainer/device/cuda/kernels/update.h"
}

#include "trainer/device/cuda/kernels/common/block_reduce.h"
#include "trainer/device/cuda/kernels/common/launch.h"

#define FOUR 4

DEVICE void load_four(float *v, const float *from)
{
	struct kernel_pack pack = kernel_load16(from);

	UNROLL
	for (int i = 0; i < FOUR; i++)
		v[i] = kernel_from_bits(pack.word[i]);
}

DEVICE void store_four(float *to, const float *v)
{
	struct kernel_pack pack;

	UNROLL
	for (int i = 0; i < FOUR; i++)
		pack.word[i] = kernel_to_bits(v[i]);
	kernel_store16(to, pack);
}

DEVICE float *value_of(const struct update *a, const struct update_chunk *chunk)
{
	return a->slots[DEVICE_VALUE] + (chunk->offset + chunk->value_shift);
}

DEVICE float *gradient_of(const struct update *a, const struct update_chunk *chunk)
{
	return a->slots[DEVICE_GRAD] + (chunk->offset + chunk->gradient_shift);
}

/* Launches one block per chunk. */
static int launch_chunks(const struct kernel_device *device, const struct gpu_kernel &kernel,
			 const struct update *update)
{
	return update->chunk_count ? launch(device, kernel, update->chunk_count, update) : 0;
}

/* ---- norm of the gradients ---- */

/*
 * Squares of fp32 values do not overflow in double precision, so the sum is finite unless an
 * element is not.
 */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	update_squares_kernel(const __grid_constant__ struct update a)
{
	const struct update_chunk chunk = a.chunks[blockIdx.x];
	const float *gradient = gradient_of(&a, &chunk);
	double sum = 0;

	if (chunk.trained) {
		UNROLL
		for (uint32_t u = 0; u < UPDATE_CHUNK_MAX / (KERNEL_THREADS * FOUR); u++) {
			uint32_t at = (u * KERNEL_THREADS + threadIdx.x) * FOUR;
			float g[FOUR];

			if (at + FOUR > chunk.count)
				continue;
			load_four(g, gradient + at);
			UNROLL
			for (int i = 0; i < FOUR; i++)
				sum += (double)g[i] * (double)g[i];
		}
		for (uint32_t at = chunk.count / FOUR * FOUR + threadIdx.x; at < chunk.count;
		     at += KERNEL_THREADS)
			sum += (double)gradient[at] * (double)gradient[at];
	}
	sum = reduce_sum<double>(sum);
	if (threadIdx.x == 0)
		a.partial[blockIdx.x] = sum;
}

/* ---- decision ---- */

DEVICE void back_off_scale(struct device_params_state *state, const struct update_scaling *scaling)
{
	double scale = state->loss_scale * scaling->backoff;

	if (scaling->backoff == 1)
		return;
	state->loss_scale = scale > scaling->min ? scale : scaling->min;
	state->scale_age = 0;
}

DEVICE void grow_scale(struct device_params_state *state, const struct update_scaling *scaling)
{
	double scale = state->loss_scale * scaling->growth;

	if (scaling->growth == 1 || state->scale_age < scaling->interval || scale > scaling->max)
		return;
	state->loss_scale = scale;
	state->scale_age = 0;
}

DEVICE void decide_update(const struct update *a, double sum)
{
	const struct device_hyper *hyper = &a->step->hyper;
	struct device_params_state *state = a->state;
	double own_scale = hyper->grad_scale != 0 ? (double)hyper->grad_scale : 1;
	double scale = own_scale / state->loss_scale, norm = sqrt(sum) * fabs(scale);
	bool finite = norm - norm == 0;

	a->results->grad_norm = norm;
	a->results->loss_scale = state->loss_scale;
	a->results->updated = finite;
	a->results->skipped = !finite;
	a->decision->made = finite;
	if (hyper->perturb > 0) {
		a->results->updated = a->results->skipped = false;
		a->decision->gradient_scale = perturb_scale(hyper, scale, norm);
		return;
	}
	if (!finite) {
		state->skipped++;
		back_off_scale(state, &a->scaling);
		return;
	}
	update_decide_finite(hyper, scale, norm, state, a->decision);
	grow_scale(state, &a->scaling);
}

/* Index in struct update's sums. */
DEVICE int sums_class(const struct update_chunk *chunk)
{
	return chunk->divided ? (chunk->split ? 1 : 0) : (chunk->split ? 2 : 3);
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	update_decide_kernel(const __grid_constant__ struct update a)
{
	double sum = 0;

	for (uint32_t i = threadIdx.x; i < a.chunk_count && !a.sums; i += KERNEL_THREADS)
		sum += a.partial[i];
	sum = reduce_sum<double>(sum);
	if (threadIdx.x == 0)
		decide_update(&a, a.sums ? a.sums[0] + a.sums[3] + (a.sums[1] + a.sums[2]) : sum);
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	update_sums_kernel(const __grid_constant__ struct update a)
{
	for (int kind = 0; kind < UPDATE_SUMS; kind++) {
		double sum = 0;

		for (uint32_t i = threadIdx.x; i < a.chunk_count; i += KERNEL_THREADS)
			sum += sums_class(&a.chunks[i]) == kind ? a.partial[i] : 0;
		sum = reduce_sum<double>(sum);
		if (threadIdx.x == 0)
			a.sums[kind] = sum;
	}
}

int update_squares(const struct kernel_device *device, const struct update *update)
{
	int r = launch_chunks(device, KERNEL(update_squares_kernel), update);

	return r < 0 ? r : launch(device, KERNEL(update_sums_kernel), 1, update);
}

int update_decide(const struct kernel_device *device, const struct update *update)
{
	int r = update->sums ? 0 : launch_chunks(device, KERNEL(update_squares_kernel), update);

	return r < 0 ? r : launch(device, KERNEL(update_decide_kernel), 1, update);
}

/* ---- gradients before the update ---- */

/* Clips and centers a row, by one warp. */
DEVICE void center_row(float *gradient, uint32_t count, float limit)
{
	uint32_t lane = threadIdx.x % KERNEL_WARP;
	double sum = 0;

	for (uint32_t i = lane; i < count; i += KERNEL_WARP)
		sum += (double)gradients_clip(gradient[i], limit);
	float mean = (float)(reduce_warp<double>(sum) / count);
	for (uint32_t i = lane; i < count; i += KERNEL_WARP)
		gradient[i] = gradients_clip(gradient[i], limit) - mean;
}

/*
 * Clips and, with `centralize`, centers gradients. One warp per row that begins in the chunk;
 * without rows, all threads process the chunk.
 */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	update_condition_kernel(const __grid_constant__ struct update a)
{
	const struct update_chunk chunk = a.chunks[blockIdx.x];
	uint64_t row = a.optimizer.centralize ? chunk.row : 0;
	float *gradient = gradient_of(&a, &chunk) - chunk.first;
	float limit = gradients_limit(&a.optimizer, a.decision);

	if (!a.decision->made || !chunk.trained)
		return;
	for (uint32_t at = threadIdx.x; at < chunk.count && !row; at += KERNEL_THREADS)
		gradient[chunk.first + at] = gradients_clip(gradient[chunk.first + at], limit);
	if (!row)
		return;
	for (uint64_t at = ((chunk.first + row - 1) / row + threadIdx.x / KERNEL_WARP) * row;
	     at < (uint64_t)chunk.first + chunk.count; at += REDUCE_WARPS * row)
		center_row(gradient + at, (uint32_t)row, limit);
}

/* ---- norms of tensors, for optimizers by_tensor ---- */

/*
 * Sums of squares of the chunk, one per measured quantity. Those of a tensor are sums over its
 * chunks.
 */
DEVICE double *norms_of(const struct update *a, uint32_t chunk)
{
	return a->partial + (uint64_t)chunk * UPDATE_NORMS;
}

/* Address of a chunk in a slot of optimizer state; NULL if the parameter lacks that slot. */
DEVICE float *state_of(const struct update *a, const struct update_chunk *chunk, int index)
{
	float *slot = a->slots[DEVICE_STATE + index];

	if (index < DEVICE_MATRIX_STATES)
		return slot ? slot + chunk->offset : NULL;
	return slot && !chunk->matrix ? slot + chunk->rest_offset : NULL;
}

DEVICE void measure_element(const struct update *a, const struct update_chunk *chunk,
			    const struct update_rates *rates, uint32_t at, double *squares)
{
	struct update_element e;
	float measured[UPDATE_NORMS] = {0, 0};

	e.w = value_of(a, chunk)[at];
	e.g = gradient_of(a, chunk)[at];
	UNROLL
	for (int s = 0; s < DEVICE_STATES_MAX; s++)
		e.state[s] = state_of(a, chunk, s) ? state_of(a, chunk, s)[at] : 0;
	switch (a->optimizer.kind) {
#define MEASURE_plain(name)     break;
#define MEASURE_by_matrix(name) break;
#define MEASURE_by_tensor(name)                                                                    \
	optimizer_##name##_measure(e, rates, measured);                                            \
	break;
#define MEASURE(constant, name, norms, ...)                                                        \
	case DEVICE_##constant:                                                                    \
		MEASURE_##norms(name)
		DEVICE_OPTIMIZERS(MEASURE)
#undef MEASURE
	case DEVICE_OPTIMIZER_COUNT:
		break;
	}
	UNROLL
	for (int n = 0; n < UPDATE_NORMS; n++)
		squares[n] += (double)measured[n] * (double)measured[n];
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	update_measure_kernel(const __grid_constant__ struct update a)
{
	const struct update_chunk chunk = a.chunks[blockIdx.x];
	const struct update_rates rates =
		update_rates_of(&a.step->hyper, &a.optimizer, a.decision, chunk.group,
				chunk.lr_factor, chunk.start);
	double squares[UPDATE_NORMS] = {0, 0};

	if (!a.decision->made || !chunk.trained || !chunk.row)
		return;
	for (uint32_t at = threadIdx.x; at < chunk.count; at += KERNEL_THREADS)
		measure_element(&a, &chunk, &rates, at, squares);
	UNROLL
	for (int n = 0; n < UPDATE_NORMS; n++) {
		double sum = reduce_sum<double>(squares[n]);

		if (threadIdx.x == 0)
			norms_of(&a, blockIdx.x)[n] = sum;
	}
}

/* Adds up the sums of a tensor's chunks into those of its first chunk. */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	update_total_kernel(const __grid_constant__ struct update a)
{
	const struct update_chunk chunk = a.chunks[blockIdx.x];
	double squares[UPDATE_NORMS] = {0, 0};

	if (!a.decision->made || !chunk.trained || !chunk.row || chunk.first != chunk.begin)
		return;
	for (uint32_t i = threadIdx.x; i < chunk.chunks; i += KERNEL_THREADS) {
		UNROLL
		for (int n = 0; n < UPDATE_NORMS; n++)
			squares[n] += norms_of(&a, blockIdx.x + i)[n];
	}
	UNROLL
	for (int n = 0; n < UPDATE_NORMS; n++) {
		double sum = reduce_sum<double>(squares[n]);

		if (threadIdx.x == 0)
			norms_of(&a, blockIdx.x)[n] = sum;
		if (threadIdx.x == 0 && a.tensor_sums)
			a.tensor_sums[(uint64_t)chunk.param * UPDATE_NORMS + n] = sum;
	}
}

/*
 * Factor that a by_tensor optimizer applies to the update of the chunk's tensor; 1 if there is
 * none.
 */
DEVICE float ratio_of(const struct update *a, const struct update_chunk *chunk,
		      const struct update_rates *rates)
{
	const double *squares = a->tensor_sums
					? a->tensor_sums + (uint64_t)chunk->param * UPDATE_NORMS
					: norms_of(a, blockIdx.x - (chunk->first - chunk->begin) /
									   UPDATE_CHUNK_MAX);
	float norm[UPDATE_NORMS];

	if (!(DEVICE_OPTIMIZERS_BY_TENSOR >> a->optimizer.kind & 1) || !chunk->trained ||
	    !chunk->row)
		return 1;
	UNROLL
	for (int n = 0; n < UPDATE_NORMS; n++)
		norm[n] = (float)sqrt(squares[n]);
	switch (a->optimizer.kind) {
#define RATIO_plain(name)     break;
#define RATIO_by_matrix(name) break;
#define RATIO_by_tensor(name) return optimizer_##name##_ratio(rates, norm);
#define RATIO(constant, name, norms, ...)                                                          \
	case DEVICE_##constant:                                                                    \
		RATIO_##norms(name)
		DEVICE_OPTIMIZERS(RATIO)
#undef RATIO
	case DEVICE_OPTIMIZER_COUNT:
		break;
	}
	return 1;
}

/* ---- matrices, for optimizers by_matrix ---- */

DEVICE float update_direction(enum device_optimizer_kind kind, struct update_element *e,
			      const struct update_rates *rates)
{
	switch (kind) {
#define DIRECTION_plain(name)     break;
#define DIRECTION_by_tensor(name) break;
#define DIRECTION_by_matrix(name) return optimizer_##name##_direction(e, rates);
#define DIRECTION(constant, name, by, ...)                                                         \
	case DEVICE_##constant:                                                                    \
		DIRECTION_##by(name)
		DEVICE_OPTIMIZERS(DIRECTION)
#undef DIRECTION
	case DEVICE_OPTIMIZER_COUNT:
		break;
	}
	return e->g;
}

/*
 * Replaces the gradients of matrices by the direction that the optimizer computes from them. Stores
 * its sum of squares as the first norm and 0 as the others.
 */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	update_direct_kernel(const __grid_constant__ struct update a)
{
	const struct update_chunk chunk = a.chunks[blockIdx.x];
	const struct update_rates rates =
		update_rates_of(&a.step->hyper, &a.optimizer, a.decision, chunk.group,
				chunk.lr_factor, chunk.start);
	double sum = 0;

	if (!a.decision->made || !chunk.trained || !chunk.row)
		return;
	for (uint32_t at = threadIdx.x; at < chunk.count && chunk.matrix; at += KERNEL_THREADS) {
		struct update_element e;

		e.w = value_of(&a, &chunk)[at];
		e.g = gradient_of(&a, &chunk)[at];
		UNROLL
		for (int s = 0; s < DEVICE_STATES_MAX; s++)
			e.state[s] = s < DEVICE_MATRIX_STATES ? state_of(&a, &chunk, s)[at] : 0;
		float direction = update_direction(a.optimizer.kind, &e, &rates);
		gradient_of(&a, &chunk)[at] = direction;
		UNROLL
		for (int s = 0; s < DEVICE_MATRIX_STATES; s++)
			state_of(&a, &chunk, s)[at] = e.state[s];
		sum += (double)direction * (double)direction;
	}
	sum = reduce_sum<double>(sum);
	if (threadIdx.x)
		return;
	UNROLL
	for (int n = 0; n < UPDATE_NORMS; n++)
		norms_of(&a, blockIdx.x)[n] = n ? 0 : sum;
}

int update_prepare(const struct kernel_device *device, const struct update *update)
{
	int r = 0;

	if (gradients_change(&update->optimizer))
		r = launch_chunks(device, KERNEL(update_condition_kernel), update);
	if (r == 0 && (DEVICE_OPTIMIZERS_BY_MATRIX >> update->optimizer.kind & 1)) {
		r = launch_chunks(device, KERNEL(update_direct_kernel), update);
		if (r == 0)
			r = launch_chunks(device, KERNEL(update_total_kernel), update);
	}
	return r;
}

const double *update_matrix_squares(const struct update *update, uint32_t first)
{
	return update->partial + (uint64_t)first * UPDATE_NORMS;
}

/*
 * Factor that a by_matrix optimizer applies to the update of the chunk's matrix; 1 if there is
 * none.
 */
DEVICE float update_length(const struct update *a, const struct update_chunk *chunk,
			   const struct update_rates *rates)
{
	switch (a->optimizer.kind) {
#define LENGTH_plain(name)     break;
#define LENGTH_by_tensor(name) break;
#define LENGTH_by_matrix(name) return optimizer_##name##_length(rates, chunk->matrix, chunk->row);
#define LENGTH(constant, name, by, ...)                                                            \
	case DEVICE_##constant:                                                                    \
		LENGTH_##by(name)
		DEVICE_OPTIMIZERS(LENGTH)
#undef LENGTH
	case DEVICE_OPTIMIZER_COUNT:
		break;
	}
	return 1;
}

/* ---- update ---- */

/* Hyperparameters of the update of a chunk. */
struct chunk_rates {
	struct update_rates rates;
	enum device_optimizer_kind optimizer;
	float ema_decay;
	bool averages, returns; /* returns: copy the average back to the values (Lookahead) */
};

DEVICE struct chunk_rates rates_of(const struct update *a, const struct update_chunk *chunk)
{
	const struct device_hyper *hyper = &a->step->hyper;
	struct chunk_rates r;

	r.rates = update_rates_of(hyper, &a->optimizer, a->decision, chunk->group, chunk->lr_factor,
				  chunk->start);
	r.rates.ratio = ratio_of(a, chunk, &r.rates);
	r.rates.matrix = chunk->matrix;
	if (chunk->matrix)
		r.rates.ratio = update_length(a, chunk, &r.rates);
	r.optimizer = a->optimizer.kind;
	r.ema_decay = a->decision->ema_decay;
	r.averages = a->slots[DEVICE_EMA] && r.ema_decay != 1;
	r.returns = r.averages && hyper->lookahead && !chunk->frozen;
	return r;
}

DEVICE void update_element(struct update_element *e, float *ema, const struct chunk_rates *r,
			   bool trained)
{
	switch (trained ? r->optimizer : DEVICE_OPTIMIZER_COUNT) {
#define OPTIMIZER(constant, name, ...)                                                             \
	case DEVICE_##constant:                                                                    \
		optimizer_##name(e, &r->rates);                                                    \
		break;
		DEVICE_OPTIMIZERS(OPTIMIZER)
#undef OPTIMIZER
	case DEVICE_OPTIMIZER_COUNT:
		break;
	}
	/* with decay 0 copy: 0 times a non-finite average would be NaN */
	if (r->averages)
		*ema = r->ema_decay == 0 ? e->w : r->ema_decay * *ema + (1 - r->ema_decay) * e->w;
	if (r->returns)
		e->w = *ema;
}

DEVICE bool has_state(const struct update *a, const struct update_chunk *chunk, int index)
{
	return chunk->trained && state_of(a, chunk, index);
}

DEVICE void store_copy(const struct update *a, const struct update_chunk *chunk, uint32_t index,
		       float value)
{
	uint32_t row = index / chunk->columns;

	kernel_store(chunk->copy,
		     (uint64_t)row * chunk->copy_columns + (index - row * chunk->columns),
		     a->copy_element, value);
}

DEVICE void update_single(const struct update *a, const struct update_chunk *chunk,
			  const struct chunk_rates *r, uint32_t at)
{
	uint64_t i = chunk->offset + at;
	struct update_element e;
	float ema = r->averages ? a->slots[DEVICE_EMA][i] : 0;

	e.w = value_of(a, chunk)[at];
	e.g = chunk->trained ? gradient_of(a, chunk)[at] : 0;
	UNROLL
	for (int s = 0; s < DEVICE_STATES_MAX; s++)
		e.state[s] = has_state(a, chunk, s) ? state_of(a, chunk, s)[at] : 0;
	update_element(&e, &ema, r, chunk->trained);
	if (chunk->trained || r->returns)
		value_of(a, chunk)[at] = e.w;
	UNROLL
	for (int s = 0; s < DEVICE_STATES_MAX; s++)
		if (has_state(a, chunk, s))
			state_of(a, chunk, s)[at] = e.state[s];
	if (chunk->trained && chunk->copy)
		store_copy(a, chunk, chunk->first + at, e.w);
	if (r->averages)
		a->slots[DEVICE_EMA][i] = ema;
}

/* FOUR elements of every slot, in registers. */
struct slot_values {
	float w[FOUR], g[FOUR], ema[FOUR], state[DEVICE_STATES_MAX][FOUR];
};

DEVICE void load_slots(struct slot_values *f, const struct update *a,
		       const struct update_chunk *chunk, const struct chunk_rates *r, uint32_t at)
{
	uint64_t i = chunk->offset + at;

	UNROLL
	for (int j = 0; j < FOUR; j++)
		f->g[j] = f->ema[j] = 0;
	load_four(f->w, value_of(a, chunk) + at);
	if (chunk->trained)
		load_four(f->g, gradient_of(a, chunk) + at);
	UNROLL
	for (int s = 0; s < DEVICE_STATES_MAX; s++) {
		UNROLL
		for (int j = 0; j < FOUR; j++)
			f->state[s][j] = 0;
		if (has_state(a, chunk, s))
			load_four(f->state[s], state_of(a, chunk, s) + at);
	}
	if (r->averages)
		load_four(f->ema, a->slots[DEVICE_EMA] + i);
}

DEVICE void copy_four(const struct update *a, const struct update_chunk *chunk, uint32_t index,
		      const float *w)
{
	struct kernel_half_pack pack;

	if (chunk->columns != chunk->copy_columns) {
		UNROLL
		for (int j = 0; j < FOUR; j++)
			store_copy(a, chunk, index + j, w[j]);
	} else if (a->copy_element == CUDA_F32) {
		store_four((float *)chunk->copy + index, w);
	} else {
		UNROLL
		for (int j = 0; j < 2; j++)
			pack.word[j] = a->copy_element == CUDA_F16
					       ? kernel_to_f16x2(w[2 * j], w[2 * j + 1])
					       : kernel_to_bf16x2(w[2 * j], w[2 * j + 1]);
		kernel_store8((uint16_t *)chunk->copy + index, pack);
	}
}

DEVICE void store_slots(const struct slot_values *f, const struct update *a,
			const struct update_chunk *chunk, const struct chunk_rates *r, uint32_t at)
{
	uint64_t i = chunk->offset + at;

	if (chunk->trained || r->returns)
		store_four(value_of(a, chunk) + at, f->w);
	UNROLL
	for (int s = 0; s < DEVICE_STATES_MAX; s++)
		if (has_state(a, chunk, s))
			store_four(state_of(a, chunk, s) + at, f->state[s]);
	if (chunk->trained && chunk->copy)
		copy_four(a, chunk, chunk->first + at, f->w);
	if (r->averages)
		store_four(a->slots[DEVICE_EMA] + i, f->ema);
}

#define APPLY_UNROLL 2 /* groups that a thread loads at once: up to five slots are read */

static __global__ void __launch_bounds__(KERNEL_THREADS, 3)
	update_apply_kernel(const __grid_constant__ struct update a)
{
	const struct update_chunk chunk = a.chunks[blockIdx.x];
	const struct chunk_rates r = rates_of(&a, &chunk);

	if (!a.decision->made || (!chunk.trained && !r.averages))
		return;
	for (uint32_t first = 0; first < chunk.count;
	     first += APPLY_UNROLL * KERNEL_THREADS * FOUR) {
		struct slot_values four[APPLY_UNROLL];

		UNROLL
		for (int u = 0; u < APPLY_UNROLL; u++) {
			uint32_t at = first + (u * KERNEL_THREADS + threadIdx.x) * FOUR;

			if (at + FOUR <= chunk.count)
				load_slots(&four[u], &a, &chunk, &r, at);
		}
		UNROLL
		for (int u = 0; u < APPLY_UNROLL; u++) {
			uint32_t at = first + (u * KERNEL_THREADS + threadIdx.x) * FOUR;

			if (at + FOUR > chunk.count)
				continue;
			UNROLL
			for (int i = 0; i < FOUR; i++) {
				struct update_element e;

				e.w = four[u].w[i];
				e.g = four[u].g[i];
				UNROLL
				for (int s = 0; s < DEVICE_STATES_MAX; s++)
					e.state[s] = four[u].state[s][i];
				update_element(&e, &four[u].ema[i], &r, chunk.trained);
				four[u].w[i] = e.w;
				UNROLL
				for (int s = 0; s < DEVICE_STATES_MAX; s++)
					four[u].state[s][i] = e.state[s];
			}
			store_slots(&four[u], &a, &chunk, &r, at);
		}
	}
	for (uint32_t at = chunk.count / FOUR * FOUR + threadIdx.x; at < chunk.count;
	     at += KERNEL_THREADS)
		update_single(&a, &chunk, &r, at);
}

int update_measure(const struct kernel_device *device, const struct update *update)
{
	if (!(DEVICE_OPTIMIZERS_BY_TENSOR >> update->optimizer.kind & 1))
		return 0;
	int r = launch_chunks(device, KERNEL(update_measure_kernel), update);

	return r < 0 ? r : launch_chunks(device, KERNEL(update_total_kernel), update);
}

int update_apply(const struct kernel_device *device, const struct update *update)
{
	int r = 0;

	if (!update->tensor_sums)
		r = update_measure(device, update);
	return r < 0 ? r : launch_chunks(device, KERNEL(update_apply_kernel), update);
}

/* ---- perturbation ---- */

DEVICE void move_value(const struct update *a, const struct update_chunk *chunk, uint32_t at,
		       float value)
{
	value_of(a, chunk)[at] = value;
	if (chunk->copy)
		store_copy(a, chunk, chunk->first + at, value);
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	update_perturb_kernel(const __grid_constant__ struct update a)
{
	const struct update_chunk chunk = a.chunks[blockIdx.x];
	const float *gradient = gradient_of(&a, &chunk);

	if (!chunk.trained)
		return;
	for (uint32_t at = threadIdx.x; at < chunk.count; at += KERNEL_THREADS) {
		float w = value_of(&a, &chunk)[at];

		a.slots[DEVICE_UNPERTURBED][chunk.offset + at] = w;
		if (a.decision->made)
			move_value(&a, &chunk, at,
				   perturb_element(w, gradient[at], a.decision->gradient_scale));
	}
}

int update_perturb(const struct kernel_device *device, const struct update *update)
{
	return launch_chunks(device, KERNEL(update_perturb_kernel), update);
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	update_restore_kernel(const __grid_constant__ struct update a)
{
	const struct update_chunk chunk = a.chunks[blockIdx.x];

	if (!chunk.trained)
		return;
	for (uint32_t at = threadIdx.x; at < chunk.count; at += KERNEL_THREADS)
		move_value(&a, &chunk, at, a.slots[DEVICE_UNPERTURBED][chunk.offset + at]);
}

int update_restore(const struct kernel_device *device, const struct update *update)
{
	return launch_chunks(device, KERNEL(update_restore_kernel), update);
}

/* ---- averages ---- */

struct average_rule {
	float share;
	bool buffers, returns;
};

DEVICE struct average_rule average_rule_of(const struct update *a)
{
	struct average_rule rule = {0, false, false};

	switch (a->average) {
#define RULE(constant, name, prefix, has_buffers, goes_on)                                         \
	case DEVICE_##constant:                                                                    \
		rule.share = a->step->hyper.name;                                                  \
		rule.buffers = has_buffers;                                                        \
		rule.returns = goes_on;                                                            \
		break;
		DEVICE_AVERAGES(RULE)
#undef RULE
	default:
		break;
	}
	return rule;
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	update_average_kernel(const __grid_constant__ struct update a)
{
	const struct update_chunk chunk = a.chunks[blockIdx.x];
	const struct average_rule rule = average_rule_of(&a);
	float *average = a.slots[a.average] + chunk.offset;

	if (rule.share == 0 || (!chunk.trained && !rule.buffers))
		return;
	for (uint32_t at = threadIdx.x; at < chunk.count; at += KERNEL_THREADS) {
		float w = value_of(&a, &chunk)[at];

		if (rule.share != 1)
			w = (1 - rule.share) * average[at] + (1 - (1 - rule.share)) * w;
		average[at] = w;
		if (rule.returns && chunk.trained)
			move_value(&a, &chunk, at, w);
	}
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	update_exchange_kernel(const __grid_constant__ struct update a)
{
	const struct update_chunk chunk = a.chunks[blockIdx.x];
	float *average = a.slots[a.average] + chunk.offset;

	for (uint32_t at = threadIdx.x; at < chunk.count; at += KERNEL_THREADS) {
		float w = value_of(&a, &chunk)[at];

		move_value(&a, &chunk, at, average[at]);
		average[at] = w;
	}
}

int update_exchange(const struct kernel_device *device, const struct update *update)
{
	return launch_chunks(device, KERNEL(update_exchange_kernel), update);
}

int update_average(const struct kernel_device *device, const struct update *update)
{
	struct update own = *update;
	int r = 0;

#define FOLLOW(constant, ...)                                                                      \
	own.average = DEVICE_##constant;                                                           \
	if (r == 0 && own.slots[own.average])                                                      \
		r = launch_chunks(device, KERNEL(update_average_kernel), &own);
	DEVICE_AVERAGES(FOLLOW)
#undef FOLLOW
	return r;
}
