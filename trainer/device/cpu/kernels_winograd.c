/*
 * Winograd's convolutions F(4 x 4, 3 x 3): 16 results of a 3 x 3 window for 36 products instead of
 * 144 (Winograd 1980; for networks Lavin and Gray, "Fast Algorithms for Convolutional Neural
 * Networks", 2015). Compiled once per instruction set, as kernels.c.
 *
 * Y = A' ((G g G') . (B' d B)) A for a window g, a patch d of 6 x 6 and results Y of 4 x 4. The
 * matrices are Toom and Cook's for evaluation at 0, +-P, +-Q and infinity. Those of the paper, P =
 * 1 and Q = 2, lose two bits; with 3/4 and 3/2 the error is 1.7 times that of the plain sum in the
 * root mean square (256 channels of normal numbers). The adjoint of the same products is the
 * gradient of g: G' ((A dY A') . (B' d B)) G.
 */
#include "trainer/device/cpu/tile.h"

#define P 0.75f
#define Q 1.5f

_Static_assert(WINOGRAD_CHANNELS % LANES == 0, "blocks are whole vectors");

/* Scale factors of the rows of G for the points, and for 0. */
static const float scale_p = 1 / (2 * P * P * (P * P - Q * Q));
static const float scale_q = 1 / (2 * Q * Q * (Q * Q - P * P));
static const float scale_0 = 1 / (P * P * Q * Q);

/* v = B' d */
INLINE void input_line(const lanes d[6], lanes v[6])
{
	lanes even_p = d[4] - Q * Q * d[2], odd_p = P * (d[3] - Q * Q * d[1]);
	lanes even_q = d[4] - P * P * d[2], odd_q = Q * (d[3] - P * P * d[1]);

	v[0] = d[4] - (P * P + Q * Q) * d[2] + P * P * Q * Q * d[0];
	v[1] = even_p + odd_p;
	v[2] = even_p - odd_p;
	v[3] = even_q + odd_q;
	v[4] = even_q - odd_q;
	v[5] = d[5] - (P * P + Q * Q) * d[3] + P * P * Q * Q * d[1];
}

/* y = A' m */
INLINE void output_line(const lanes m[6], lanes y[4])
{
	lanes even_p = m[1] + m[2], odd_p = P * (m[1] - m[2]);
	lanes even_q = m[3] + m[4], odd_q = Q * (m[3] - m[4]);

	y[0] = m[0] + even_p + even_q;
	y[1] = odd_p + odd_q;
	y[2] = P * P * even_p + Q * Q * even_q;
	y[3] = P * P * odd_p + Q * Q * odd_q + m[5];
}

/* z = A y, the gradient's transform */
INLINE void gradient_line(const lanes y[4], lanes z[6])
{
	lanes even_p = y[0] + P * P * y[2], odd_p = P * (y[1] + P * P * y[3]);
	lanes even_q = y[0] + Q * Q * y[2], odd_q = Q * (y[1] + Q * Q * y[3]);

	z[0] = y[0];
	z[1] = even_p + odd_p;
	z[2] = even_p - odd_p;
	z[3] = even_q + odd_q;
	z[4] = even_q - odd_q;
	z[5] = y[3];
}

/* u = G g */
INLINE void weights_line(const lanes g[3], lanes u[6])
{
	lanes even_p = g[0] + P * P * g[2], odd_p = P * g[1];
	lanes even_q = g[0] + Q * Q * g[2], odd_q = Q * g[1];

	u[0] = scale_0 * g[0];
	u[1] = scale_p * (even_p + odd_p);
	u[2] = scale_p * (even_p - odd_p);
	u[3] = scale_q * (even_q + odd_q);
	u[4] = scale_q * (even_q - odd_q);
	u[5] = g[2];
}

/* g = G' u */
INLINE void weights_gradient_line(const lanes u[6], lanes g[3])
{
	lanes even_p = scale_p * (u[1] + u[2]), odd_p = scale_p * (u[1] - u[2]);
	lanes even_q = scale_q * (u[3] + u[4]), odd_q = scale_q * (u[3] - u[4]);

	g[0] = scale_0 * u[0] + even_p + even_q;
	g[1] = P * odd_p + Q * odd_q;
	g[2] = P * P * even_p + Q * Q * even_q + u[5];
}

/* Computes L x L' for the line's matrix L, from [in][in] to [out][out] blocks of channels. */
#define TRANSFORM(name, in, out)                                                                   \
	static void name(struct winograd_array from, struct winograd_array to)                     \
	{                                                                                          \
		for (size_t lane = 0; lane < WINOGRAD_CHANNELS; lane += LANES) {                   \
			lanes half[out][in];                                                       \
                                                                                                   \
			for (int j = 0; j < in; j++) {                                             \
				lanes x[in], l[out];                                               \
                                                                                                   \
				for (int i = 0; i < in; i++)                                       \
					x[i] = load(from.v + i * from.row + j * from.column +      \
						    lane);                                         \
				name##_line(x, l);                                                 \
				for (int i = 0; i < out; i++)                                      \
					half[i][j] = l[i];                                         \
			}                                                                          \
			for (int i = 0; i < out; i++) {                                            \
				lanes l[out];                                                      \
                                                                                                   \
				name##_line(half[i], l);                                           \
				for (int j = 0; j < out; j++)                                      \
					store(to.v + i * to.row + j * to.column + lane, l[j]);     \
			}                                                                          \
		}                                                                                  \
	}

TRANSFORM(input, 6, 6)
TRANSFORM(output, 6, 4)
TRANSFORM(gradient, 4, 6)
TRANSFORM(weights, 3, 6)
TRANSFORM(weights_gradient, 6, 3)

void KERNELS_NAMED(winograd)(enum winograd_transform transform, struct winograd_array from,
			     struct winograd_array to)
{
	switch (transform) {
	case WINOGRAD_INPUT:
		input(from, to);
		break;
	case WINOGRAD_OUTPUT:
		output(from, to);
		break;
	case WINOGRAD_GRADIENT:
		gradient(from, to);
		break;
	case WINOGRAD_WEIGHTS:
		weights(from, to);
		break;
	case WINOGRAD_WEIGHTS_GRADIENT:
		weights_gradient(from, to);
		break;
	}
}

/*
 * Rows of b per block, so that a tile's columns of b fit the L1 cache: 32 KiB with AVX-512, else 16
 * KiB.
 */
#define DEPTH (LANES == 16 ? 128 : 256)

/* Processes adjacent columns of b, in tiles of `vectors`. */
INLINE void product_columns(const struct product_args *p, size_t column, const int vectors)
{
	/*
	 * distance in floats between consecutive vectors of b: in a panel, or in consecutive panels
	 * if a panel is one vector
	 */
	size_t b_stride = LANES < PRODUCT_PANEL ? LANES : p->b_panel;
	size_t panel = column / PRODUCT_PANEL, within = column % PRODUCT_PANEL;

	for (size_t k = 0; k < p->depth; k += DEPTH) {
		struct factor b = {p->b + panel * p->b_panel + k * PRODUCT_PANEL + within, b_stride,
				   PRODUCT_PANEL};
		size_t depth = size_min(p->depth - k, DEPTH);

		for (size_t i = 0; i < p->rows; i += TILE_ROWS) {
			struct factor a = {p->a + i * p->a_row + k * p->a_step, p->a_row,
					   p->a_step};

			tile(a, size_min(p->rows - i, TILE_ROWS), b, depth,
			     p->c + i * p->c_row + column, p->c_row, vectors, p->adds || k);
		}
	}
}

void KERNELS_NAMED(product)(const struct product_args *args)
{
	size_t column = 0, columns = args->panels * PRODUCT_PANEL;

	for (; column + TILE_VECTORS * LANES <= columns; column += TILE_VECTORS * LANES)
		product_columns(args, column, TILE_VECTORS);
#if TILE_VECTORS > 2 /* the last tile may have fewer vectors */
	switch ((columns - column) / LANES) {
	case 3:
		product_columns(args, column, 3);
		break;
	case 2:
		product_columns(args, column, 2);
		break;
	case 1:
		product_columns(args, column, 1);
		break;
	}
#endif
}
