/*
 * Every convolution pattern against naive loops in double precision that share no code with the
 * engines. Linked with the emulated engines, and a second time with cuDNN for a device. cuDNN has
 * no plan for some patterns, but in fp16 it has one for every pattern at the shapes of test net.
 */
#include "tests/gpu/emulation/element.h"
#include "tests/unit/trainer/device/engines_test.h"

#include <math.h>

/* x' of the fixture, [n][h][w][c] */
static double *reference_prologue(const struct fixture *f)
{
	const union operands *o = &f->o;
	enum conv_prologue prologue = f->problem.prologue;
	double *made = zeroes(o->x.count);

	for (size_t i = 0; i < o->x.count; i++) {
		size_t c = i % f->problem.c;
		double v = o->x.v[i];

		if (prologue != CONV_PLAIN)
			v = o->scale.v[c] * v + o->bias.v[c];
		if (prologue == CONV_SCALE_BIAS_ADD_RELU)
			v += o->residual.v[i];
		if (prologue == CONV_DUAL_SCALE_BIAS_ADD_RELU)
			v += o->scale2.v[c] * o->residual.v[i] + o->bias2.v[c];
		if (prologue != CONV_PLAIN)
			v = element_round(f->problem.element, (float)fmax(v, 0));
		made[i] = v;
	}
	return made;
}

static void add_to_x(void *context, const struct product *product)
{
	struct sums *sums = context;

	sums->to[product->x] += sums->y[product->y] * sums->w[product->w];
}

static void add_to_w(void *context, const struct product *product)
{
	struct sums *sums = context;

	sums->to[product->w] += sums->y[product->y] * sums->x[product->x];
}

static void check_forward(struct fixture *f)
{
	const struct conv_problem *problem = &f->problem;
	union operands *o = &f->o;
	double *x = reference_prologue(f), *y = zeroes(o->y.count);
	double *sum = zeroes(problem->k), *squares = zeroes(problem->k);

	if (!compute(f))
		goto out;
	for_each_product(problem, add_to_y, &(struct sums){.x = x, .w = o->w.v, .to = y});
	for (size_t i = 0; i < o->y.count; i++) {
		size_t k = i % problem->k;

		sum[k] += y[i];
		squares[k] += y[i] * y[i];
		if (problem->epilogue == CONV_BIAS)
			y[i] += o->channel_bias.v[k] + (problem->residual ? o->residual.v[i] : 0);
		if (problem->epilogue == CONV_BIAS && problem->activation == DEVICE_RELU)
			y[i] = fmax(y[i], 0);
		if (problem->epilogue == CONV_BIAS && problem->activation == DEVICE_GELU)
			y[i] *= 0.5 * erfc(-y[i] * M_SQRT1_2);
	}
	expect(f, "y", &o->y, y);
	if (problem->prologue >= CONV_SCALE_BIAS_ADD_RELU)
		expect(f, "activated", &o->activated, x);
	if (problem->epilogue == CONV_STATISTICS) {
		expect(f, "sum", &o->sum, sum);
		expect(f, "squares", &o->squares, squares);
	}
out:
	free(squares);
	free(sum);
	free(y);
	free(x);
}

/* Checks the vectors of one norm against the formulas in conv.h. */
static void check_norm(const struct fixture *f, const double *dz, const struct operand *raw,
		       const struct operand *mean)
{
	/* mean, deviation, gamma and so on are consecutive in union operands */
	const struct operand *deviation = mean + 1, *gamma = mean + 2, *outputs = mean + 4;
	static const char *const names[] = {"dgamma", "dbeta", "a", "b", "d"};
	size_t channels = f->problem.c, m = raw->count / channels;
	double *made[5];

	for (size_t i = 0; i < 5; i++)
		made[i] = zeroes(channels);
	for (size_t i = 0; i < raw->count; i++) {
		size_t c = i % channels;

		made[0][c] += dz[i] * (raw->v[i] - mean->v[c]) * deviation->v[c];
		made[1][c] += dz[i];
	}
	for (size_t c = 0; c < channels; c++) {
		made[2][c] = gamma->v[c] * deviation->v[c];
		made[3][c] = -made[2][c] * deviation->v[c] * made[0][c] / (double)m;
		made[4][c] = -made[2][c] * made[1][c] / (double)m - made[3][c] * mean->v[c];
	}
	for (size_t i = 0; i < 5; i++) {
		expect(f, names[i], &outputs[i], made[i]);
		free(made[i]);
	}
}

static void check_data(struct fixture *f)
{
	const struct conv_problem *problem = &f->problem;
	union operands *o = &f->o;
	double *x = zeroes(o->x.count);

	if (!compute(f))
		goto out;
	for_each_product(problem, add_to_x, &(struct sums){.y = o->y.v, .w = o->w.v, .to = x});
	for (size_t i = 0; i < o->x.count; i++) {
		size_t c = i % problem->c;

		if (problem->epilogue == CONV_ADD || problem->residual)
			x[i] += o->residual.v[i];
		if (problem->epilogue != CONV_RELU_NORM)
			continue;
		double z = o->gamma.v[c] * (o->raw.v[i] - o->mean.v[c]) * o->deviation.v[c] +
			   o->beta.v[c];
		if (problem->shortcut == CONV_SHORTCUT)
			z += o->shortcut.v[i];
		if (problem->shortcut == CONV_SHORTCUT_NORM)
			z += o->gamma2.v[c] * (o->raw2.v[i] - o->mean2.v[c]) * o->deviation2.v[c] +
			     o->beta2.v[c];
		/* rounded to the element type, as the engine stores it, so that the sums match */
		x[i] = z > 0 ? element_round(problem->element, (float)x[i]) : 0;
	}
	expect(f, "dx", &o->x, x);
	if (problem->epilogue == CONV_RELU_NORM)
		check_norm(f, x, &o->raw, &o->mean);
	if (problem->shortcut == CONV_SHORTCUT_NORM)
		check_norm(f, x, &o->raw2, &o->mean2);
out:
	free(x);
}

static void check_weights(struct fixture *f)
{
	union operands *o = &f->o;
	double *x = reference_prologue(f), *w = zeroes(o->w.count);

	if (compute(f)) {
		for_each_product(&f->problem, add_to_w,
				 &(struct sums){.x = x, .y = o->y.v, .to = w});
		expect(f, "dw", &o->w, w);
	}
	free(w);
	free(x);
}

/* n h w c k r s stride pad */
static const uint32_t shapes[][CONV_SHAPE] = {
	{2, 5, 7, 3, 5, 3, 3, 1, 1},
	{1, 6, 5, 4, 8, 3, 3, 2, 1},
	{3, 7, 7, 5, 3, 1, 1, 1, 0},
	{2, 8, 7, 3, 4, 1, 1, 2, 0},
	{1, 11, 9, 3, 6, 7, 7, 2, 3},
	{2, 4, 5, 2, 3, 3, 3, 2, 0},
	{1, 9, 10, 4, 4, 5, 3, 3, 2},
	{1, 3, 3, 2, 2, 3, 3, 1, 2},
	{1, 1, 1, 7, 9, 1, 1, 1, 0},
	{2, 3, 3, 1, 1, 3, 3, 1, 1},
	/*
	 * more padding at the bottom and right; groups: with several channels each, with one, with
	 * one input and several output channels
	 */
	{2, 5, 4, 3, 4, 2, 2, 1, 0, 1},
	{2, 6, 5, 4, 2, 4, 4, 2, 1, 1},
	{2, 5, 7, 6, 4, 3, 3, 1, 1, 0, 2},
	{2, 6, 5, 5, 5, 3, 3, 2, 1, 0, 5},
	{1, 5, 5, 3, 6, 2, 2, 1, 0, 1, 3},
};

typedef void (*check_function)(struct fixture *f);

static void check(const struct conv_problem *problem)
{
	static const check_function checks[] = {check_forward, check_data, check_weights};
	struct fixture f;

	open_fixture(&f, problem);
	checks[problem->direction](&f);
	close_fixture(&f);
}

static void each_shape(enum conv_direction direction, void (*function)(struct conv_problem problem))
{
	/*
	 * on a device only three shapes, since cuDNN takes about a second to compile a fused
	 * pattern for such a shape
	 */
	size_t count = emulated ? sizeof(shapes) / sizeof(shapes[0]) : 3;

	for (enum cuda_element element = CUDA_F32; element <= CUDA_BF16; element++)
		for (size_t i = 0; i < count; i++)
			function(problem_of(shapes[i], direction, element));
}

static void forward_patterns(struct conv_problem problem)
{
	for (int prologue = CONV_PLAIN; prologue <= CONV_DUAL_SCALE_BIAS_ADD_RELU; prologue++) {
		problem.prologue = (enum conv_prologue)prologue;
		problem.epilogue = CONV_STORE;
		check(&problem);
		problem.epilogue = CONV_STATISTICS;
		check(&problem);
	}
	problem.prologue = CONV_PLAIN;
	problem.epilogue = CONV_BIAS;
	for (int i = 0; i < 6; i += emulated ? 1 : 3) {
		problem.activation = (enum device_activation)(i / 2);
		problem.residual = i % 2;
		check(&problem);
	}
}

static void data_patterns(struct conv_problem problem)
{
	check(&problem);
	problem.epilogue = CONV_ADD;
	check(&problem);
	problem.epilogue = CONV_RELU_NORM;
	for (int i = 0; i < 6; i++) {
		problem.shortcut = (enum conv_shortcut)(i / 2);
		problem.residual = i % 2;
		check(&problem);
	}
}

static void weight_patterns(struct conv_problem problem)
{
	check(&problem);
	problem.prologue = CONV_SCALE_BIAS_RELU;
	check(&problem);
	problem.gradient = CUDA_F32;
	check(&problem);
}

TEST(forward)
{
	each_shape(CONV_FORWARD, forward_patterns);
}

TEST(data_gradient)
{
	each_shape(CONV_DATA, data_patterns);
}

TEST(weight_gradient)
{
	each_shape(CONV_WEIGHTS, weight_patterns);
}

/*
 * The patterns of a net, at shapes that cuDNN has engines for: fp16 fused on GPUs of compute
 * capability 9.0.
 */
TEST(net)
{
	static const uint32_t net[][CONV_SHAPE] = {
		{2, 9, 10, 64, 64, 3, 3, 1, 1},
		{2, 9, 10, 64, 128, 1, 1, 1, 0},
	};
	bool hopper = gpu.compute_major == 9;

	for (size_t i = 0; i < sizeof(net) / sizeof(net[0]); i++) {
		bool pointwise = net[i][5] == 1;
		struct conv_problem problem = problem_of(net[i], CONV_FORWARD, CUDA_F16);
		enum conv_prologue last =
			pointwise ? CONV_DUAL_SCALE_BIAS_ADD_RELU : CONV_SCALE_BIAS_RELU;

		unplanned = 0;
		problem.epilogue = CONV_STATISTICS;
		for (int prologue = CONV_PLAIN; prologue <= (int)last; prologue++) {
			problem.prologue = (enum conv_prologue)prologue;
			check(&problem);
		}
		problem = problem_of(net[i], CONV_WEIGHTS, CUDA_F16);
		check(&problem);
		problem.prologue = CONV_SCALE_BIAS_RELU;
		check(&problem);
		problem = problem_of(net[i], CONV_DATA, CUDA_F16);
		data_patterns(problem);
		if (hopper)
			assert_int_equal(unplanned, 0);
	}
}

TEST(problems)
{
	static const uint32_t shape[CONV_SHAPE] = {256, 56, 56, 64, 128, 3, 3, 2, 1};
	struct conv_problem problem = problem_of(shape, CONV_FORWARD, CUDA_F16);
	const double products = 256. * 28 * 28 * 128 * 3 * 3 * 64;
	const uint64_t x = 256 * 56 * 56 * 64 * 2, y = 256 * 28 * 28 * 128 * 2,
		       w = 128 * 9 * 64 * 2;
	struct conv_arguments arguments = {0};
	char name[160];

	problem.prologue = CONV_SCALE_BIAS_RELU;
	problem.epilogue = CONV_STATISTICS;
	conv_problem_name(&problem, name, sizeof(name));
	assert_string_equal(name, "forward 3x3/2 64>128 56x56 n256 f16 scale-bias-relu statistics");
	assert_true(conv_problem_flops(&problem) == 2 * products);
	assert_int_equal(conv_problem_bytes(&problem), x + y + w + 2 * 64 * 2 + 2 * 128 * 4);
	assert_string_equal(conv_arguments_missing(&problem, &arguments), "x");
	problem.direction = CONV_DATA;
	assert_int_equal(conv_problem_check(&problem), -EINVAL);
	problem.prologue = CONV_PLAIN;
	problem.epilogue = CONV_RELU_NORM;
	problem.residual = true;
	problem.shortcut = CONV_SHORTCUT;
	assert_int_equal(conv_problem_check(&problem), 0);
	assert_int_equal(conv_problem_bytes(&problem), 4 * x + y + w + 9 * 64 * 4);
	conv_problem_name(&problem, name, sizeof(name));
	assert_string_equal(name,
			    "data gradient 3x3/2 64>128 56x56 n256 f16 relu-norm-add-shortcut");
	problem.p++;
	assert_int_equal(conv_problem_check(&problem), -EINVAL);
	problem.p--;
	problem.direction = CONV_WEIGHTS;
	assert_int_equal(conv_problem_check(&problem), -EINVAL);
}

/* Missing operands are reported before anything is queued. */
TEST(missing)
{
	const struct conv_engines *conv = &engines.conv;
	static const uint32_t shape[CONV_SHAPE] = {2, 9, 10, 64, 64, 3, 3, 1, 1};
	struct conv_problem problem = problem_of(shape, CONV_FORWARD, CUDA_F16);
	struct conv_plan_info info;
	struct conv_arguments arguments;
	struct conv_plan *plan;
	struct fixture f;

	open_fixture(&f, &problem);
	assert_int_equal(conv->plan(conv->state, &problem, &plan), 0);
	conv->plan_info(plan, &info);
	arguments = arguments_of(&f, &arguments);
	arguments.w = NULL;
	assert_int_equal(conv->execute(conv->state, plan, &arguments, f.stream), -EINVAL);
	assert_non_null(strstr(conv->error(conv->state), "without w"));
	arguments = arguments_of(&f, &arguments);
	arguments.y = (char *)arguments.y + 8;
	assert_int_equal(conv->execute(conv->state, plan, &arguments, f.stream), -EINVAL);
	assert_non_null(strstr(conv->error(conv->state), "without y, aligned"));
	arguments = arguments_of(&f, NULL);
	if (info.workspace_bytes) {
		assert_int_equal(conv->execute(conv->state, plan, &arguments, f.stream), -EINVAL);
		assert_non_null(strstr(conv->error(conv->state), "workspace"));
	}
	conv->plan_free(plan);
	close_fixture(&f);
}

int main(void)
{
	return run_with_engines();
}
