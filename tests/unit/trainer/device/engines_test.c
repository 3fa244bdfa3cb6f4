#include "tests/unit/trainer/device/engines_test.h"
#include "tests/gpu/emulation/element.h"

const double tolerances[] = {[CUDA_F32] = 2e-6, [CUDA_F16] = 1e-3, [CUDA_BF16] = 8e-3};

struct gpu_properties gpu;
struct engines engines;
bool emulated;
unsigned planned, unplanned;

void operand_store(struct operand *operand)
{
	for (size_t i = 0; i < operand->count; i++) {
		float value = element_round(operand->element, (float)operand->v[i]);

		operand->v[i] = value;
		floats_to_elements(operand->element, &value,
				   (char *)operand->data + i * cuda_element_size(operand->element),
				   1);
	}
}

static size_t bytes_of(const struct operand *operand)
{
	return operand->count * cuda_element_size(operand->element);
}

void operand_free(struct operand *operand)
{
	gpu_free(operand->place);
	free(operand->data);
	free(operand->v);
}

void copy_in(const struct operand *operand, gpu_stream stream)
{
	assert_int_equal(gpu_copy_in(operand->place, operand->data, bytes_of(operand), stream), 0);
}

void copy_out(const struct operand *operand, gpu_stream stream)
{
	assert_int_equal(gpu_copy_out(operand->data, operand->place, bytes_of(operand), stream), 0);
}

struct operand operand_new(size_t count, enum cuda_element element, uint64_t seed, double low,
			   double high)
{
	struct operand operand = {.count = count, .element = element};

	operand.v = calloc(count, sizeof(double));
	operand.data = calloc(count, cuda_element_size(element));
	assert_non_null(operand.v);
	assert_non_null(operand.data);
	assert_int_equal(gpu_allocate(bytes_of(&operand), &operand.place), 0);
	for (size_t i = 0; i < count; i++)
		operand.v[i] = low + (high - low) * uniform(seed, i);
	operand_store(&operand);
	return operand;
}

void open_fixture(struct fixture *f, const struct conv_problem *problem)
{
	enum cuda_element e = problem->element;
	size_t c = problem->c, k = problem->k;
	size_t x = (size_t)problem->n * problem->h * problem->w * c;
	size_t y = (size_t)problem->n * problem->p * problem->q * k;
	size_t w = k * problem->r * problem->s * conv_weight_channels(problem);
	bool weights = problem->direction == CONV_WEIGHTS;
	bool of_y = problem->direction == CONV_FORWARD && problem->epilogue == CONV_BIAS;
	union operands *o = &f->o;

	f->problem = *problem;
	assert_int_equal(conv_problem_check(problem), 0);
	assert_int_equal(gpu_stream_new(&f->stream), 0);
	o->x = operand_new(x, e, 1, -1, 1);
	o->w = operand_new(w, weights ? problem->gradient : e, 2, -1, 1);
	o->y = operand_new(y, e, 3, -1, 1);
	o->scale = operand_new(c, e, 4, -1.5, 1.5);
	o->bias = operand_new(c, e, 5, -0.5, 0.5);
	o->scale2 = operand_new(c, e, 6, -1.5, 1.5);
	o->bias2 = operand_new(c, e, 7, -0.5, 0.5);
	o->residual = operand_new(of_y ? y : x, e, 8, -1, 1);
	o->activated = operand_new(x, e, 9, 7, 8);
	o->channel_bias = operand_new(k, e, 10, -1, 1);
	o->raw = operand_new(x, e, 11, -1, 1);
	o->shortcut = operand_new(x, e, 12, -1, 1);
	o->raw2 = operand_new(x, e, 13, -2, 1);
	for (struct operand *i = &o->sum; i <= &o->squares; i++)
		*i = operand_new(k, CUDA_F32, 14, 7, 8);
	for (struct operand *i = &o->mean; i <= &o->d; i++)
		*i = operand_new(c, CUDA_F32, 15 + (uint64_t)(i - &o->mean), 0.25, 1);
	for (struct operand *i = &o->mean2; i <= &o->d2; i++)
		*i = operand_new(c, CUDA_F32, 30 + (uint64_t)(i - &o->mean2), 0.25, 1);
}

void close_fixture(struct fixture *f)
{
	for (size_t i = 0; i < OPERANDS; i++)
		operand_free(&f->o.list[i]);
	gpu_stream_free(f->stream);
}

struct conv_arguments arguments_of(const struct fixture *f, void *workspace)
{
	const union operands *o = &f->o;

	return (struct conv_arguments){
		.x = o->x.place,
		.w = o->w.place,
		.y = o->y.place,
		.scale = o->scale.place,
		.bias = o->bias.place,
		.scale2 = o->scale2.place,
		.bias2 = o->bias2.place,
		.residual = o->residual.place,
		.activated = o->activated.place,
		.channel_bias = o->channel_bias.place,
		.sum = o->sum.place,
		.squares = o->squares.place,
		.raw = o->raw.place,
		.mean = o->mean.place,
		.deviation = o->deviation.place,
		.gamma = o->gamma.place,
		.beta = o->beta.place,
		.dgamma = o->dgamma.place,
		.dbeta = o->dbeta.place,
		.a = o->a.place,
		.b = o->b.place,
		.d = o->d.place,
		.shortcut = o->shortcut.place,
		.raw2 = o->raw2.place,
		.mean2 = o->mean2.place,
		.deviation2 = o->deviation2.place,
		.gamma2 = o->gamma2.place,
		.beta2 = o->beta2.place,
		.dgamma2 = o->dgamma2.place,
		.dbeta2 = o->dbeta2.place,
		.a2 = o->a2.place,
		.b2 = o->b2.place,
		.d2 = o->d2.place,
		.workspace = workspace,
	};
}

bool compute(struct fixture *f)
{
	const struct conv_engines *conv = &engines.conv;
	struct conv_plan *plan;
	struct conv_plan_info info;
	void *workspace;
	int r = conv->plan(conv->state, &f->problem, &plan);

	if (!emulated && r == -ENOENT) {
		unplanned++;
		return false;
	}
	if (r < 0)
		fail_msg("%s", conv->error(conv->state));
	planned++;
	conv->plan_info(plan, &info);
	assert_int_equal(gpu_allocate(info.workspace_bytes, &workspace), 0);
	struct conv_arguments arguments = arguments_of(f, workspace);
	for (size_t i = 0; i < OPERANDS; i++)
		copy_in(&f->o.list[i], f->stream);
	if (conv->execute(conv->state, plan, &arguments, f->stream) < 0)
		fail_msg("%s", conv->error(conv->state));
	for (size_t i = 0; i < OPERANDS; i++)
		copy_out(&f->o.list[i], f->stream);
	assert_int_equal(gpu_stream_synchronize(f->stream), 0);
	gpu_free(workspace);
	conv->plan_free(plan);
	return true;
}

void expect(const struct fixture *f, const char *what, const struct operand *operand,
	    const double *reference)
{
	float *values = calloc(operand->count, sizeof(float));
	char name[160];

	assert_non_null(values);
	elements_to_floats(operand->element, operand->data, values, operand->count);
	double error = relative_error(values, reference, operand->count);
	free(values);
	conv_problem_name(&f->problem, name, sizeof(name));
	/*
	 * the relative error of the sum is about that of its rounded terms; a device also sums in
	 * another order
	 */
	if (!(error <= (emulated ? 4 : 8) * tolerances[f->problem.element]))
		fail_msg("%s: %s is off by %g", name, what, error);
}

double *zeroes(size_t count)
{
	double *made = calloc(count, sizeof(double));

	assert_non_null(made);
	return made;
}

struct conv_problem problem_of(const uint32_t shape[CONV_SHAPE], enum conv_direction direction,
			       enum cuda_element element)
{
	struct conv_problem problem;

	conv_problem_init(&problem);
	problem.direction = direction;
	problem.element = problem.gradient = element;
	problem.n = shape[0];
	problem.h = shape[1];
	problem.w = shape[2];
	problem.c = shape[3];
	problem.k = shape[4];
	problem.r = shape[5];
	problem.s = shape[6];
	problem.stride = shape[7];
	problem.pad = shape[8];
	problem.pad_extra = shape[9];
	problem.groups = shape[10] ? shape[10] : 1;
	uint32_t pads = 2 * problem.pad + problem.pad_extra;
	problem.p = (problem.h + pads - problem.r) / problem.stride + 1;
	problem.q = (problem.w + pads - problem.s) / problem.stride + 1;
	return problem;
}

void for_each_product(const struct conv_problem *p, product_function function, void *context)
{
	uint32_t channels = conv_weight_channels(p);

	for (uint32_t n = 0; n < p->n; n++)
		for (uint32_t h = 0; h < p->h; h++)
			for (uint32_t w = 0; w < p->w; w++)
				for (uint32_t i = 0; i < p->r * p->s * p->k; i++) {
					uint32_t r = i / p->k / p->s, s = i / p->k % p->s;
					uint32_t k = i % p->k, up = h + p->pad - r;
					uint32_t left = w + p->pad - s;

					/*
					 * positions before the first one wrap around to large
					 * values
					 */
					if (up % p->stride || up / p->stride >= p->p ||
					    left % p->stride || left / p->stride >= p->q ||
					    h + p->pad < r || w + p->pad < s)
						continue;
					uint32_t first = k / (p->k / p->groups) * channels;
					for (uint32_t c = 0; c < channels; c++)
						function(
							context,
							&(struct product){
								((n * p->h + h) * p->w + w) * p->c +
									first + c,
								((k * p->r + r) * p->s + s) *
										channels +
									c,
								((n * p->p + up / p->stride) *
									 p->q +
								 left / p->stride) *
										p->k +
									k});
				}
}

void add_to_y(void *context, const struct product *product)
{
	struct sums *sums = context;

	sums->to[product->y] += sums->x[product->x] * sums->w[product->w];
}

int run_with_engines(void)
{
	struct engines_options options = {.gpu = &gpu, .plans = ""};
	char error[DEVICE_ERROR_MAX];
	int r = gpu_select(0, &gpu);

	if (r < 0) {
		fprintf(stderr, "skipped: %s\n", gpu_error());
		return 77;
	}
	if (engines_open(&options, &engines, error) < 0) {
		fprintf(stderr, "%s\n", error);
		return 1;
	}
	emulated = strcmp(gpu.name, "emulated GPU") == 0;
	printf("%s, %s\n", gpu.name, engines.name);
	r = test_run(NULL, NULL);
	printf("%u problems were computed\n", planned);
	engines_close(&engines);
	return r;
}
