/*
 * Common code of all kernels of one instance (see instances.h), then the kernels themselves. Loads
 * and stores LANES elements (16 bytes, or one element if LANES is 1) as fp32 registers, and
 * computes a thread's place in a matrix partitioned as in columns.h. Included once per instance.
 */

/* LANES elements in memory format: load early, unpack when needed. */
struct NAME(raw) {
#if LANES == 1
	float value;
#else
	struct kernel_pack pack;
#endif
};

DEVICE struct NAME(raw) NAME(load)(const void *from, uint64_t at)
{
	struct NAME(raw) raw;

#if LANES == 1
	raw.value = kernel_load(from, at, ELEMENT);
#else
	raw.pack = kernel_load16((const char *)from + at * (16 / LANES));
#endif
	return raw;
}

DEVICE void NAME(unpack)(float *v, struct NAME(raw) raw)
{
#if LANES == 1
	v[0] = raw.value;
#elif LANES == 4
	EACH(i, 4)
		v[i] = kernel_from_bits(raw.pack.word[i]);
#else
	EACH(i, 4) {
		uint32_t word = raw.pack.word[i];

		v[2 * i] = ELEMENT == CUDA_F16 ? kernel_from_f16((uint16_t)word)
					       : kernel_from_bits(word << 16);
		v[2 * i + 1] = ELEMENT == CUDA_F16 ? kernel_from_f16((uint16_t)(word >> 16))
						   : kernel_from_bits(word & 0xffff0000);
	}
#endif
}

DEVICE void NAME(store)(void *to, uint64_t at, const float *v)
{
#if LANES == 1
	kernel_store(to, at, ELEMENT, v[0]);
#else
	struct kernel_pack pack;

	EACH(i, 4) {
#if LANES == 4
		pack.word[i] = kernel_to_bits(v[i]);
#else
		pack.word[i] = ELEMENT == CUDA_F16 ? kernel_to_f16x2(v[2 * i], v[2 * i + 1])
						   : kernel_to_bf16x2(v[2 * i], v[2 * i + 1]);
#endif
	}
	kernel_store16((char *)to + at * (16 / LANES), pack);
#endif
}

DEVICE void NAME(fill)(float *v, float value)
{
	EACH(i, LANES)
		v[i] = value;
}

/* v += w */
DEVICE void NAME(add)(float *v, const float *w)
{
	EACH(i, LANES)
		v[i] += w[i];
}

/* Loads fp32 from a per-channel vector; fills with `otherwise` if it is NULL. */
DEVICE void NAME(vector)(float *v, const float *from, uint32_t channel, float otherwise)
{
	if (!from) {
		NAME(fill)(v, otherwise);
		return;
	}
#if LANES == 1
	v[0] = from[channel];
#else
	UNROLL
	for (int i = 0; i < LANES; i += 4) {
		struct kernel_pack pack = kernel_load16(from + channel + i);

		EACH(j, 4)
			v[i + j] = kernel_from_bits(pack.word[j]);
	}
#endif
}

/* LANES bytes in memory format. */
struct NAME(raw_bytes) {
#if LANES == 8
	struct kernel_half_pack pack;
#else
	uint32_t word;
#endif
};

DEVICE struct NAME(raw_bytes) NAME(load_bytes)(const uint8_t *from, uint64_t at)
{
	struct NAME(raw_bytes) raw;

#if LANES == 1
	raw.word = from[at];
#elif LANES == 4
	raw.word = kernel_load4(from + at);
#else
	raw.pack = kernel_load8(from + at);
#endif
	return raw;
}

DEVICE uint32_t NAME(byte)(const struct NAME(raw_bytes) * raw, int lane)
{
#if LANES == 8
	return raw->pack.word[lane / 4] >> 8 * (lane % 4) & 0xff;
#else
	return raw->word >> 8 * lane & 0xff;
#endif
}

DEVICE void NAME(store_bytes)(uint8_t *to, uint64_t at, const uint32_t *v)
{
#if LANES == 1
	to[at] = (uint8_t)v[0];
#elif LANES == 4
	kernel_store4(to + at, v[0] | v[1] << 8 | v[2] << 16 | v[3] << 24);
#else
	struct kernel_half_pack pack;

	pack.word[0] = v[0] | v[1] << 8 | v[2] << 16 | v[3] << 24;
	pack.word[1] = v[4] | v[5] << 8 | v[6] << 16 | v[7] << 24;
	kernel_store8(to + at, pack);
#endif
}

/* curved: the activation is GELU or sigmoid; otherwise ReLU or identity. NaN propagates. */
DEVICE void NAME(activate)(float *z, enum device_activation activation, bool curved)
{
	if (curved && activation == DEVICE_LOGISTIC) {
		EACH(i, LANES)
			z[i] = slope_sigmoid(z[i]);
	} else if (curved) {
		EACH(i, LANES)
			z[i] = slope_gelu(z[i]);
	} else if (activation == DEVICE_RELU) {
		EACH(i, LANES)
			z[i] = slope_relu(z[i]);
	}
}

/* g *= activation'(z). For ReLU with z <= 0 the result is 0, even for non-finite g. */
DEVICE void NAME(through)(float *g, const float *z, enum device_activation activation, bool curved)
{
	if (curved && activation == DEVICE_LOGISTIC) {
		EACH(i, LANES)
			g[i] *= slope_of_sigmoid(z[i]);
	} else if (curved) {
		EACH(i, LANES)
			g[i] *= slope_of_gelu(z[i]);
	} else if (activation == DEVICE_RELU) {
		EACH(i, LANES)
			g[i] = z[i] > 0 ? g[i] : 0;
	}
}

/*
 * Start position of a thread. An inactive thread (beyond the last channel or the tile's height)
 * starts past the last row.
 */
struct NAME(place) {
	bool active;
	uint32_t column;  /* column in the tile, in groups */
	uint32_t line;    /* row in the tile */
	uint32_t channel; /* first channel of the group */
	uint64_t first;   /* first row */
	uint64_t turn;    /* stride in rows between turns */
	uint32_t step;    /* stride in elements between the thread's rows of one turn */
};

DEVICE struct NAME(place) NAME(place)(const struct columns *c)
{
	struct NAME(place) here;
	uint32_t group;

	here.line = threadIdx.x / c->width;
	here.column = threadIdx.x - here.line * c->width;
	group = blockIdx.y * c->width + here.column;
	here.channel = group * LANES;
	here.first = (uint64_t)blockIdx.x * c->height * COLUMNS_UNROLL + here.line;
	here.turn = (uint64_t)c->blocks_x * c->height * COLUMNS_UNROLL;
	here.step = c->height * c->channels;
	here.active = here.line < c->height && group < c->groups;
	if (!here.active) {
		here.first = c->rows;
		here.channel = 0;
	}
	return here;
}

/*
 * As place(), from the last turn to the first, for kernels that only map elements. The previous
 * operation runs in memory order, so the end of its data may still be in the L2 cache; and the part
 * that this kernel writes last is where the next operation starts.
 */
DEVICE struct NAME(place) NAME(place_from_end)(const struct columns *c)
{
	struct NAME(place) here = NAME(place)(c);

	/* modulo 2^64, so stepping below row 0 yields a number above all rows */
	here.turn = 0 - here.turn;
	if (!here.active)
		return here;
	here.first = (uint64_t)(c->turns - 1 - blockIdx.x) * c->height * COLUMNS_UNROLL + here.line;
	if (here.first >= c->rows)
		here.first += here.turn;
	return here;
}

/*
 * Sums the threads' values over the rows of the tile and stores them in partial
 * [2][blocks_x][channels]. All threads of the block must call it; inactive ones pass zeros. two:
 * also sums `product`.
 */
DEVICE void NAME(leave_sums)(const struct columns *c, const struct NAME(place) * here,
			     const float *sum, const float *product, bool two, float *partial)
{
	SHARED(float, sums, KERNEL_THREADS *LANES);
	SHARED(float, products, KERNEL_THREADS *LANES);
	uint32_t line = c->width * LANES, at = here->line * line + here->column * LANES;

	if (here->line < c->height) {
		EACH(i, LANES)
			sums[at + i] = sum[i];
		if (two) {
			EACH(i, LANES)
				products[at + i] = product[i];
		}
	}
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < line; i += KERNEL_THREADS) {
		uint32_t channel = blockIdx.y * line + i;
		uint64_t block = blockIdx.x;
		float s = 0, p = 0;

		if (channel >= c->channels)
			continue;
		for (uint32_t row = 0; row < c->height; row++) {
			s += sums[row * line + i];
			p += two ? products[row * line + i] : 0;
		}
		partial[block * c->channels + channel] = s;
		if (two)
			partial[(c->blocks_x + block) * c->channels + channel] = p;
	}
}

#include KERNEL_BODY

#undef LANES
#undef NAME
