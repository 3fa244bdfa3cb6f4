/*
 * Every operation of a device: forward against the naive reference, gradients of input and
 * parameters against central differences of the reference. Runs in fp32 and in the 16-bit formats
 * that the device supports; compares by relative error of the norm.
 */
#include "tests/test.h"
#include "tests/unit/trainer/device/test_device_reference.h"

#include <math.h>

#define EPSILON 1e-5

enum op {
	OP_CONV,
	OP_LINEAR,
	OP_NORM,
	OP_LAYER_NORM,
	OP_ATTENTION,
	OP_TOKENS,
	OP_TAKE,
	OP_SCALE_ADD,
	OP_MAX_POOL,
	OP_AVERAGE_POOL,
	OP_GLOBAL_AVERAGE,
	OP_GLOBAL_MAX
};

struct op_case {
	enum op op;
	struct device_shape x;
	/* output channels or number of heads, and geometry */
	uint32_t k, window, stride, pad;
	uint32_t pad_extra, groups; /* convolutions only; groups 0 counts as 1 */
	bool norm, bias, residual;
	bool by_position; /* linear layers */
	bool class_token; /* OP_TOKENS only */
	uint32_t side;    /* side of the position embeddings; 0 if they have x's size */
	uint32_t taken;   /* position that OP_TAKE selects */
	bool fixed;       /* the norm's statistics are frozen */
	uint32_t ghost;   /* samples per group of norm statistics; 0 for all in one */
	enum device_activation activation;
	bool gamma, gate; /* OP_SCALE_ADD only, like the fields below */
	float drop_path, dropout;
};

/* Roles of tensors in a case. */
enum role {
	WEIGHT,
	BIAS,
	GAMMA,
	BETA,
	MEAN,
	VARIANCE,
	RESIDUAL_WEIGHT,
	POSITIONS,
	CLASS_TOKEN,
	GATE_WEIGHT,
	ROLES
};

static const char *const role_names[ROLES] = {"weight",      "bias",     "gamma",    "beta",
					      "mean",        "variance", "residual", "positions",
					      "class_token", "gate"};
static const struct device_draws draws = {0x123456789abcdef, 0x500000007, 3};

struct fixture {
	const struct op_case *op;
	struct tensor x, g;     /* input, and gradient of the result */
	struct tensor t[ROLES]; /* v is NULL if the case does not use it */
	struct device_param *p[ROLES];
	struct device *device;
	struct device_params *params;
	struct device_graph *graph;
	struct device_value *input, *y;
	uint32_t channels; /* of the result */
};

static uint32_t result_channels(const struct op_case *op)
{
	return op->op == OP_CONV || op->op == OP_LINEAR ? op->k
	       : op->op == OP_ATTENTION                 ? op->x.c / 3
							: op->x.c;
}

/* Shape of the weights of the convolution that computes the residual from the input. */
static struct device_shape residual_weight_shape(const struct op_case *op)
{
	bool conv = op->op == OP_CONV;

	return (struct device_shape){result_channels(op), conv ? op->window : 1,
				     conv ? op->window : 1, op->x.c};
}

/* A gate is computed from the means of the input. */
static struct tensor reference_gates(const struct fixture *f)
{
	struct tensor means = reference_pool(&f->x, f->op->x.h, f->op->x.w, 1, 0, 0, true);
	struct tensor gates = reference_conv(&means, &f->t[GATE_WEIGHT], 1, 0, 0);

	reference_activate(&gates, DEVICE_LOGISTIC);
	tensor_free(&means);
	return gates;
}

static void reference_scale_add(const struct fixture *f, struct tensor *y)
{
	const struct op_case *op = f->op;
	struct tensor gates;

	if (op->gamma)
		reference_scale(y, &f->t[GAMMA]);
	if (op->gate) {
		gates = reference_gates(f);
		reference_gate(y, &gates);
		tensor_free(&gates);
	}
	reference_drop(y, &draws, "op", (double)op->drop_path, (double)op->dropout);
}

/*
 * Normalises by the statistics of chunks of samples, divided as torch.chunk() divides them for
 * Composer's GhostBatchNorm. Each chunk updates the running statistics with momentum 0.1 / chunks.
 */
static void reference_ghosts(const struct fixture *f, struct tensor *y, double *running_mean,
			     double *running_variance)
{
	uint32_t n = y->shape.n, channels = y->shape.c, ghost = f->op->ghost ? f->op->ghost : n;
	uint32_t chunks = (n + ghost - 1) / ghost, each = (n + chunks - 1) / chunks;
	double *mean = calloc(channels, sizeof(double)),
	       *variance = calloc(channels, sizeof(double));

	for (uint32_t first = 0; first < n; first += each) {
		struct tensor chunk = {y->shape, y->v + tensor_count(y) / n * first};

		chunk.shape.n = n - first < each ? n - first : each;
		double rows = (double)(tensor_count(&chunk) / channels);
		reference_norm(&chunk, &f->t[GAMMA], &f->t[BETA], EPSILON, mean, variance);
		for (uint32_t c = 0; c < channels && running_mean; c++) {
			double unbiased = variance[c] * rows / (rows - 1);

			running_mean[c] += 0.1 / chunks * (mean[c] - running_mean[c]);
			running_variance[c] += 0.1 / chunks * (unbiased - running_variance[c]);
		}
	}
	free(mean);
	free(variance);
}

static struct tensor reference(const struct fixture *f)
{
	const struct op_case *op = f->op;
	struct tensor y, r, flat;
	bool conv = op->op == OP_CONV;

	switch (op->op) {
	case OP_CONV:
		y = reference_conv(&f->x, &f->t[WEIGHT], op->stride, op->pad, op->pad_extra);
		break;
	case OP_LINEAR:
		flat = f->x;
		if (!op->by_position)
			flat.shape =
				(struct device_shape){op->x.n, 1, 1, op->x.h * op->x.w * op->x.c};
		y = reference_conv(&flat, &f->t[WEIGHT], 1, 0, 0);
		break;
	case OP_MAX_POOL:
	case OP_AVERAGE_POOL:
		y = reference_pool(&f->x, op->window, op->window, op->stride, op->pad,
				   op->pad_extra, op->op == OP_AVERAGE_POOL);
		break;
	case OP_GLOBAL_AVERAGE:
	case OP_GLOBAL_MAX:
		y = reference_pool(&f->x, op->x.h, op->x.w, 1, 0, 0, op->op == OP_GLOBAL_AVERAGE);
		break;
	case OP_ATTENTION:
		y = reference_attention(&f->x, op->k, &draws, "op", (double)op->dropout);
		break;
	case OP_TOKENS:
		y = reference_tokens(&f->x, &f->t[POSITIONS],
				     op->class_token ? &f->t[CLASS_TOKEN] : NULL, op->side);
		break;
	case OP_TAKE:
		y = reference_take(&f->x, op->taken);
		break;
	default:
		y = tensor_new(f->x.shape);
		memcpy(y.v, f->x.v, tensor_count(&y) * sizeof(double));
	}
	if (op->op == OP_SCALE_ADD)
		reference_scale_add(f, &y);
	if (op->op == OP_LAYER_NORM)
		reference_layer_norm(&y, &f->t[GAMMA], &f->t[BETA], EPSILON);
	if (op->norm && op->fixed)
		reference_affine(&y, &f->t[GAMMA], &f->t[BETA], &f->t[MEAN], &f->t[VARIANCE],
				 EPSILON);
	else if (op->norm)
		reference_ghosts(f, &y, NULL, NULL);
	if (op->bias)
		reference_bias(&y, &f->t[BIAS]);
	if (op->residual) {
		r = reference_conv(&f->x, &f->t[RESIDUAL_WEIGHT], conv ? op->stride : 1,
				   conv ? op->pad : 0, op->pad_extra);
		reference_add(&y, &r);
		tensor_free(&r);
	}
	reference_activate(&y, op->activation);
	return y;
}

static double objective(const struct fixture *f)
{
	struct tensor y = reference(f);
	double sum = 0;

	for (size_t i = 0; i < tensor_count(&y); i++)
		sum += y.v[i] * f->g.v[i];
	tensor_free(&y);
	return sum;
}

static void make_tensors(struct fixture *f, bool coarse)
{
	const struct op_case *op = f->op;
	struct device_shape vector = {1, 1, 1, result_channels(op)};
	struct device_shape weight = {op->k, op->window, op->window,
				      op->groups ? op->x.c / op->groups : op->x.c};

	if (op->op == OP_LINEAR && op->by_position)
		weight = (struct device_shape){op->k, 1, 1, op->x.c};
	else if (op->op == OP_LINEAR)
		weight = (struct device_shape){op->k, 1, 1, op->x.h * op->x.w * op->x.c};
	f->x = tensor_new(op->x);
	if (op->op == OP_CONV || op->op == OP_LINEAR)
		f->t[WEIGHT] = tensor_new(weight);
	if (op->bias)
		f->t[BIAS] = tensor_new(vector);
	for (int i = GAMMA; op->norm && i <= VARIANCE; i++)
		f->t[i] = tensor_new(vector);
	for (int i = GAMMA; op->op == OP_LAYER_NORM && i <= BETA; i++)
		f->t[i] = tensor_new(vector);
	if (op->op == OP_TOKENS)
		f->t[POSITIONS] = tensor_new((struct device_shape){
			(op->side ? op->side * op->side : op->x.h * op->x.w) + op->class_token, 1,
			1, op->x.c});
	if (op->class_token)
		f->t[CLASS_TOKEN] = tensor_new(vector);
	if (op->gamma)
		f->t[GAMMA] = tensor_new(vector);
	if (op->gate)
		f->t[GATE_WEIGHT] = tensor_new((struct device_shape){op->x.c, 1, 1, op->x.c});
	if (op->residual)
		f->t[RESIDUAL_WEIGHT] = tensor_new(residual_weight_shape(op));
	tensor_fill(&f->x, 1, coarse);
	/*
	 * avoid ties, which have no derivative: 37 i mod 251 has no duplicates within any window,
	 * and is exact in bf16
	 */
	for (size_t i = 0; coarse && i < tensor_count(&f->x); i++)
		if (op->op == OP_MAX_POOL || op->op == OP_GLOBAL_MAX)
			f->x.v[i] = ((double)(i * 37 % 251) - 125) / 128;
	/* large queries and keys, so that some scores stand out and have gradients */
	for (size_t i = 0; op->op == OP_ATTENTION && i < tensor_count(&f->x); i++)
		f->x.v[i] *= i % op->x.c < op->x.c / 3 * 2 ? 4 : 1;
	for (int i = 0; i < ROLES; i++)
		if (f->t[i].v)
			tensor_fill(&f->t[i], 10 + (uint64_t)i, coarse);
	for (size_t i = 0; op->fixed && i < tensor_count(&f->t[VARIANCE]); i++)
		f->t[VARIANCE].v[i] = 1.5 + f->t[VARIANCE].v[i] / 2;
	struct tensor y = reference(f);
	f->g = tensor_new(y.shape);
	tensor_free(&y);
	tensor_fill(&f->g, 2, coarse);
}

static void make_params(struct fixture *f)
{
	static const enum device_param_kind kinds[ROLES] = {
		DEVICE_CONV_WEIGHT, DEVICE_VECTOR,     DEVICE_VECTOR,      DEVICE_VECTOR,
		DEVICE_BUFFER,      DEVICE_BUFFER,     DEVICE_CONV_WEIGHT, DEVICE_EMBEDDING,
		DEVICE_EMBEDDING,   DEVICE_CONV_WEIGHT};
	struct device_optimizer_spec optimizer = {.kind = DEVICE_SGD};
	float *values;

	assert_int_equal(device_params_new(f->device, &f->params), 0);
	for (int i = 0; i < ROLES; i++) {
		enum device_param_kind kind =
			i == WEIGHT && f->op->op == OP_LINEAR ? DEVICE_LINEAR_WEIGHT : kinds[i];

		if (f->t[i].v)
			f->p[i] = add_param(f->params, role_names[i], kind, f->t[i].shape);
		if (f->op->fixed && kind == DEVICE_BUFFER)
			device_param_freeze(f->p[i], true);
	}
	assert_int_equal(device_params_allocate(f->params, &optimizer), 0);
	/* a larger loss scale would overflow fp16 with gradients of this size */
	if (device_info(f->device)->precision == DEVICE_FP16)
		assert_int_equal(
			device_params_set_state(f->params,
						&(struct device_params_state){.loss_scale = 16}),
			0);
	for (int i = 0; i < ROLES; i++) {
		if (!f->t[i].v)
			continue;
		values = malloc(tensor_count(&f->t[i]) * sizeof(float));
		tensor_to_float(&f->t[i], values);
		assert_int_equal(device_param_write(f->p[i], DEVICE_VALUE, values), 0);
		free(values);
	}
}

static struct device_value *record_scale_add(struct fixture *f, struct device_value *residual)
{
	const struct op_case *op = f->op;
	struct device_scale_add_spec spec = {
		.name = "op",
		.residual = residual,
		.gamma = f->p[GAMMA],
		.drop_path = op->drop_path,
		.dropout = op->dropout,
		.activation = op->activation,
	};

	if (op->gate)
		spec.gate = device_conv(f->graph,
					device_global_average_pool(f->graph, "means", f->input),
					&(struct device_conv_spec){.name = "gate",
								   .weight = f->p[GATE_WEIGHT],
								   .stride = 1,
								   .activation = DEVICE_LOGISTIC});
	return device_scale_add(f->graph, f->input, &spec);
}

static struct device_value *record_op(struct fixture *f)
{
	const struct op_case *op = f->op;
	struct device_norm norm = {f->p[GAMMA],    f->p[BETA], f->p[MEAN],        f->p[VARIANCE],
				   (float)EPSILON, 0.1f,       .ghost = op->ghost};
	struct device_value *residual = NULL;
	bool conv = op->op == OP_CONV;

	if (op->residual)
		residual = device_conv(f->graph, f->input,
				       &(struct device_conv_spec){.name = "residual",
								  .weight = f->p[RESIDUAL_WEIGHT],
								  .stride = conv ? op->stride : 1,
								  .pad = conv ? op->pad : 0,
								  .pad_extra = op->pad_extra});
	switch (op->op) {
	case OP_CONV:
		return device_conv(f->graph, f->input,
				   &(struct device_conv_spec){.name = "op",
							      .weight = f->p[WEIGHT],
							      .bias = f->p[BIAS],
							      .norm = op->norm ? &norm : NULL,
							      .stride = op->stride,
							      .pad = op->pad,
							      .pad_extra = op->pad_extra,
							      .residual = residual,
							      .activation = op->activation});
	case OP_LINEAR:
		return device_linear(f->graph, f->input,
				     &(struct device_linear_spec){.name = "op",
								  .weight = f->p[WEIGHT],
								  .bias = f->p[BIAS],
								  .by_position = op->by_position,
								  .residual = residual,
								  .activation = op->activation});
	case OP_NORM:
		return device_norm(f->graph, "op", f->input, &norm, residual, op->activation);
	case OP_LAYER_NORM:
		return device_layer_norm(f->graph, f->input,
					 &(struct device_layer_norm_spec){
						 "op", f->p[GAMMA], f->p[BETA], (float)EPSILON});
	case OP_ATTENTION:
		return device_attention(f->graph, f->input,
					&(struct device_attention_spec){"op", op->k, op->dropout});
	case OP_TOKENS:
		return device_pos_embed(f->graph, f->input,
					&(struct device_pos_embed_spec){"op", f->p[POSITIONS],
									op->side,
									f->p[CLASS_TOKEN]});
	case OP_TAKE:
		return device_select_token(f->graph, "op", f->input, op->taken);
	case OP_SCALE_ADD:
		return record_scale_add(f, residual);
	case OP_MAX_POOL:
		return device_max_pool(f->graph, f->input,
				       &(struct device_pool_spec){"op", op->window, op->stride,
								  op->pad, op->pad_extra});
	case OP_AVERAGE_POOL:
		return device_average_pool(f->graph, f->input,
					   &(struct device_pool_spec){"op", op->window, op->stride,
								      op->pad, op->pad_extra});
	case OP_GLOBAL_AVERAGE:
		return device_global_average_pool(f->graph, "op", f->input);
	case OP_GLOBAL_MAX:
		return device_global_max_pool(f->graph, "op", f->input);
	}
	return NULL;
}

static void run(struct fixture *f)
{
	struct device_graph_options options = {.mode = DEVICE_TRAIN, .keep_all = true};
	struct device_input_spec input = {
		.name = "input", .shape = f->op->x, .std = {1, 1, 1, 1}, .gradient = true};
	float *x = malloc(tensor_count(&f->x) * sizeof(float)),
	      *g = malloc(tensor_count(&f->g) * sizeof(float));
	struct device_batch batch = {.images = x,
				     .count = f->op->x.n,
				     .channels = f->op->x.c,
				     .element = DEVICE_ELEMENT_F32,
				     .draws = draws};
	char error[DEVICE_ERROR_MAX];
	uint64_t ticket;

	assert_int_equal(device_graph_new(f->params, &options, &f->graph), 0);
	f->input = device_input(f->graph, &input);
	f->y = record_op(f);
	if (device_graph_plan(f->graph, error) < 0)
		fail_msg("%s", error);
	tensor_to_float(&f->x, x);
	tensor_to_float(&f->g, g);
	assert_int_equal(device_value_write(f->graph, f->y, DEVICE_GRAD, g), 0);
	/* two steps: gradients must be summed */
	for (int i = 0; i < 2; i++) {
		assert_int_equal(device_upload(f->graph, &batch, &ticket), 0);
		assert_int_equal(device_step(f->graph, NULL, &ticket), 0);
	}
	free(x);
	free(g);
}

/*
 * Computes the derivative of the objective for each element of t, or for a sample of them; the
 * others become NAN.
 */
static void differentiate(const struct fixture *f, struct tensor *t, double *ret)
{
	size_t count = tensor_count(t), step = count > 40 ? count / 31 : 1;
	double h = 1e-6;

	for (size_t i = 0; i < count; i++) {
		double v = t->v[i];

		ret[i] = NAN;
		if (i % step)
			continue;
		t->v[i] = v + h;
		double up = objective(f);
		t->v[i] = v - h;
		ret[i] = (up - objective(f)) / (2 * h);
		t->v[i] = v;
	}
}

/*
 * Compares the derivatives that were computed; `factor` is the number of times that the device
 * summed them.
 */
static void compare(const struct op_case *op, const char *what, const float *got, double *expected,
		    size_t count, double factor, double tolerance)
{
	float *some = malloc(count * sizeof(float));
	size_t used = 0;

	for (size_t i = 0; i < count; i++) {
		if (isnan(expected[i]))
			continue;
		some[used] = got[i];
		expected[used++] = expected[i] * factor;
	}
	double error = relative_error(some, expected, used);
	if (!(error <= tolerance))
		fail_msg("%s of op %d, x %u x %u x %u x %u, k %u, window %u, stride %u, pad %u, "
			 "pad_extra %u, groups %u, norm %d, residual %d, activation %d: relative "
			 "error "
			 "%g above %g",
			 what, op->op, op->x.n, op->x.h, op->x.w, op->x.c, op->k, op->window,
			 op->stride, op->pad, op->pad_extra, op->groups, op->norm, op->residual,
			 op->activation, error, tolerance);
	free(some);
}

static void check_gradients(struct fixture *f, double tolerance)
{
	for (int i = -1; i < ROLES; i++) {
		struct tensor *t = i < 0 ? &f->x : &f->t[i];

		if (!t->v || i == MEAN || i == VARIANCE)
			continue;
		double *expected = malloc(tensor_count(t) * sizeof(double));
		float *got = malloc(tensor_count(t) * sizeof(float));
		differentiate(f, t, expected);
		if (i < 0)
			assert_int_equal(device_value_read(f->graph, f->input, DEVICE_GRAD, got),
					 0);
		else
			assert_int_equal(device_param_read(f->p[i], DEVICE_GRAD, got), 0);
		compare(f->op, i < 0 ? "gradient of the input" : role_names[i], got, expected,
			tensor_count(t), i < 0 ? 1 : 2, tolerance);
		free(expected);
		free(got);
	}
}

/*
 * After two steps the running statistics have been updated twice with those of the batch, computed
 * before residual and activation.
 */
static void check_running(struct fixture *f, double tolerance)
{
	struct op_case bare = *f->op;
	struct fixture g = *f;
	uint32_t channels = result_channels(f->op);
	double *mean = calloc(channels, sizeof(double)),
	       *variance = calloc(channels, sizeof(double));
	float *got = malloc(channels * sizeof(float));

	bare.norm = bare.residual = false;
	bare.activation = DEVICE_IDENTITY;
	g.op = &bare;
	memcpy(mean, f->t[MEAN].v, channels * sizeof(double));
	memcpy(variance, f->t[VARIANCE].v, channels * sizeof(double));
	for (int i = 0; i < 2; i++) {
		struct tensor y = reference(&g);

		reference_ghosts(f, &y, mean, variance);
		tensor_free(&y);
	}
	device_param_read(f->p[MEAN], DEVICE_VALUE, got);
	compare(f->op, "running mean", got, mean, channels, 1, tolerance);
	device_param_read(f->p[VARIANCE], DEVICE_VALUE, got);
	compare(f->op, "running variance", got, variance, channels, 1, tolerance);
	free(mean);
	free(variance);
	free(got);
}

/* Frozen statistics have not changed. */
static void check_stayed(struct fixture *f)
{
	float *got = malloc(result_channels(f->op) * sizeof(float));

	for (int i = MEAN; i <= VARIANCE; i++) {
		device_param_read(f->p[i], DEVICE_VALUE, got);
		for (uint32_t c = 0; c < result_channels(f->op); c++)
			assert_true(got[c] == (float)f->t[i].v[c]);
	}
	free(got);
}

/* Checks evaluation, for operations whose result in evaluation equals that in training. */
static void check_evaluation(struct fixture *f, double *expected, double tolerance)
{
	struct device_graph_options options = {.mode = DEVICE_EVAL};
	struct device_input_spec input = {.name = "input", .shape = f->op->x, .std = {1, 1, 1, 1}};
	size_t count = tensor_count(&f->g);
	float *x = malloc((count + tensor_count(&f->x)) * sizeof(float));
	struct device_batch batch = {.images = x,
				     .count = f->op->x.n,
				     .channels = f->op->x.c,
				     .element = DEVICE_ELEMENT_F32};
	char error[DEVICE_ERROR_MAX];
	uint64_t ticket;

	device_graph_free(f->graph);
	assert_int_equal(device_graph_new(f->params, &options, &f->graph), 0);
	f->input = device_input(f->graph, &input);
	f->y = record_op(f);
	if (device_graph_plan(f->graph, error) < 0)
		fail_msg("%s", error);
	tensor_to_float(&f->x, x);
	assert_int_equal(device_upload(f->graph, &batch, &ticket), 0);
	assert_int_equal(device_evaluate(f->graph, DEVICE_VALUE, &ticket), 0);
	assert_int_equal(device_value_read(f->graph, f->y, DEVICE_VALUE, x), 0);
	compare(f->op, "result in evaluation", x, expected, count, 1, tolerance);
	free(x);
}

static void check_case(const struct op_case *op, enum device_precision precision)
{
	struct fixture f = {.op = op, .device = open_device(precision, 0)};
	double tolerance =
		/* 16 bits: 0.3 % of the ReLU inputs may change sign, an error of sqrt(0.003) */
		precision == DEVICE_FP32 ? 2e-5 : 8e-2;

	tolerance = half_tolerance(f.device, tolerance);
	make_tensors(&f, precision == DEVICE_BF16);
	make_params(&f);
	run(&f);
	struct tensor y = reference(&f);
	float *got = malloc(tensor_count(&y) * sizeof(float));
	assert_int_equal(device_value_read(f.graph, f.y, DEVICE_VALUE, got), 0);
	compare(op, "result", got, y.v, tensor_count(&y), 1, tolerance);
	check_gradients(&f, tolerance);
	if (op->norm && !op->fixed)
		check_running(&f, tolerance);
	if (op->fixed)
		check_stayed(&f);
	if (op->op == OP_LAYER_NORM || op->op == OP_MAX_POOL || op->op == OP_GLOBAL_MAX ||
	    (op->op == OP_ATTENTION && !op->dropout) || op->op == OP_TOKENS || op->op == OP_TAKE ||
	    op->fixed || (op->op == OP_SCALE_ADD && !op->drop_path && !op->dropout))
		check_evaluation(&f, y.v, tolerance);
	free(got);
	tensor_free(&y);
	tensor_free(&f.x);
	tensor_free(&f.g);
	for (int i = 0; i < ROLES; i++)
		tensor_free(&f.t[i]);
	device_graph_free(f.graph);
	device_params_free(f.params);
	device_close(f.device);
}

/* clang-format off */
static const struct op_case cases[] = {
	/* bare convolutions: kernels, strides, padding, odd sizes, few and many channels */
	{OP_CONV, {2, 7, 5, 3}, 5, 3, 1, 1},
	{OP_CONV, {2, 8, 8, 16}, 16, 3, 1, 1},
	{OP_CONV, {3, 9, 7, 8}, 24, 3, 2, 1},
	{OP_CONV, {2, 6, 6, 20}, 33, 1, 1, 0},
	{OP_CONV, {2, 7, 7, 17}, 9, 1, 2, 0},
	{OP_CONV, {2, 23, 21, 3}, 16, 7, 2, 3},
	{OP_CONV, {1, 11, 13, 1}, 2, 5, 1, 2},
	{OP_CONV, {2, 8, 9, 4}, 24, 2, 1, 0},
	{OP_CONV, {2, 4, 4, 64}, 32, 3, 1, 1},
	{OP_CONV, {2, 1, 1, 40}, 48, 1, 1, 0},
	/*
	 * groups, some of one channel, some with more output than input channels; extra padding at
	 * the bottom and right
	 */
	{OP_CONV, {2, 7, 5, 8}, 12, 3, 1, 1, .groups = 4},
	{OP_CONV, {2, 9, 7, 64}, 128, 3, 2, 1, .groups = 32},
	{OP_CONV, {2, 9, 8, 96}, 96, 7, 1, 3, .groups = 96},
	{OP_CONV, {3, 9, 8, 32}, 32, 5, 1, 1, .groups = 32, .norm = true},
	{OP_CONV, {2, 9, 8, 20}, 20, 3, 2, 1, .groups = 20},
	{OP_CONV, {2, 6, 5, 6}, 18, 3, 1, 1, .groups = 6},
	{OP_CONV, {2, 7, 6, 3}, 8, 4, 2, 1, .pad_extra = 1},
	{OP_CONV, {2, 8, 8, 16}, 16, 2, 1, 0, .pad_extra = 1, .groups = 16},
	{OP_CONV, {4, 7, 5, 32}, 64, 3, 1, 1, .groups = 2, .norm = true, .activation = DEVICE_GELU},
	{OP_CONV, {4, 7, 5, 16}, 16, 7, 1, 3, .groups = 16, .bias = true},
	{OP_CONV, {4, 7, 6, 8}, 8, 4, 2, 1, .pad_extra = 1, .norm = true, .residual = true},
	/* with bias, norm, residual and activation */
	{OP_CONV, {2, 7, 5, 3}, 6, 3, 1, 1, .bias = true},
	{OP_CONV, {2, 7, 5, 3}, 6, 3, 1, 1, .bias = true, .activation = DEVICE_RELU},
	{OP_CONV, {2, 7, 5, 3}, 6, 3, 1, 1, .activation = DEVICE_RELU},
	{OP_CONV, {2, 7, 5, 3}, 6, 3, 1, 1, .bias = true, .activation = DEVICE_GELU},
	{OP_CONV, {2, 7, 5, 3}, 6, 3, 1, 1, .bias = true, .residual = true,
	 .activation = DEVICE_RELU},
	{OP_CONV, {2, 7, 5, 3}, 6, 3, 1, 1, .residual = true},
	{OP_CONV, {5, 1, 1, 16}, 24, 1, 1, 0, .bias = true, .activation = DEVICE_LOGISTIC},
	{OP_CONV, {2, 7, 5, 3}, 6, 3, 1, 1, .residual = true, .activation = DEVICE_LOGISTIC},
	{OP_CONV, {4, 7, 5, 8}, 16, 3, 2, 1, .norm = true, .activation = DEVICE_LOGISTIC},
	{OP_CONV, {2, 7, 5, 3}, 6, 3, 1, 1, .residual = true, .activation = DEVICE_GELU},
	{OP_CONV, {4, 7, 5, 3}, 6, 3, 1, 1, .norm = true},
	{OP_CONV, {4, 7, 5, 8}, 16, 3, 1, 1, .norm = true, .activation = DEVICE_RELU},
	{OP_CONV, {4, 7, 5, 8}, 16, 3, 2, 1, .norm = true, .activation = DEVICE_GELU},
	{OP_CONV, {4, 7, 5, 8}, 19, 1, 1, 0, .norm = true, .residual = true},
	{OP_CONV, {4, 7, 5, 8}, 16, 3, 1, 1, .norm = true, .residual = true,
	 .activation = DEVICE_RELU},
	{OP_CONV, {4, 7, 5, 8}, 16, 3, 2, 1, .norm = true, .residual = true,
	 .activation = DEVICE_GELU},
	{OP_CONV, {3, 5, 5, 16}, 300, 1, 1, 0, .norm = true, .activation = DEVICE_RELU},
	{OP_CONV, {3, 3, 3, 16}, 1030, 1, 1, 0, .norm = true, .residual = true,
	 .activation = DEVICE_RELU},
	{OP_CONV, {64, 1, 1, 24}, 40, 1, 1, 0, .norm = true, .activation = DEVICE_RELU},
	/* norms without a convolution */
	{OP_NORM, {4, 5, 3, 7}, .norm = true},
	{OP_NORM, {4, 5, 3, 16}, .norm = true, .activation = DEVICE_RELU},
	{OP_NORM, {4, 5, 3, 16}, .norm = true, .activation = DEVICE_GELU},
	{OP_NORM, {4, 5, 3, 16}, .norm = true, .residual = true, .activation = DEVICE_RELU},
	{OP_NORM, {4, 5, 3, 16}, .norm = true, .residual = true, .activation = DEVICE_LOGISTIC},
	{OP_NORM, {4, 5, 3, 16}, .norm = true, .residual = true, .activation = DEVICE_GELU},
	/* norms over groups of samples: equal groups, a smaller last group, a single group */
	{OP_NORM, {4, 5, 3, 7}, .norm = true, .ghost = 2},
	{OP_NORM, {7, 5, 3, 16}, .norm = true, .ghost = 3, .activation = DEVICE_RELU},
	{OP_NORM, {5, 5, 3, 40}, .norm = true, .ghost = 4, .activation = DEVICE_GELU},
	{OP_NORM, {4, 5, 3, 16}, .norm = true, .ghost = 9},
	{OP_NORM, {6, 5, 3, 16}, .norm = true, .residual = true, .ghost = 2,
	 .activation = DEVICE_RELU},
	{OP_NORM, {4, 5, 3, 16}, .norm = true, .residual = true, .ghost = 3,
	 .activation = DEVICE_GELU},
	{OP_CONV, {7, 7, 5, 8}, 16, 3, 2, 1, .norm = true, .ghost = 2, .activation = DEVICE_RELU},
	{OP_CONV, {4, 7, 5, 8}, 8, 3, 1, 1, .norm = true, .residual = true, .ghost = 2},
	/* norms with frozen statistics */
	{OP_NORM, {4, 5, 3, 7}, .norm = true, .fixed = true},
	{OP_NORM, {4, 5, 3, 16}, .norm = true, .fixed = true, .activation = DEVICE_GELU},
	{OP_NORM, {4, 5, 3, 16}, .norm = true, .fixed = true, .residual = true,
	 .activation = DEVICE_RELU},
	{OP_CONV, {4, 7, 5, 8}, 16, 3, 1, 1, .norm = true, .fixed = true},
	{OP_CONV, {4, 7, 5, 8}, 16, 3, 2, 1, .norm = true, .fixed = true,
	 .activation = DEVICE_RELU},
	{OP_CONV, {4, 7, 5, 8}, 16, 1, 1, 0, .norm = true, .fixed = true, .residual = true,
	 .activation = DEVICE_RELU},
	/* layer norms: rows of one channel, of less than a vector, and of several vectors */
	{OP_LAYER_NORM, {3, 2, 3, 1}},
	{OP_LAYER_NORM, {3, 5, 3, 7}},
	{OP_LAYER_NORM, {5, 1, 1, 32}},
	{OP_LAYER_NORM, {3, 1, 17, 192}},
	{OP_LAYER_NORM, {1, 3, 3, 384}},
	{OP_LAYER_NORM, {3, 1, 2, 768}},
	{OP_LAYER_NORM, {5, 1, 1, 1000}},
	/*
	 * attention: one head and several; positions and channels that do not fill a vector or tile
	 */
	{OP_ATTENTION, {2, 1, 5, 48}, 1},
	{OP_ATTENTION, {2, 3, 6, 3 * 24}, 2},
	{OP_ATTENTION, {2, 1, 1, 96}, 2},
	{OP_ATTENTION, {2, 1, 33, 3 * 2 * 20}, 2},
	{OP_ATTENTION, {2, 1, 64, 3 * 64}, 1},
	{OP_ATTENTION, {1, 1, 69, 3 * 3 * 32}, 3},
	{OP_ATTENTION, {1, 1, 135, 3 * 64}, 1},
	{OP_ATTENTION, {3, 1, 9, 3 * 2 * 20}, 2, .dropout = 0.4f},
	{OP_ATTENTION, {2, 1, 67, 3 * 2 * 16}, 2, .dropout = 0.25f},
	{OP_ATTENTION, {1, 1, 130, 3 * 32}, 1, .dropout = 0.1f},
	/*
	 * scale-add: each factor separately and all together; rows shorter than a vector and of
	 * several vectors
	 */
	{OP_SCALE_ADD, {3, 5, 3, 7}, .gamma = true},
	{OP_SCALE_ADD, {3, 2, 3, 16}, .gamma = true, .residual = true},
	{OP_SCALE_ADD, {3, 7, 5, 12}, .gate = true},
	{OP_SCALE_ADD, {5, 3, 3, 9}, .gate = true, .residual = true, .activation = DEVICE_RELU},
	{OP_SCALE_ADD, {2, 17, 9, 24}, .gate = true, .residual = true, .activation = DEVICE_RELU},
	{OP_SCALE_ADD, {9, 3, 2, 8}, .drop_path = 0.4f, .residual = true},
	{OP_SCALE_ADD, {40, 1, 1, 33}, .dropout = 0.3f},
	{OP_SCALE_ADD, {3, 3, 5, 7}, .dropout = 0.5f, .residual = true, .activation = DEVICE_RELU},
	{OP_SCALE_ADD, {5, 3, 3, 16}, .gamma = true, .gate = true, .residual = true,
	 .drop_path = 0.25f, .dropout = 0.25f},
	{OP_SCALE_ADD, {3, 3, 2, 520}, .gamma = true, .gate = true, .residual = true,
	 .drop_path = 0.25f, .dropout = 0.25f, .activation = DEVICE_RELU},
	{OP_SCALE_ADD, {2, 2, 1, 515}, .gamma = true, .dropout = 0.1f, .residual = true},
	{OP_SCALE_ADD, {3, 4, 4, 8}, .activation = DEVICE_RELU},
	/* linear layers */
	{OP_LINEAR, {5, 1, 1, 33}, 7, .bias = true},
	{OP_LINEAR, {5, 3, 2, 8}, 10},
	{OP_LINEAR, {16, 1, 1, 64}, 100, .bias = true, .activation = DEVICE_RELU},
	{OP_LINEAR, {16, 2, 2, 16}, 20, .bias = true, .activation = DEVICE_GELU},
	{OP_LINEAR, {16, 1, 1, 24}, 16, .residual = true, .activation = DEVICE_RELU},
	/* odd numbers of classes, at a batch size that triggers a bug of oneDNN 2.6 in bf16 */
	{OP_LINEAR, {30, 1, 1, 8}, 9, .bias = true},
	{OP_CONV, {1, 30, 1, 8}, 11, 1, 1},
	/* linear layers applied at each position, as for tokens and channels-last blocks */
	{OP_LINEAR, {3, 1, 17, 24}, 40, .by_position = true, .bias = true},
	{OP_LINEAR, {2, 3, 5, 7}, 10, .by_position = true},
	{OP_LINEAR, {3, 1, 17, 16}, 64, .by_position = true, .bias = true,
	 .activation = DEVICE_GELU},
	{OP_LINEAR, {3, 1, 17, 64}, 16, .by_position = true, .bias = true, .residual = true},
	{OP_LINEAR, {2, 3, 5, 16}, 24, .by_position = true, .residual = true},
	{OP_LINEAR, {2, 3, 5, 16}, 24, .by_position = true, .bias = true, .residual = true,
	 .activation = DEVICE_RELU},
	{OP_LINEAR, {2, 3, 5, 16}, 24, .by_position = true, .bias = true, .residual = true,
	 .activation = DEVICE_GELU},
	/*
	 * tokens: full and partial packs of channels, more channels than a kernel's width;
	 * selection of one token
	 */
	{OP_TOKENS, {3, 2, 3, 7}},
	{OP_TOKENS, {3, 2, 3, 7}, .class_token = true},
	{OP_TOKENS, {5, 4, 3, 32}},
	{OP_TOKENS, {5, 4, 3, 32}, .class_token = true},
	{OP_TOKENS, {9, 2, 2, 584}, .class_token = true},
	{OP_TOKENS, {3, 4, 4, 7}, .class_token = true, .side = 4},
	{OP_TOKENS, {3, 4, 6, 7}, .class_token = true, .side = 3},
	{OP_TOKENS, {2, 2, 3, 32}, .side = 7},
	{OP_TAKE, {3, 1, 5, 7}},
	{OP_TAKE, {5, 2, 3, 32}, .taken = 4},
	{OP_LINEAR, {16, 1, 1, 16}, 20, .bias = true, .activation = DEVICE_LOGISTIC},
	/* pools */
	{OP_MAX_POOL, {2, 8, 8, 16}, 0, 2, 2, 0},
	{OP_MAX_POOL, {2, 9, 7, 5}, 0, 3, 2, 1},
	{OP_MAX_POOL, {2, 7, 9, 64}, 0, 3, 1, 1},
	{OP_AVERAGE_POOL, {2, 8, 8, 16}, 0, 2, 2, 0},
	{OP_AVERAGE_POOL, {2, 9, 7, 5}, 0, 3, 2, 1},
	{OP_AVERAGE_POOL, {2, 9, 8, 6}, 0, 2, 2, 0, .pad_extra = 1},
	{OP_MAX_POOL, {2, 9, 8, 6}, 0, 3, 2, 0, .pad_extra = 1},
	{OP_GLOBAL_AVERAGE, {3, 4, 5, 19}},
	{OP_GLOBAL_AVERAGE, {3, 2, 2, 600}},
	{OP_GLOBAL_MAX, {3, 4, 3, 10}},
};
/* clang-format on */

TEST(fp32)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		check_case(&cases[i], DEVICE_FP32);
}

TEST(half)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		check_case(&cases[i], DEVICE_BF16);
}
