/*
 * Kernels of update.h. The first and the last have a block for each chunk, whose threads take four
 * elements at a time; the decision is one block's.
 */
#include "trainer/device/cuda/kernels/update.h"

#include "trainer/device/cuda/kernels/cu/kernel.h"
#include "trainer/device/cuda/kernels/cu/reduce.h"
#include "trainer/device/cuda/kernels/tables.h"

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

/* ---- norm of the gradients ---- */

/*
 * Squares of fp32 values do not overflow in double precision: a sum that is not finite has an
 * element that is not.
 */
KERNEL(squares, struct update, a)
{
	const struct update_chunk chunk = a.chunks[kernel_block_x()];
	const float *gradient = a.gradient + chunk.offset;
	double sum = 0;

	if (chunk.trained) {
		UNROLL
		for (uint32_t u = 0; u < UPDATE_CHUNK_MAX / (KERNEL_THREADS * FOUR); u++) {
			uint32_t at = (u * KERNEL_THREADS + kernel_thread()) * FOUR;
			float g[FOUR];

			if (at + FOUR > chunk.count)
				continue;
			load_four(g, gradient + at);
			UNROLL
			for (int i = 0; i < FOUR; i++)
				sum += (double)g[i] * (double)g[i];
		}
		for (uint32_t at = chunk.count / FOUR * FOUR + kernel_thread(); at < chunk.count;
		     at += KERNEL_THREADS)
			sum += (double)gradient[at] * (double)gradient[at];
	}
	sum = reduce_sum_f64(sum);
	if (kernel_thread() == 0)
		a.partial[kernel_block_x()] = sum;
}

/* ---- decision ---- */

DEVICE void back_off(struct device_params_state *state, const struct update_scaling *scaling)
{
	double scale = state->loss_scale * scaling->backoff;

	if (scaling->backoff == 1)
		return;
	state->loss_scale = scale > scaling->least ? scale : scaling->least;
	state->scale_age = 0;
}

DEVICE void grow(struct device_params_state *state, const struct update_scaling *scaling)
{
	double scale = state->loss_scale * scaling->growth;

	if (scaling->growth == 1 || state->scale_age < scaling->interval ||
	    scale > scaling->largest)
		return;
	state->loss_scale = scale;
	state->scale_age = 0;
}

DEVICE void decide_update(const struct update *a, double sum)
{
	const struct device_hyper *hyper = &a->step->hyper;
	struct device_params_state *state = a->state;
	double given = hyper->grad_scale != 0 ? (double)hyper->grad_scale : 1;
	double scale = given / state->loss_scale, norm = sqrt(sum) * fabs(scale);
	bool finite = norm - norm == 0;

	a->results->grad_norm = norm;
	a->results->loss_scale = state->loss_scale;
	a->results->updated = finite;
	a->results->skipped = !finite;
	a->decision->made = finite;
	if (!finite) {
		state->skipped++;
		back_off(state, &a->scaling);
		return;
	}
	if (hyper->clip_norm > 0 && norm > (double)hyper->clip_norm)
		scale *= (double)hyper->clip_norm / norm;
	state->updates++;
	state->scale_age++;
	a->decision->gradient_scale = (float)scale;
	a->decision->correction1 =
		(float)(1 / (1 - pow((double)hyper->beta1, (double)state->updates)));
	a->decision->correction2 =
		(float)(1 / (1 - pow((double)hyper->beta2, (double)state->updates)));
	a->decision->ema_decay = state->updates == 1 ? 0 : hyper->ema_decay;
	grow(state, &a->scaling);
}

KERNEL(decide, struct update, a)
{
	double sum = 0;

	for (uint32_t i = kernel_thread(); i < a.chunk_count; i += KERNEL_THREADS)
		sum += a.partial[i];
	sum = reduce_sum_f64(sum);
	if (kernel_thread() == 0)
		decide_update(&a, sum);
}

/* ---- update ---- */

/* Coefficients of a chunk's group; sgd: step = from_gradient g + from_moment m. */
struct rates {
	float gradient_scale, lr, keep, l2;
	float momentum, from_gradient, from_moment;
	float beta1, beta2, epsilon, correction1, correction2;
	float ema_decay;
	bool adamw, averages, returns; /* returns: to the average, where that moves */
};

DEVICE struct rates rates_of(const struct update *a, const struct update_chunk *chunk)
{
	const struct device_hyper *hyper = &a->step->hyper;
	float decay = hyper->weight_decay[chunk->group];
	bool adamw = a->optimizer.kind == DEVICE_ADAMW,
	     coupled = a->optimizer.coupled_decay && !adamw;
	struct rates r;

	r.gradient_scale = a->decision->gradient_scale;
	r.lr = hyper->lr[chunk->group];
	r.keep = coupled ? 1 : 1 - r.lr * decay;
	r.l2 = coupled ? decay : 0;
	r.momentum = hyper->momentum;
	r.from_gradient = a->optimizer.nesterov ? 1 : 0;
	r.from_moment = a->optimizer.nesterov ? hyper->momentum : 1;
	r.beta1 = hyper->beta1;
	r.beta2 = hyper->beta2;
	r.epsilon = hyper->epsilon;
	r.correction1 = a->decision->correction1;
	r.correction2 = a->decision->correction2;
	r.ema_decay = a->decision->ema_decay;
	r.adamw = adamw;
	r.averages = a->ema && r.ema_decay != 1;
	r.returns = r.averages && hyper->lookahead && !chunk->frozen;
	return r;
}

/* One element, in registers. */
struct element {
	float w, g, m, v, ema;
};

DEVICE void update_element(struct element *e, const struct rates *r, bool trained)
{
	if (trained && r->adamw) {
		float g = e->g * r->gradient_scale;

		e->m = r->beta1 * e->m + (1 - r->beta1) * g;
		e->v = r->beta2 * e->v + (1 - r->beta2) * g * g;
		e->w = r->keep * e->w - r->lr * (e->m * r->correction1) /
						(sqrtf(e->v * r->correction2) + r->epsilon);
	} else if (trained) {
		float g = e->g * r->gradient_scale + r->l2 * e->w;

		e->m = r->momentum * e->m + g;
		e->w = r->keep * e->w - r->lr * (r->from_gradient * g + r->from_moment * e->m);
	}
	/* a decay of 0 must copy, also over what was not finite */
	if (r->averages)
		e->ema = r->ema_decay == 0 ? e->w
					   : r->ema_decay * e->ema + (1 - r->ema_decay) * e->w;
	if (r->returns)
		e->w = e->ema;
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
			  const struct rates *r, uint32_t at)
{
	uint64_t i = chunk->offset + at;
	struct element e;

	e.w = a->value[i];
	e.g = e.m = e.v = e.ema = 0;
	if (chunk->trained) {
		e.g = a->gradient[i];
		e.m = a->moment1[i];
		e.v = r->adamw ? a->moment2[i] : 0;
	}
	if (r->averages)
		e.ema = a->ema[i];
	update_element(&e, r, chunk->trained);
	if (chunk->trained || r->returns)
		a->value[i] = e.w;
	if (chunk->trained) {
		a->moment1[i] = e.m;
		if (r->adamw)
			a->moment2[i] = e.v;
		if (chunk->copy)
			store_copy(a, chunk, chunk->first + at, e.w);
	}
	if (r->averages)
		a->ema[i] = e.ema;
}

/* FOUR elements of every slot. */
struct four {
	float w[FOUR], g[FOUR], m[FOUR], v[FOUR], ema[FOUR];
};

DEVICE void load_slots(struct four *f, const struct update *a, const struct update_chunk *chunk,
		       const struct rates *r, uint32_t at)
{
	uint64_t i = chunk->offset + at;

	UNROLL
	for (int j = 0; j < FOUR; j++)
		f->g[j] = f->m[j] = f->v[j] = f->ema[j] = 0;
	load_four(f->w, a->value + i);
	if (chunk->trained) {
		load_four(f->g, a->gradient + i);
		load_four(f->m, a->moment1 + i);
		if (r->adamw)
			load_four(f->v, a->moment2 + i);
	}
	if (r->averages)
		load_four(f->ema, a->ema + i);
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

DEVICE void store_slots(const struct four *f, const struct update *a,
			const struct update_chunk *chunk, const struct rates *r, uint32_t at)
{
	uint64_t i = chunk->offset + at;

	if (chunk->trained || r->returns)
		store_four(a->value + i, f->w);
	if (chunk->trained) {
		store_four(a->moment1 + i, f->m);
		if (r->adamw)
			store_four(a->moment2 + i, f->v);
		if (chunk->copy)
			copy_four(a, chunk, chunk->first + at, f->w);
	}
	if (r->averages)
		store_four(a->ema + i, f->ema);
}

#define APPLY_UNROLL 2 /* groups of a thread at once: up to five slots are read */

KERNEL_RESIDENT(3, apply, struct update, a)
{
	const struct update_chunk chunk = a.chunks[kernel_block_x()];
	const struct rates r = rates_of(&a, &chunk);

	if (!a.decision->made || (!chunk.trained && !r.averages))
		return;
	for (uint32_t first = 0; first < chunk.count;
	     first += APPLY_UNROLL * KERNEL_THREADS * FOUR) {
		struct four four[APPLY_UNROLL];

		UNROLL
		for (int u = 0; u < APPLY_UNROLL; u++) {
			uint32_t at = first + (u * KERNEL_THREADS + kernel_thread()) * FOUR;

			if (at + FOUR <= chunk.count)
				load_slots(&four[u], &a, &chunk, &r, at);
		}
		UNROLL
		for (int u = 0; u < APPLY_UNROLL; u++) {
			uint32_t at = first + (u * KERNEL_THREADS + kernel_thread()) * FOUR;

			if (at + FOUR > chunk.count)
				continue;
			UNROLL
			for (int i = 0; i < FOUR; i++) {
				struct element e;

				e.w = four[u].w[i];
				e.g = four[u].g[i];
				e.m = four[u].m[i];
				e.v = four[u].v[i];
				e.ema = four[u].ema[i];
				update_element(&e, &r, chunk.trained);
				four[u].w[i] = e.w;
				four[u].m[i] = e.m;
				four[u].v[i] = e.v;
				four[u].ema[i] = e.ema;
			}
			store_slots(&four[u], &a, &chunk, &r, at);
		}
	}
	for (uint32_t at = chunk.count / FOUR * FOUR + kernel_thread(); at < chunk.count;
	     at += KERNEL_THREADS)
		update_single(&a, &chunk, &r, at);
}

KERNEL_TABLE update_squares_kernel = KERNEL_ENTRY(squares);
KERNEL_TABLE update_decide_kernel = KERNEL_ENTRY(decide);
KERNEL_TABLE update_apply_kernel = KERNEL_ENTRY(apply);
