/* Kernels of scale_add.cu, for one instance. */

/* A thread's work: a group of channels of one sample, at a subset of its positions. */
struct NAME(scaled) {
	uint32_t image;    /* index in the batch */
	uint32_t sample;   /* index in the global batch */
	uint32_t channel;  /* first channel of the group */
	uint32_t position; /* first position */
	/* end of the position range; at or below `position` if there is no work */
	uint32_t end;
	struct draws_key key;
	float gate[LANES]; /* per-sample factor: gate times drop-path */
	float path;
};

DEVICE struct NAME(scaled)
	NAME(scaled)(const struct scale_add_arguments *a, const struct NAME(place) * here)
{
	struct NAME(scaled) s;
	uint32_t part;

	s.image = blockIdx.x / a->parts;
	part = blockIdx.x - s.image * a->parts;
	s.sample = a->step->draws.first + s.image;
	s.channel = here->channel;
	s.position = part * a->share + here->line;
	s.end = (part + 1) * a->share;
	s.end = s.end < a->positions ? s.end : a->positions;
	s.end = here->active ? s.end : 0;
	s.key = draws_key(&a->step->draws, a->layer);
	s.path = a->path.below ? draws_factor(a->path, draws_sample(s.key, s.sample)) : 1;
	NAME(fill)(s.gate, s.path);
	if (a->gate) {
		float gate[LANES];

		NAME(unpack)
		(gate, NAME(load)(a->gate, (uint64_t)s.image * a->channels + s.channel));
		EACH(i, LANES)
			s.gate[i] *= gate[i];
	}
	return s;
}

/* Multiplies v by the dropout factors of these elements. */
DEVICE void NAME(drop)(float *v, const struct scale_add_arguments *a, const struct NAME(scaled) * s,
		       uint32_t position)
{
	uint64_t at = (uint64_t)position * a->channels + s->channel;

#if LANES == 1
	struct philox_block block = draws_quad(s->key, s->sample, (uint32_t)(at / 4));
	uint32_t low = at & 1 ? block.b : block.a, high = at & 1 ? block.d : block.c;

	v[0] *= draws_factor(a->dropout, at & 2 ? high : low);
#else
	EACH(i, LANES / 4) {
		struct philox_block block = draws_quad(s->key, s->sample, (uint32_t)(at / 4 + i));

		v[4 * i] *= draws_factor(a->dropout, block.a);
		v[4 * i + 1] *= draws_factor(a->dropout, block.b);
		v[4 * i + 2] *= draws_factor(a->dropout, block.c);
		v[4 * i + 3] *= draws_factor(a->dropout, block.d);
	}
#endif
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	NAME(scale_add)(const __grid_constant__ struct scale_add_arguments a)
{
	const struct NAME(place) here = NAME(place)(&a.columns);
	const struct NAME(scaled) s = NAME(scaled)(&a, &here);
	const uint32_t height = a.columns.height;
	float gamma[LANES];

	NAME(vector)(gamma, a.gamma, s.channel, 1);
	EACH(i, LANES)
		gamma[i] *= s.gate[i];
	for (uint32_t first = s.position; first < s.end; first += COLUMNS_UNROLL * height) {
		uint64_t at = ((uint64_t)s.image * a.positions + first) * a.channels + s.channel;
		struct NAME(raw) raw[COLUMNS_UNROLL], added[COLUMNS_UNROLL];

		EACH_IF(u, COLUMNS_UNROLL, first + u * height < s.end) {
			raw[u] = NAME(load)(a.x, at + u * here.step);
			if (a.residual)
				added[u] = NAME(load)(a.residual, at + u * here.step);
		}
		EACH_IF(u, COLUMNS_UNROLL, first + u * height < s.end) {
			float v[LANES], residual[LANES];

			NAME(unpack)(v, raw[u]);
			EACH(i, LANES)
				v[i] *= gamma[i];
			if (a.dropout.below)
				NAME(drop)(v, &a, &s, first + u * height);
			if (a.residual) {
				NAME(unpack)(residual, added[u]);
				NAME(add)(v, residual);
			}
			NAME(activate)(v, a.activation, false);
			NAME(store)(a.y, at + u * here.step, v);
		}
	}
}

#define AT_ONCE (COLUMNS_UNROLL / 2)

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	NAME(scale_add_backward)(const __grid_constant__ struct scale_add_arguments a)
{
	const struct NAME(place) here = NAME(place)(&a.columns);
	const struct NAME(scaled) s = NAME(scaled)(&a, &here);
	const uint32_t height = a.columns.height;
	const bool relu = a.activation == DEVICE_RELU;
	float gamma[LANES], products[LANES];

	NAME(vector)(gamma, a.gamma, s.channel, 1);
	EACH(i, LANES)
		gamma[i] *= s.gate[i];
	NAME(fill)(products, 0);
	for (uint32_t first = s.position; first < s.end; first += AT_ONCE * height) {
		uint64_t at = ((uint64_t)s.image * a.positions + first) * a.channels + s.channel;
		struct NAME(raw) dy[AT_ONCE], dy2[AT_ONCE], y[AT_ONCE], x[AT_ONCE];

		EACH_IF(u, AT_ONCE, first + u * height < s.end) {
			dy[u] = NAME(load)(a.dy, at + u * here.step);
			if (a.dy2)
				dy2[u] = NAME(load)(a.dy2, at + u * here.step);
			if (relu)
				y[u] = NAME(load)(a.y, at + u * here.step);
			if (a.partial)
				x[u] = NAME(load)(a.x, at + u * here.step);
		}
		EACH_IF(u, AT_ONCE, first + u * height < s.end) {
			float dz[LANES], v[LANES];

			NAME(unpack)(dz, dy[u]);
			if (a.dy2) {
				NAME(unpack)(v, dy2[u]);
				NAME(add)(dz, v);
			}
			if (relu) {
				NAME(unpack)(v, y[u]);
				NAME(through)(dz, v, a.activation, false);
			}
			if (a.dz)
				NAME(store)(a.dz, at + u * here.step, dz);
			if (a.dropout.below)
				NAME(drop)(dz, &a, &s, first + u * height);
			if (a.partial) {
				NAME(unpack)(v, x[u]);
				EACH(i, LANES)
					products[i] += dz[i] * v[i];
			}
			if (a.dx) {
				EACH(i, LANES)
					dz[i] *= gamma[i];
				NAME(store)(a.dx, at + u * here.step, dz);
			}
		}
	}
	if (!a.partial)
		return;
	EACH(i, LANES)
		products[i] *= a.dgate ? s.path : s.gate[i];
	NAME(leave_sums)(&a.columns, &here, products, products, false, a.partial);
}

#undef AT_ONCE
