/* Row-wise kernels of norm.cu, for one instance. */

static __global__ void __launch_bounds__(KERNEL_THREADS, NORM_STATISTICS_RESIDENT)
	NAME(norm_statistics)(const __grid_constant__ struct norm_arguments a)
{
	const struct NAME(place) here = NAME(place)(&a.columns);
	float sum[LANES], squares[LANES];

	NAME(fill)(sum, 0);
	NAME(fill)(squares, 0);
	for (uint64_t first = here.first; first < a.rows; first += here.turn) {
		uint64_t at = first * a.channels + here.channel;
		struct NAME(raw) raw[COLUMNS_UNROLL];

		EACH_IF(u, COLUMNS_UNROLL, first + u * a.columns.height < a.rows)
			raw[u] = NAME(load)(a.x, at + u * here.step);
		EACH_IF(u, COLUMNS_UNROLL, first + u * a.columns.height < a.rows) {
			float x[LANES];

			NAME(unpack)(x, raw[u]);
			EACH(i, LANES) {
				sum[i] += x[i];
				squares[i] += x[i] * x[i];
			}
		}
	}
	NAME(leave_sums)(&a.columns, &here, sum, squares, true, a.partial);
}

/*
 * `curved` is a compile-time constant: GELU and sigmoid need registers that the other activations
 * do not.
 */
DEVICE void NAME(norm_apply_rows)(const struct norm_arguments *a, bool curved)
{
	const struct NAME(place) here = NAME(place_from_end)(&a->columns);
	float scale[LANES], bias[LANES], scale2[LANES], bias2[LANES];

	NAME(vector)(scale, a->scale, here.channel, 1);
	NAME(vector)(bias, a->bias, here.channel, 0);
	NAME(vector)(scale2, a->scale2, here.channel, 1);
	NAME(vector)(bias2, a->bias2, here.channel, 0);
	NAME(add)(bias, bias2);
	for (uint64_t first = here.first; first < a->rows; first += here.turn) {
		uint64_t at = first * a->channels + here.channel;
		struct NAME(raw) raw[COLUMNS_UNROLL], added[COLUMNS_UNROLL];

		EACH_IF(u, COLUMNS_UNROLL, first + u * a->columns.height < a->rows) {
			raw[u] = NAME(load)(a->x, at + u * here.step);
			if (a->residual)
				added[u] = NAME(load)(a->residual, at + u * here.step);
		}
		EACH_IF(u, COLUMNS_UNROLL, first + u * a->columns.height < a->rows) {
			float z[LANES], residual[LANES];

			NAME(unpack)(z, raw[u]);
			EACH(i, LANES)
				z[i] = scale[i] * z[i] + bias[i];
			if (a->residual) {
				NAME(unpack)(residual, added[u]);
				EACH(i, LANES)
					z[i] += scale2[i] * residual[i];
			}
			NAME(activate)(z, a->activation, curved);
			NAME(store)(a->y, at + u * here.step, z);
		}
	}
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 3)
	NAME(norm_apply)(const __grid_constant__ struct norm_arguments a)
{
	NAME(norm_apply_rows)(&a, false);
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	NAME(norm_apply_curved)(const __grid_constant__ struct norm_arguments a)
{
	NAME(norm_apply_rows)(&a, true);
}

/*
 * Compile-time variant of norm_backward(). Skipping unused operands frees registers, which allows
 * more rows at once.
 */
struct NAME(backward_kind) {
	bool curved;
	bool lean; /* reads dy and at most x, writes only sums */
};

/* Rows that a thread loads at once. `other` is y, or the residual for recomputing z. */
struct NAME(backward_rows) {
	struct NAME(raw) dy[COLUMNS_UNROLL], dy2[COLUMNS_UNROLL];
	struct NAME(raw) x[COLUMNS_UNROLL], other[COLUMNS_UNROLL];
};

/* z = scale x + bias + scale2 residual */
struct NAME(affine) {
	float scale[LANES], bias[LANES], scale2[LANES];
};

DEVICE bool NAME(backward_from_y)(const struct norm_arguments *a, struct NAME(backward_kind) kind)
{
	return !kind.lean && !kind.curved && a->activation == DEVICE_RELU && a->y;
}

DEVICE bool NAME(backward_from_x)(const struct norm_arguments *a, struct NAME(backward_kind) kind)
{
	return kind.curved || (a->activation == DEVICE_RELU && !NAME(backward_from_y)(a, kind));
}

DEVICE void NAME(backward_load)(struct NAME(backward_rows) * rows, int u,
				const struct norm_arguments *a, struct NAME(backward_kind) kind,
				uint64_t at)
{
	rows->dy[u] = NAME(load)(a->dy, at);
	if (!kind.lean && a->dy2)
		rows->dy2[u] = NAME(load)(a->dy2, at);
	if (a->products || NAME(backward_from_x)(a, kind))
		rows->x[u] = NAME(load)(a->x, at);
	if (NAME(backward_from_y)(a, kind))
		rows->other[u] = NAME(load)(a->y, at);
	else if (!kind.lean && NAME(backward_from_x)(a, kind) && a->residual)
		rows->other[u] = NAME(load)(a->residual, at);
}

/* Computes dz of one row, and x if it is read. */
DEVICE void NAME(backward_row)(float *dz, float *x, const struct NAME(backward_rows) * rows, int u,
			       const struct norm_arguments *a, const struct NAME(affine) * affine,
			       struct NAME(backward_kind) kind)
{
	float v[LANES];

	NAME(unpack)(dz, rows->dy[u]);
	if (!kind.lean && a->dy2) {
		NAME(unpack)(v, rows->dy2[u]);
		NAME(add)(dz, v);
	}
	NAME(fill)(x, 0);
	if (a->products || NAME(backward_from_x)(a, kind))
		NAME(unpack)(x, rows->x[u]);
	if (NAME(backward_from_y)(a, kind)) {
		NAME(unpack)(v, rows->other[u]);
		EACH(i, LANES)
			dz[i] = v[i] > 0 ? dz[i] : 0;
	} else if (NAME(backward_from_x)(a, kind)) {
		float z[LANES];

		EACH(i, LANES)
			z[i] = affine->scale[i] * x[i] + affine->bias[i];
		if (!kind.lean && a->residual) {
			NAME(unpack)(v, rows->other[u]);
			EACH(i, LANES)
				z[i] += affine->scale2[i] * v[i];
		}
		NAME(through)(dz, z, a->activation, kind.curved);
	}
}

DEVICE void NAME(norm_backward_rows)(const struct norm_arguments *a, bool curved, bool lean)
{
	const struct NAME(backward_kind) kind = {curved, lean};
	const struct NAME(place) here = NAME(place)(&a->columns);
	const uint32_t at_once = lean ? COLUMNS_UNROLL : COLUMNS_UNROLL / 2;
	struct NAME(affine) affine;
	float bias2[LANES], mean[LANES], sum[LANES], products[LANES];

	NAME(vector)(affine.scale, a->scale, here.channel, 1);
	NAME(vector)(affine.bias, a->bias, here.channel, 0);
	NAME(vector)(affine.scale2, a->scale2, here.channel, 1);
	NAME(vector)(bias2, a->bias2, here.channel, 0);
	NAME(vector)(mean, a->mean, here.channel, 0);
	NAME(add)(affine.bias, bias2);
	NAME(fill)(sum, 0);
	NAME(fill)(products, 0);
	for (uint64_t turn = here.first; turn < a->rows; turn += here.turn) {
		for (uint32_t line = 0; line < COLUMNS_UNROLL; line += at_once) {
			uint64_t first = turn + line * a->columns.height;
			uint64_t at = first * a->channels + here.channel;
			struct NAME(backward_rows) rows;

			EACH_IF(u, at_once, first + u * a->columns.height < a->rows)
				NAME(backward_load)(&rows, u, a, kind, at + u * here.step);
			EACH_IF(u, at_once, first + u * a->columns.height < a->rows) {
				float dz[LANES], x[LANES];

				NAME(backward_row)(dz, x, &rows, u, a, &affine, kind);
				if (!lean && a->dz)
					NAME(store)(a->dz, at + u * here.step, dz);
				EACH(i, LANES) {
					sum[i] += dz[i];
					products[i] += a->products ? dz[i] * (x[i] - mean[i]) : 0;
				}
			}
		}
	}
	if (a->sum)
		NAME(leave_sums)(&a->columns, &here, sum, products, a->products, a->partial);
}

static __global__ void __launch_bounds__(KERNEL_THREADS, NORM_BACKWARD_RESIDENT)
	NAME(norm_backward)(const __grid_constant__ struct norm_arguments a)
{
	NAME(norm_backward_rows)(&a, false, false);
}

static __global__ void __launch_bounds__(KERNEL_THREADS, NORM_BACKWARD_RESIDENT)
	NAME(norm_backward_lean)(const __grid_constant__ struct norm_arguments a)
{
	NAME(norm_backward_rows)(&a, false, true);
}

static __global__ void __launch_bounds__(KERNEL_THREADS, NORM_BACKWARD_RESIDENT)
	NAME(norm_backward_curved)(const __grid_constant__ struct norm_arguments a)
{
	NAME(norm_backward_rows)(&a, true, false);
}

static __global__ void __launch_bounds__(KERNEL_THREADS, NORM_BACKWARD_RESIDENT)
	NAME(norm_backward_curved_lean)(const __grid_constant__ struct norm_arguments a)
{
	NAME(norm_backward_rows)(&a, true, true);
}

DEVICE void NAME(norm_backward_apply_rows)(const struct norm_arguments *k, bool curved)
{
	const struct NAME(place) here = NAME(place_from_end)(&k->columns);
	float scale[LANES], bias[LANES], a[LANES], b[LANES], c[LANES];

	NAME(vector)(scale, k->scale, here.channel, 1);
	NAME(vector)(bias, k->bias, here.channel, 0);
	NAME(vector)(a, k->a, here.channel, 0);
	NAME(vector)(b, k->b, here.channel, 0);
	NAME(vector)(c, k->c, here.channel, 0);
	for (uint64_t first = here.first; first < k->rows; first += here.turn) {
		uint64_t at = first * k->channels + here.channel;
		struct NAME(raw) raw[COLUMNS_UNROLL], raw_x[COLUMNS_UNROLL];

		EACH_IF(u, COLUMNS_UNROLL, first + u * k->columns.height < k->rows) {
			raw[u] = NAME(load)(k->dz, at + u * here.step);
			raw_x[u] = NAME(load)(k->x, at + u * here.step);
		}
		EACH_IF(u, COLUMNS_UNROLL, first + u * k->columns.height < k->rows) {
			float dz[LANES], x[LANES], z[LANES];

			NAME(unpack)(dz, raw[u]);
			NAME(unpack)(x, raw_x[u]);
			if (k->scale) {
				EACH(i, LANES)
					z[i] = scale[i] * x[i] + bias[i];
				NAME(through)(dz, z, k->activation, curved);
			}
			EACH(i, LANES)
				dz[i] = a[i] * dz[i] + (b[i] * x[i] + c[i]);
			NAME(store)(k->dx, at + u * here.step, dz);
		}
	}
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	NAME(norm_backward_apply)(const __grid_constant__ struct norm_arguments k)
{
	NAME(norm_backward_apply_rows)(&k, false);
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	NAME(norm_backward_apply_curved)(const __grid_constant__ struct norm_arguments k)
{
	NAME(norm_backward_apply_rows)(&k, true);
}
