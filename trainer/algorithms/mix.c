#include "trainer/algorithms/mix.h"

#include "format/base/portable_math.h"
#include "format/base/random.h"

#include <math.h>

bool mix_is_on(const struct recipe_train *recipe)
{
	return (recipe->mixup > 0 || recipe->cutmix > 0) && recipe->mix_prob > 0;
}

uint32_t mix_parts_after(const struct recipe_train *recipe, uint32_t parts, uint32_t share)
{
	uint32_t unit = mix_is_on(recipe) ? 2 : 1;
	for (uint32_t next = 2 * parts; next <= share; next++)
		if (share % (next * unit) == 0)
			return next;
	return 0;
}

/* Uniform in (0, 1). */
static double mix_uniform(struct random_stream *stream)
{
	return (random_u32(stream) + 0.5) * 0x1p-32;
}

/* Standard normal, by Marsaglia's polar method. */
static double mix_normal(struct random_stream *stream)
{
	double u, v, square;
	do {
		u = 2 * mix_uniform(stream) - 1;
		v = 2 * mix_uniform(stream) - 1;
		square = u * u + v * v;
	} while (square >= 1);
	return u * sqrt(-2 * portable_log(square) / square);
}

/*
 * Returns the logarithm of a Gamma(alpha, 1) variate (Marsaglia and Tsang 2000, "A Simple Method
 * for Generating Gamma Variables"). For alpha < 1, multiplies a Gamma(alpha + 1, 1) variate by
 * pow(U, 1 / alpha), with U uniform in (0, 1). The product may underflow, hence the logarithm.
 */
static double mix_log_gamma(struct random_stream *stream, double alpha)
{
	double boost = alpha < 1 ? portable_log(mix_uniform(stream)) / alpha : 0;
	double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / sqrt(9 * d);
	for (;;) {
		double x = mix_normal(stream), v = 1 + c * x;
		if (v <= 0)
			continue;
		v = v * v * v;
		if (portable_log(mix_uniform(stream)) <
		    0.5 * x * x + d - d * v + d * portable_log(v))
			return portable_log(d * v) + boost;
	}
}

/* Returns a Beta(alpha, alpha) variate, X / (X + Y), where X and Y are Gamma(alpha, 1) variates. */
static double mix_beta(struct random_stream *stream, double alpha)
{
	double x = mix_log_gamma(stream, alpha), y = mix_log_gamma(stream, alpha);
	return 1 / (1 + portable_exp(fmin(fmax(y - x, -700), 700)));
}

static uint32_t mix_clip(int64_t position, uint32_t size)
{
	return position < 0 ? 0 : position > size ? size : (uint32_t)position;
}

double mix_box(const struct mix_batch *batch, double share, uint32_t row, uint32_t column,
	       struct device_blend *ret_blend)
{
	double ratio = sqrt(1 - share);
	int64_t height = (int64_t)(batch->height * ratio), width = (int64_t)(batch->width * ratio);
	struct device_blend *blend = ret_blend;
	blend->top = mix_clip(row - height / 2, batch->height);
	blend->bottom = mix_clip(row + (height + 1) / 2, batch->height);
	blend->left = mix_clip(column - width / 2, batch->width);
	blend->right = mix_clip(column + (width + 1) / 2, batch->width);
	return 1 - (double)(blend->bottom - blend->top) * (blend->right - blend->left) /
			   ((double)batch->height * batch->width);
}

/* Draws the blend of one sample, except its partner. Returns the weight of the sample's label. */
static double mix_draw_one(const struct recipe_train *recipe, const struct mix_batch *batch,
			   uint64_t number, struct device_blend *ret_blend)
{
	struct random_stream stream;
	random_init(&stream, batch->seed, batch->step, number, RANDOM_MIX);
	bool mixes = mix_uniform(&stream) < recipe->mix_prob;
	bool either = mix_uniform(&stream) < recipe->mix_switch;
	bool cuts = recipe->cutmix > 0 && (!(recipe->mixup > 0) || either);
	*ret_blend = (struct device_blend){.share = 1};
	if (!mixes)
		return 1;
	double share = mix_beta(&stream, cuts ? recipe->cutmix : recipe->mixup);
	if (!cuts) {
		ret_blend->share = (float)share;
		return (double)ret_blend->share;
	}
	uint32_t row = random_below(&stream, batch->height);
	uint32_t column = random_below(&stream, batch->width);
	return mix_box(batch, share, row, column, ret_blend);
}

void mix_draw(const struct recipe_train *recipe, const struct mix_batch *batch,
	      struct device_blend *ret_blends, float *ret_shares)
{
	for (uint32_t i = 0; i < batch->count; i++) {
		uint64_t sample = (uint64_t)batch->first + i;
		uint64_t number = recipe->mix_by == RECIPE_MIX_BY_BATCH  ? 0
				  : recipe->mix_by == RECIPE_MIX_BY_PAIR ? sample / 2
									 : sample;
		ret_shares[i] = (float)mix_draw_one(recipe, batch, number, &ret_blends[i]);
		ret_blends[i].partner = (i % batch->micro) ^ 1;
	}
}
