/* Kernels of tokens.cu, for one instance. */

/* One thread per group of channels of y. */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	NAME(tokens_forward)(const __grid_constant__ struct tokens_arguments a)
{
	const struct tokens_place here = tokens_here(&a);
	const uint32_t channel = here.group * LANES, first = a.tokens - a.places;
	uint32_t sample, token;
	float v[LANES], position[LANES];

	if (here.row >= a.n * a.tokens)
		return;
	sample = kernel_divide(here.row, a.by_tokens);
	token = here.row - sample * a.tokens;
	if (token < first) {
		NAME(vector)(v, a.class_token, channel, 0);
	} else {
		uint64_t place = (uint64_t)sample * a.places + token - first;

		NAME(unpack)(v, NAME(load)(a.x, place * a.channels + channel));
	}
	NAME(vector)(position, a.positions + (uint64_t)token * a.channels, channel, 0);
	NAME(add)(v, position);
	NAME(store)(a.y, (uint64_t)here.row * a.channels + channel, v);
}

DEVICE void NAME(tokens_gradient)(float *to, uint64_t at, const float *sum, uint32_t add)
{
	EACH(i, LANES)
		to[at + i] = add ? to[at + i] + sum[i] : sum[i];
}

/* One thread per group of channels of a token; it loops over all samples. */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	NAME(tokens_backward)(const __grid_constant__ struct tokens_arguments a)
{
	const struct tokens_place here = tokens_here(&a);
	const uint32_t channel = here.group * LANES, first = a.tokens - a.places;
	const uint64_t at = (uint64_t)here.row * a.channels + channel;
	const uint64_t step = (uint64_t)a.tokens * a.channels;
	const uint64_t step_x = (uint64_t)a.places * a.channels;
	float sum[LANES];

	if (here.row >= a.tokens)
		return;
	NAME(fill)(sum, 0);
	for (uint32_t n = 0; n < a.n; n += SAMPLES) {
		struct NAME(raw) raw[SAMPLES];

		EACH_IF(u, SAMPLES, n + u < a.n)
			raw[u] = NAME(load)(a.dy, at + (n + u) * step);
		EACH_IF(u, SAMPLES, n + u < a.n) {
			float v[LANES];

			NAME(unpack)(v, raw[u]);
			NAME(add)(sum, v);
			if (a.dx && here.row >= first) {
				uint64_t to = at - (uint64_t)first * a.channels + (n + u) * step_x;

				NAME(store)(a.dx, to, v);
			}
		}
	}
	if (a.dpositions)
		NAME(tokens_gradient)(a.dpositions, at, sum, a.add_positions);
	if (a.dclass_token && here.row < first)
		NAME(tokens_gradient)(a.dclass_token, channel, sum, a.add_class_token);
}

/* One thread per group of channels of y. */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	NAME(tokens_take)(const __grid_constant__ struct tokens_arguments a)
{
	const struct tokens_place here = tokens_here(&a);
	const uint32_t channel = here.group * LANES;
	uint64_t from;
	float v[LANES];

	if (here.row >= a.n)
		return;
	from = ((uint64_t)here.row * a.places + a.taken) * a.channels + channel;
	NAME(unpack)(v, NAME(load)(a.x, from));
	NAME(store)(a.y, (uint64_t)here.row * a.channels + channel, v);
}

/* One thread per group of channels of dx. */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	NAME(tokens_take_backward)(const __grid_constant__ struct tokens_arguments a)
{
	const struct tokens_place here = tokens_here(&a);
	const uint32_t channel = here.group * LANES;
	uint32_t sample;
	float v[LANES];

	if (here.row >= a.n * a.places)
		return;
	sample = kernel_divide(here.row, a.by_places);
	NAME(fill)(v, 0);
	if (here.row - sample * a.places == a.taken)
		NAME(unpack)(v, NAME(load)(a.dy, (uint64_t)sample * a.channels + channel));
	NAME(store)(a.dx, (uint64_t)here.row * a.channels + channel, v);
}
