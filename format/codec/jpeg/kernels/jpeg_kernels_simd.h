/*
 * The kernels of jpeg_kernels.h on vectors of 128-bit lanes, one block or sixteen pixels per lane.
 * jpeg_kernels_avx2.c and jpeg_kernels_avx512.c include this file at their end, after defining the
 * code that differs.
 */
/* An unaligned word. */
struct __attribute__((packed, may_alias)) word {
	uint16_t value;
};

/*
 * Index of pixel p in a lane of sixteen bytes that were packed from words of even and of odd
 * pixels.
 */
#define PLACE(p) ((p) % 2 * 8 + (p) / 2)

/* Pairs of 16-bit constants for pmaddwd. */
static inline VECTOR pair(int low, int high)
{
	return V(set1_epi32)((int)((uint32_t)(uint16_t)low | (uint32_t)(uint16_t)high << 16));
}

/* One dimension of the inverse DCT, without the final shift. See idct_line() in jpeg_kernels.c. */
static inline void idct_half(const struct pairs *in, VECTOR round, VECTOR out[8])
{
	VECTOR p0 = multiply_add(round, in->x04, pair(8192, 8192));
	VECTOR p1 = multiply_add(round, in->x04, pair(8192, -8192));
#ifdef __AVX512VNNI__
	VECTOR even[4] = {multiply_add(p0, in->x26, pair(10703, 4433)),
			  multiply_add(p1, in->x26, pair(4433, -10704)),
			  multiply_add(p1, in->x26, pair(-4433, 10704)),
			  multiply_add(p0, in->x26, pair(-10703, -4433))};
#else
	VECTOR p2 = V(madd_epi16)(in->x26, pair(4433, -10704));
	VECTOR p3 = V(madd_epi16)(in->x26, pair(10703, 4433));
	VECTOR even[4] = {V(add_epi32)(p0, p3), V(add_epi32)(p1, p2), V(sub_epi32)(p1, p2),
			  V(sub_epi32)(p0, p3)};
#endif
	VECTOR odd[4];

	odd[0] = multiply_add(V(madd_epi16)(in->x13, pair(11363, 9633)), in->x57, pair(6437, 2260));
	odd[1] = multiply_add(V(madd_epi16)(in->x13, pair(9633, -2259)), in->x57,
			      pair(-11362, -6436));
	odd[2] =
		multiply_add(V(madd_epi16)(in->x13, pair(6437, -11362)), in->x57, pair(2261, 9633));
	odd[3] = multiply_add(V(madd_epi16)(in->x13, pair(2260, -6436)), in->x57,
			      pair(9633, -11363));
	for (int i = 0; i < 4; i++) {
		out[i] = V(add_epi32)(even[i], odd[i]);
		out[7 - i] = V(sub_epi32)(even[i], odd[i]);
	}
}

/*
 * Transposes four packed lines of words, one block per lane; they come from the two halves of
 * idct_half(). join_columns() interleaves words of two lines: columns 0 and 4 and columns 2 and 6,
 * then columns 1 and 3 and columns 5 and 7.
 */
static inline __attribute__((always_inline)) struct pairs transpose_pairs(const VECTOR x[4])
{
	VECTOR b[4];

	join_columns(x[0], x[1], b);
	join_columns(x[2], x[3], b + 2);
	return (struct pairs){
		V(unpacklo_epi64)(b[0], b[2]),
		V(unpackhi_epi64)(b[0], b[2]),
		V(unpacklo_epi64)(b[1], b[3]),
		V(unpackhi_epi64)(b[1], b[3]),
	};
}

/* Runs the second dimension of the inverse DCT for four lines of each block. */
static inline __attribute__((always_inline)) void finish_lines(const VECTOR x[4], uint8_t *output,
							       size_t stride)
{
	struct pairs in = transpose_pairs(x);
	VECTOR columns[8], bytes[2], lines[2];

	/* Add 128 here: with 16-bit words and these factors, the 32-bit sums do not overflow. */
	idct_half(&in, V(set1_epi32)((1 << 17) + (128 << 18)), columns);
	for (int i = 0; i < 2; i++) {
		const VECTOR *four = columns + 4 * i;

		bytes[i] = V(packus_epi16)(shift_18(four[0], four[1]), shift_18(four[2], four[3]));
	}
	columns_to_lines(bytes, lines);
	store_lines(lines[0], output, stride);
	store_lines(lines[1], output + 2 * stride, stride);
}

static inline __attribute__((always_inline)) void idct_group_8(const int16_t *const blocks[LANES],
							       const int16_t quant[64],
							       uint8_t *output, size_t stride)
{
	const VECTOR round = V(set1_epi32)(1 << 10);
	VECTOR a[8], b[8], x[8];
	struct pairs in[2];

	load_pairs(blocks, quant, in);
	idct_half(&in[0], round, a);
	idct_half(&in[1], round, b);
	for (int i = 0; i < 8; i++)
		x[i] = V(packs_epi32)(V(srai_epi32)(a[i], 11), V(srai_epi32)(b[i], 11));
	finish_lines(x, output, stride);
	finish_lines(x + 4, output + 4 * stride, stride);
}

/* Like idct_half(), to four outputs. See idct_line_4(). */
static inline void idct_half_4(const struct pairs *in, int shift, VECTOR out[4])
{
	VECTOR p0 = multiply_add(V(set1_epi32)(1 << (shift - 1)), in->x04, pair(16384, 0));
	VECTOR p1 = V(madd_epi16)(in->x26, pair(15137, -6270));
	VECTOR outer = multiply_add(V(madd_epi16)(in->x13, pair(20995, 7373)), in->x57,
				    pair(-4926, -4176));
	VECTOR inner = multiply_add(V(madd_epi16)(in->x13, pair(8697, -17799)), in->x57,
				    pair(11893, -1730));
	VECTOR sum = V(add_epi32)(p0, p1), difference = V(sub_epi32)(p0, p1);

	out[0] = V(srai_epi32)(V(add_epi32)(sum, outer), shift);
	out[1] = V(srai_epi32)(V(add_epi32)(difference, inner), shift);
	out[2] = V(srai_epi32)(V(sub_epi32)(difference, inner), shift);
	out[3] = V(srai_epi32)(V(sub_epi32)(sum, outer), shift);
}

static inline __attribute__((always_inline)) void idct_group_4(const int16_t *const blocks[LANES],
							       const int16_t quant[64],
							       uint8_t *output, size_t stride)
{
	const VECTOR order = spread_bytes(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
	struct pairs in[2];
	VECTOR a[4], b[4], bytes;

	load_pairs(blocks, quant, in);
	idct_half_4(&in[0], 12, a);
	idct_half_4(&in[1], 12, b);
	for (int i = 0; i < 4; i++)
		a[i] = V(packs_epi32)(a[i], b[i]);
	in[0] = transpose_pairs(a);
	idct_half_4(&in[0], 19, a); /* a[i] is now column i */
	bytes = V(packs_epi16)(V(packs_epi32)(a[0], a[1]), V(packs_epi32)(a[2], a[3]));
	store_fours(V(shuffle_epi8)(SI(xor)(bytes, V(set1_epi8)((char)0x80)), order), output,
		    stride);
}

/* The inverse DCT to 2 x 2 samples. See idct_2(). */
static inline __attribute__((always_inline)) void idct_group_2(const int16_t *const blocks[LANES],
							       const int16_t quant[64],
							       uint8_t *output, size_t stride)
{
	const VECTOR round = V(set1_epi32)(1 << 12), low = pair(29692, -10426),
		     high = pair(6967, -5906);
	const VECTOR both = V(unpacklo_epi32)(low, high), every_other = spread_words(0, -1, 0, -1);
	const VECTOR minus = spread_words(0, 0, -1, -1);
	struct odd_pairs in = load_odd_pairs(blocks, quant);
	VECTOR column;

	VECTOR odd = multiply_add(V(madd_epi16)(in.x13, low), in.x57, high);
	VECTOR even = V(sub_epi32)(round, V(madd_epi16)(in.x0, pair(-32768, 0)));
	VECTOR lines = V(packs_epi32)(V(srai_epi32)(V(add_epi32)(even, odd), 13),
				      V(srai_epi32)(V(sub_epi32)(even, odd), 13));
	/* Each line has column 0 twice. */
	odd = V(madd_epi16)(in.column, both);
	odd = V(add_epi32)(odd, V(shuffle_epi32)(odd, 0xb1));
	odd = V(sub_epi32)(SI(xor)(odd, minus), minus);
	even = V(sub_epi32)(round, V(madd_epi16)(in.x0, pair(0, -32768)));
	column = V(srai_epi32)(V(add_epi32)(even, odd), 13);
	odd = V(madd_epi16)(lines, both);
	odd = V(add_epi32)(odd, V(shuffle_epi32)(odd, 0xb1));
	odd = V(sub_epi32)(SI(xor)(odd, every_other), every_other);
	even = V(add_epi32)(V(slli_epi32)(column, 15), V(set1_epi32)(1 << 19));
	store_twos(V(srai_epi32)(V(add_epi32)(even, odd), 20), output, stride);
}

typedef void idct_group(const int16_t *const blocks[LANES], const int16_t quant[64],
			uint8_t *output, size_t stride);

static inline __attribute__((always_inline)) void
idct_groups(idct_group *group, unsigned size, const int16_t *coefficients,
	    const uint32_t *block_indexes, uint32_t blocks, const int16_t quant[64],
	    uint8_t *output, size_t stride)
{
	const int16_t *lanes[LANES];

	for (uint32_t at = 0; at < blocks; at += LANES, output += size * LANES) {
		for (uint32_t i = 0; i < LANES; i++)
			lanes[i] = coefficients +
				   64 * (size_t)block_indexes[at + i < blocks ? at + i : at];
		group(lanes, quant, output, stride);
	}
}

static void idct_8(const int16_t *coefficients, const uint32_t *block_indexes, uint32_t blocks,
		   const int16_t quant[64], uint8_t *output, size_t stride)
{
	idct_groups(idct_group_8, 8, coefficients, block_indexes, blocks, quant, output, stride);
}

static void idct_4(const int16_t *coefficients, const uint32_t *block_indexes, uint32_t blocks,
		   const int16_t quant[64], uint8_t *output, size_t stride)
{
	idct_groups(idct_group_4, 4, coefficients, block_indexes, blocks, quant, output, stride);
}

static void idct_2(const int16_t *coefficients, const uint32_t *block_indexes, uint32_t blocks,
		   const int16_t quant[64], uint8_t *output, size_t stride)
{
	idct_groups(idct_group_2, 2, coefficients, block_indexes, blocks, quant, output, stride);
}

#ifndef OWN_SHUFFLES
static size_t unstuff(const uint8_t *data, size_t size, uint8_t *output, size_t *ret_read)
{
	size_t at = 0, done = 0, read;

	while (size - at >= 16 * LANES) {
		VECTOR bytes = load(data + at);
		uint64_t hits = find_ff(bytes);
		size_t run = hits ? (size_t)__builtin_ctzll(hits) : 16 * LANES;

		store(output + done, bytes);
		at += run;
		done += run;
		if (!hits)
			continue;
		if (size - at < 2 || data[at + 1] != 0) {
			*ret_read = at;
			return done;
		}
		done++; /* the FF has been stored already */
		at += 2;
	}
	done += jpeg_kernels_c.unstuff(data + at, size - at, output + done, &read);
	*ret_read = at + read;
	return done;
}
#endif

/* Rounds counts up to whole vectors, so that compilers emit no scalar tail loops. */
static inline uint32_t round_up(uint32_t count)
{
	return (count + JPEG_KERNEL_SAMPLES - 1) / JPEG_KERNEL_SAMPLES * JPEG_KERNEL_SAMPLES;
}

static void column_sums(const uint8_t *restrict near, const uint8_t *restrict far,
			uint16_t *restrict sums, uint32_t count)
{
	count = round_up(count);
	for (uint32_t i = 0; i < count; i++)
		sums[i] = (uint16_t)(3 * near[i] + far[i]);
}

static void upsample_v(const uint16_t *restrict sums, uint8_t *restrict output, uint32_t count,
		       uint32_t bias)
{
	count = round_up(count);
	for (uint32_t i = 0; i < count; i++)
		output[i] = (uint8_t)((sums[i] + (uint16_t)bias) >> 2);
}

/* Combines two adjacent samples into one word, which is stored without a shuffle. */
static inline uint16_t join(unsigned even, unsigned odd)
{
	return (uint16_t)(even | odd << 8);
}

static void upsample_h(const uint8_t *restrict input, uint8_t *restrict output, uint32_t count)
{
	const uint8_t *left = input - 1, *right = input + 1;
	struct word *restrict words = (struct word *)output;

	count = round_up(count);
	for (uint32_t i = 0; i < count; i++)
		words[i].value = join((uint16_t)(3 * input[i] + left[i] + 1) >> 2,
				      (uint16_t)(3 * input[i] + right[i] + 2) >> 2);
}

#ifndef OWN_SHUFFLES
/*
 * [o][c]: for each of the bytes 16 * o to 16 * o + 15 of a lane's sixteen pixels, the index in the
 * lane of its value in channel c, or 128 (gives zero) if the byte belongs to another channel.
 */
#define BYTE(n, c)   ((n) % 3 == (c) ? PLACE((n) / 3) : 128)
#define BYTES4(n, c) BYTE(n, c), BYTE(n + 1, c), BYTE(n + 2, c), BYTE(n + 3, c)
#define BYTES16(n, c)                                                                              \
	{                                                                                          \
		BYTES4(n, c), BYTES4(n + 4, c), BYTES4(n + 8, c), BYTES4(n + 12, c)                \
	}
static const uint8_t spread[3][3][16] = {
	{BYTES16(0, 0), BYTES16(0, 1), BYTES16(0, 2)},
	{BYTES16(16, 0), BYTES16(16, 1), BYTES16(16, 2)},
	{BYTES16(32, 0), BYTES16(32, 1), BYTES16(32, 2)},
};
#undef BYTE
#undef BYTES4
#undef BYTES16

static inline void interleave(VECTOR red, VECTOR green, VECTOR blue, uint8_t *output)
{
	VECTOR parts[3];

	for (int i = 0; i < 3; i++) {
		VECTOR r = V(shuffle_epi8)(red, load_for_each_lane(spread[i][0]));
		VECTOR g = V(shuffle_epi8)(green, load_for_each_lane(spread[i][1]));
		VECTOR b = V(shuffle_epi8)(blue, load_for_each_lane(spread[i][2]));

		parts[i] = SI(or)(SI(or)(r, g), b);
	}
	store_by_lane(parts, output);
}

/*
 * Interleaves pixels whose channels are all grey: of the three indexes of each byte, two are 128.
 */
static inline void interleave_grey(VECTOR grey, uint8_t *output)
{
	VECTOR parts[3];

	for (int i = 0; i < 3; i++) {
		VECTOR index =
			SI(xor)(load_for_each_lane(spread[i][0]), load_for_each_lane(spread[i][1]));

		index = SI(xor)(index, load_for_each_lane(spread[i][2]));
		parts[i] = V(shuffle_epi8)(grey, index);
	}
	store_by_lane(parts, output);
}
#endif

/* Samples as words: of the even pixels (0, 2, 4, ..) and of the odd pixels. */
struct halves {
	VECTOR even, odd;
};

static inline struct halves load_halves(const uint8_t *samples)
{
	VECTOR bytes = load(samples);

	return (struct halves){SI(and)(bytes, V(set1_epi16)(255)), V(srli_epi16)(bytes, 8)};
}

/* Loads the column sums of `rows` rows of pixels, one or two. The second row is nearer to far. */
#ifndef OWN_SHUFFLES
static inline VECTOR times_three(VECTOR words)
{
	return V(add_epi16)(V(add_epi16)(words, words), words);
}

static inline void load_sums(const uint8_t *near, const uint8_t *far, const unsigned rows,
			     struct column_sums sums[2])
{
	for (int i = 0; i < 3; i++) {
		VECTOR a = load_words(near + i - 1), b = load_words(far + i - 1);

		sums[0].once[i] = V(add_epi16)(times_three(a), b);
		if (rows > 1)
			sums[1].once[i] = V(add_epi16)(times_three(b), a);
	}
	for (unsigned row = 0; row < rows; row++)
		for (int i = 0; i < 2; i++)
			sums[row].thrice[i] = times_three(sums[row].once[i + 1]);
}
#endif

/* Loads chroma samples and subtracts 128. */
static inline struct halves load_chroma(const uint8_t *samples)
{
	const VECTOR middle = V(set1_epi16)(128);
	struct halves chroma = load_halves(samples);

	return (struct halves){V(sub_epi16)(chroma.even, middle), V(sub_epi16)(chroma.odd, middle)};
}

/* Computes chroma less 128 from column sums; see rgb_hv in jpeg_kernels.h. */
static inline struct halves triangles(const struct column_sums *sums, const bool odd)
{
	const VECTOR even_bias = V(set1_epi16)(8 - 16 * 128),
		     odd_bias = V(set1_epi16)(7 - 16 * 128);
	VECTOR right = V(add_epi16)(V(add_epi16)(sums->thrice[0], sums->once[2]), odd_bias);
	VECTOR left = odd ? V(add_epi16)(sums->thrice[1], sums->once[1])
			  : V(add_epi16)(sums->thrice[0], sums->once[0]);

	left = V(srai_epi16)(V(add_epi16)(left, even_bias), 4);
	right = V(srai_epi16)(right, 4);
	return odd ? (struct halves){right, left} : (struct halves){left, right};
}

/*
 * Converts YCbCr words to RGB words. Uses the 16.16 constants of jpeg_kernels.c without their
 * integer parts, halved for pmulhrsw. A test of all 256 chroma values showed that 13173 rounds like
 * 26345 / 2.
 */
static inline void rgb_half(VECTOR y, VECTOR cb, VECTOR cr, VECTOR out[3])
{
	const VECTOR round = V(set1_epi32)(1 << 15), factors = pair(-22554, 65536 - 46802);
	VECTOR low = multiply_add(round, V(unpacklo_epi16)(cb, cr), factors);
	VECTOR high = multiply_add(round, V(unpackhi_epi16)(cb, cr), factors);

	out[0] = V(add_epi16)(V(add_epi16)(y, cr), V(mulhrs_epi16)(cr, V(set1_epi16)(13173)));
	out[1] = V(add_epi16)(y, V(sub_epi16)(high_words(low, high), cr));
	out[2] = V(add_epi16)(V(add_epi16)(y, V(add_epi16)(cb, cb)),
			      V(mulhrs_epi16)(cb, V(set1_epi16)(-7471)));
}

static inline void rgb_group(const uint8_t *luma, struct halves cb, struct halves cr,
			     uint8_t *output)
{
	struct halves y = load_halves(luma);
	VECTOR even[3], odd[3];

	rgb_half(y.even, cb.even, cr.even, even);
	rgb_half(y.odd, cb.odd, cr.odd, odd);
	interleave(V(packus_epi16)(even[0], odd[0]), V(packus_epi16)(even[1], odd[1]),
		   V(packus_epi16)(even[2], odd[2]), output);
}

static void rgb(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *output,
		uint32_t count)
{
	for (uint32_t at = 0; at < count; at += 16 * LANES, output += 48 * LANES)
		rgb_group(y + at, load_chroma(cb + at), load_chroma(cr + at), output);
}

static inline __attribute__((always_inline)) void
rgb_triangles(const uint8_t *const y[2], const struct jpeg_rows_pair *cb,
	      const struct jpeg_rows_pair *cr, const bool odd, uint8_t *const output[2],
	      uint32_t count, const unsigned rows)
{
	for (uint32_t at = 0; at < count; at += 16 * LANES) {
		struct column_sums cb_sums[2], cr_sums[2];

		load_sums(cb->near + at / 2, cb->far + at / 2, rows, cb_sums);
		load_sums(cr->near + at / 2, cr->far + at / 2, rows, cr_sums);
#pragma GCC unroll 2
		for (unsigned row = 0; row < rows; row++)
			rgb_group(y[row] + at, triangles(&cb_sums[row], odd),
				  triangles(&cr_sums[row], odd), output[row] + 3 * (size_t)at);
	}
}

static void rgb_hv(const uint8_t *const y[2], const struct jpeg_rows_pair *cb,
		   const struct jpeg_rows_pair *cr, bool odd, uint8_t *const output[2],
		   uint32_t count)
{
	if (y[1] && odd)
		rgb_triangles(y, cb, cr, true, output, count, 2);
	else if (y[1])
		rgb_triangles(y, cb, cr, false, output, count, 2);
	else if (odd)
		rgb_triangles(y, cb, cr, true, output, count, 1);
	else
		rgb_triangles(y, cb, cr, false, output, count, 1);
}

static void grey(const uint8_t *y, uint8_t *output, uint32_t count)
{
	for (uint32_t at = 0; at < count; at += 16 * LANES, output += 48 * LANES) {
		struct halves halves = load_halves(y + at);

		interleave_grey(V(packus_epi16)(halves.even, halves.odd), output);
	}
}

const struct jpeg_kernels KERNELS = {
	.name = NAME,
	.zigzag = ZIGZAG,
	.runs = ZIGZAG ? jpeg_lanes_zigzag : jpeg_lanes_natural,
	.checked_runs = ZIGZAG ? jpeg_lanes_zigzag_checked : jpeg_lanes_natural_checked,
	.quant_order = QUANT_ORDER,
	.unstuff = unstuff,
	.idct = {jpeg_idct_1, idct_2, idct_4, idct_8},
	.column_sums = column_sums,
	.upsample_v = upsample_v,
	.upsample_h = upsample_h,
	.rgb = rgb,
	.rgb_hv = rgb_hv,
	.grey = grey,
};
