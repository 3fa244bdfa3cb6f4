#include "bench/device/kernel_cases.h"

#include "trainer/device/cuda/kernels/elementwise.h"
#include "trainer/device/cuda/kernels/ends.h"
#include "trainer/device/cuda/kernels/norm.h"
#include "trainer/device/cuda/kernels/pooling.h"

static void *take(struct slice *slice, uint64_t bytes)
{
	void *memory = slice->at;

	bytes = (bytes + 255) / 256 * 256;
	slice->at += bytes;
	slice->taken += bytes;
	return memory;
}

static void *reads(struct slice *slice, uint64_t bytes)
{
	slice->moved += bytes;
	return take(slice, bytes);
}

static void *writes(struct slice *slice, uint64_t bytes)
{
	return reads(slice, bytes);
}

static void *updates(struct slice *slice, uint64_t bytes)
{
	slice->moved += bytes;
	return reads(slice, bytes);
}

static uint64_t rows_of(const struct kernel_case *k)
{
	return (uint64_t)KERNEL_SAMPLES * k->h * k->w;
}

static uint64_t tensor_bytes(const struct kernel_bench *bench, const struct kernel_case *k)
{
	return rows_of(k) * k->c * cuda_element_size(bench->element);
}

static float *vector(const struct kernel_case *k, struct slice *slice)
{
	return reads(slice, k->c * sizeof(float));
}

static float *partial(const struct kernel_bench *bench, uint64_t rows, uint32_t channels,
		      struct slice *slice)
{
	return take(slice, columns_workspace(bench->device.multiprocessors, rows, channels));
}

/* ---- norm ---- */

static int statistics(const struct kernel_bench *bench, const struct kernel_case *k,
		      struct slice *slice)
{
	struct norm_statistics a = {
		.x = reads(slice, tensor_bytes(bench, k)),
		.rows = rows_of(k),
		.channels = k->c,
		.element = bench->element,
		.sum = vector(k, slice),
		.squares = vector(k, slice),
		.partial = partial(bench, rows_of(k), k->c, slice),
	};

	return norm_statistics(&bench->device, &a);
}

static int finalize(const struct kernel_bench *bench, const struct kernel_case *k,
		    struct slice *slice)
{
	struct norm_finalize a = {
		.sum = vector(k, slice),
		.squares = vector(k, slice),
		.gamma = vector(k, slice),
		.beta = vector(k, slice),
		.mean = vector(k, slice),
		.deviation = vector(k, slice),
		.scale = vector(k, slice),
		.bias = vector(k, slice),
		.scale16 = vector(k, slice),
		.bias16 = vector(k, slice),
		.running_mean = vector(k, slice),
		.running_var = vector(k, slice),
		.rows = rows_of(k),
		.channels = k->c,
		.element = bench->element,
		.epsilon = 1e-5f,
		.momentum = 0.1f,
	};

	return norm_finalize(&bench->device, &a);
}

static int running(const struct kernel_bench *bench, const struct kernel_case *k,
		   struct slice *slice)
{
	struct norm_running a = {
		.running_mean = vector(k, slice),
		.running_var = vector(k, slice),
		.gamma = vector(k, slice),
		.beta = vector(k, slice),
		.scale = vector(k, slice),
		.bias = vector(k, slice),
		.channels = k->c,
		.element = bench->element,
		.epsilon = 1e-5f,
	};

	return norm_running(&bench->device, &a);
}

static struct norm_apply apply_arguments(const struct kernel_bench *bench,
					 const struct kernel_case *k, struct slice *slice)
{
	return (struct norm_apply){
		.x = reads(slice, tensor_bytes(bench, k)),
		.scale = vector(k, slice),
		.bias = vector(k, slice),
		.y = writes(slice, tensor_bytes(bench, k)),
		.rows = rows_of(k),
		.channels = k->c,
		.element = bench->element,
		.activation = DEVICE_RELU,
	};
}

static int apply(const struct kernel_bench *bench, const struct kernel_case *k, struct slice *slice)
{
	struct norm_apply a = apply_arguments(bench, k, slice);

	return norm_apply(&bench->device, &a);
}

static int apply_gelu(const struct kernel_bench *bench, const struct kernel_case *k,
		      struct slice *slice)
{
	struct norm_apply a = apply_arguments(bench, k, slice);

	a.activation = DEVICE_GELU;
	return norm_apply(&bench->device, &a);
}

static int apply_residual(const struct kernel_bench *bench, const struct kernel_case *k,
			  struct slice *slice)
{
	struct norm_apply a = apply_arguments(bench, k, slice);

	a.residual = reads(slice, tensor_bytes(bench, k));
	return norm_apply(&bench->device, &a);
}

static int apply_dual(const struct kernel_bench *bench, const struct kernel_case *k,
		      struct slice *slice)
{
	struct norm_apply a = apply_arguments(bench, k, slice);

	a.residual = reads(slice, tensor_bytes(bench, k));
	a.scale2 = vector(k, slice);
	a.bias2 = vector(k, slice);
	return norm_apply(&bench->device, &a);
}

static struct norm_backward backward_arguments(const struct kernel_bench *bench,
					       const struct kernel_case *k, struct slice *slice)
{
	return (struct norm_backward){
		.dy = reads(slice, tensor_bytes(bench, k)),
		.x = reads(slice, tensor_bytes(bench, k)),
		.mean = vector(k, slice),
		.deviation = vector(k, slice),
		.sum = vector(k, slice),
		.products = vector(k, slice),
		.partial = partial(bench, rows_of(k), k->c, slice),
		.rows = rows_of(k),
		.channels = k->c,
		.element = bench->element,
		.activation = DEVICE_RELU,
	};
}

static int backward_sums(const struct kernel_bench *bench, const struct kernel_case *k,
			 struct slice *slice)
{
	struct norm_backward a = backward_arguments(bench, k, slice);

	a.scale = vector(k, slice);
	a.bias = vector(k, slice);
	return norm_backward(&bench->device, &a);
}

static int backward_sums_gelu(const struct kernel_bench *bench, const struct kernel_case *k,
			      struct slice *slice)
{
	struct norm_backward a = backward_arguments(bench, k, slice);

	a.scale = vector(k, slice);
	a.bias = vector(k, slice);
	a.activation = DEVICE_GELU;
	return norm_backward(&bench->device, &a);
}

static int backward_block(const struct kernel_bench *bench, const struct kernel_case *k,
			  struct slice *slice)
{
	struct norm_backward a = backward_arguments(bench, k, slice);

	a.dy2 = reads(slice, tensor_bytes(bench, k));
	a.y = reads(slice, tensor_bytes(bench, k));
	a.dz = writes(slice, tensor_bytes(bench, k));
	return norm_backward(&bench->device, &a);
}

static int bias_gradient(const struct kernel_bench *bench, const struct kernel_case *k,
			 struct slice *slice)
{
	struct norm_backward a = {
		.dy = reads(slice, tensor_bytes(bench, k)),
		.sum = vector(k, slice),
		.partial = partial(bench, rows_of(k), k->c, slice),
		.rows = rows_of(k),
		.channels = k->c,
		.element = bench->element,
	};

	return norm_backward(&bench->device, &a);
}

static int backward_finalize(const struct kernel_bench *bench, const struct kernel_case *k,
			     struct slice *slice)
{
	struct norm_backward_finalize a = {
		.sum = vector(k, slice),
		.products = vector(k, slice),
		.gamma = vector(k, slice),
		.mean = vector(k, slice),
		.deviation = vector(k, slice),
		.dgamma = vector(k, slice),
		.dbeta = vector(k, slice),
		.a = vector(k, slice),
		.b = vector(k, slice),
		.c = vector(k, slice),
		.rows = rows_of(k),
		.channels = k->c,
	};

	return norm_backward_finalize(&bench->device, &a);
}

static struct norm_backward_apply backward_apply_arguments(const struct kernel_bench *bench,
							   const struct kernel_case *k,
							   struct slice *slice)
{
	return (struct norm_backward_apply){
		.dz = reads(slice, tensor_bytes(bench, k)),
		.x = reads(slice, tensor_bytes(bench, k)),
		.a = vector(k, slice),
		.b = vector(k, slice),
		.c = vector(k, slice),
		.dx = writes(slice, tensor_bytes(bench, k)),
		.rows = rows_of(k),
		.channels = k->c,
		.element = bench->element,
	};
}

static int backward_apply(const struct kernel_bench *bench, const struct kernel_case *k,
			  struct slice *slice)
{
	struct norm_backward_apply a = backward_apply_arguments(bench, k, slice);

	return norm_backward_apply(&bench->device, &a);
}

static int backward_apply_relu(const struct kernel_bench *bench, const struct kernel_case *k,
			       struct slice *slice)
{
	struct norm_backward_apply a = backward_apply_arguments(bench, k, slice);

	a.scale = vector(k, slice);
	a.bias = vector(k, slice);
	a.activation = DEVICE_RELU;
	return norm_backward_apply(&bench->device, &a);
}

/* ---- pools ---- */

static struct pool_shape stem_pool(const struct kernel_bench *bench, const struct kernel_case *k)
{
	return (struct pool_shape){KERNEL_SAMPLES,     k->h, k->w, k->c, (k->h - 1) / 2 + 1,
				   (k->w - 1) / 2 + 1, 3,    2,    1,    bench->element};
}

static uint64_t pooled_elements(const struct pool_shape *shape)
{
	return (uint64_t)shape->n * shape->p * shape->q * shape->channels;
}

static uint64_t pooled_bytes(const struct pool_shape *shape)
{
	return pooled_elements(shape) * cuda_element_size(shape->element);
}

static int max_pool(const struct kernel_bench *bench, const struct kernel_case *k,
		    struct slice *slice)
{
	struct pool_max a = {.activation = DEVICE_RELU, .shape = stem_pool(bench, k)};

	a.x = reads(slice, tensor_bytes(bench, k));
	a.scale = vector(k, slice);
	a.bias = vector(k, slice);
	a.y = writes(slice, pooled_bytes(&a.shape));
	a.index = writes(slice, pooled_elements(&a.shape));
	return pool_max(&bench->device, &a);
}

static int max_pool_backward(const struct kernel_bench *bench, const struct kernel_case *k,
			     struct slice *slice)
{
	struct pool_max_backward a = {.shape = stem_pool(bench, k)};

	a.dy = reads(slice, pooled_bytes(&a.shape));
	a.index = reads(slice, pooled_elements(&a.shape));
	a.dx = writes(slice, tensor_bytes(bench, k));
	return pool_max_backward(&bench->device, &a);
}

/* 2 x 2, side by side */
static struct pool_shape paired_pool(const struct kernel_bench *bench, const struct kernel_case *k)
{
	return (struct pool_shape){KERNEL_SAMPLES, k->h, k->w, k->c, k->h / 2,
				   k->w / 2,       2,    2,    0,    bench->element};
}

static int max_pool_pairs(const struct kernel_bench *bench, const struct kernel_case *k,
			  struct slice *slice)
{
	struct pool_max a = {.shape = paired_pool(bench, k)};

	a.x = reads(slice, tensor_bytes(bench, k));
	a.y = writes(slice, pooled_bytes(&a.shape));
	a.index = writes(slice, pooled_elements(&a.shape));
	return pool_max(&bench->device, &a);
}

static int max_pool_pairs_backward(const struct kernel_bench *bench, const struct kernel_case *k,
				   struct slice *slice)
{
	struct pool_max_backward a = {.shape = paired_pool(bench, k)};

	a.dy = reads(slice, pooled_bytes(&a.shape));
	a.index = reads(slice, pooled_elements(&a.shape));
	a.dx = writes(slice, tensor_bytes(bench, k));
	return pool_max_backward(&bench->device, &a);
}

static int max_pool_norm_reduce(const struct kernel_bench *bench, const struct kernel_case *k,
				struct slice *slice)
{
	struct pool_max_norm_reduce a = {.activation = DEVICE_RELU, .shape = stem_pool(bench, k)};

	a.dy = reads(slice, pooled_bytes(&a.shape));
	a.index = reads(slice, pooled_elements(&a.shape));
	a.x = reads(slice, tensor_bytes(bench, k));
	a.scale = vector(k, slice);
	a.bias = vector(k, slice);
	a.mean = vector(k, slice);
	a.deviation = vector(k, slice);
	a.sum = vector(k, slice);
	a.products = vector(k, slice);
	a.partial = partial(bench, pooled_elements(&a.shape) / k->c, k->c, slice);
	return pool_max_norm_reduce(&bench->device, &a);
}

static int max_pool_norm_apply(const struct kernel_bench *bench, const struct kernel_case *k,
			       struct slice *slice)
{
	struct pool_max_norm_apply a = {.activation = DEVICE_RELU, .shape = stem_pool(bench, k)};

	a.dy = reads(slice, pooled_bytes(&a.shape));
	a.index = reads(slice, pooled_elements(&a.shape));
	a.x = reads(slice, tensor_bytes(bench, k));
	a.scale = vector(k, slice);
	a.bias = vector(k, slice);
	a.a = vector(k, slice);
	a.b = vector(k, slice);
	a.c = vector(k, slice);
	a.dx = writes(slice, tensor_bytes(bench, k));
	return pool_max_norm_apply(&bench->device, &a);
}

static int average(const struct kernel_bench *bench, const struct kernel_case *k,
		   struct slice *slice)
{
	struct pool_average a = {.shape = stem_pool(bench, k)};

	a.from = reads(slice, tensor_bytes(bench, k));
	a.to = writes(slice, pooled_bytes(&a.shape));
	return pool_average(&bench->device, &a);
}

static int average_backward(const struct kernel_bench *bench, const struct kernel_case *k,
			    struct slice *slice)
{
	struct pool_average a = {.shape = stem_pool(bench, k)};

	a.from = reads(slice, pooled_bytes(&a.shape));
	a.to = writes(slice, tensor_bytes(bench, k));
	return pool_average_backward(&bench->device, &a);
}

static struct pool_global global_arguments(const struct kernel_bench *bench,
					   const struct kernel_case *k, struct slice *slice)
{
	return (struct pool_global){
		.from = reads(slice, tensor_bytes(bench, k)),
		.to = writes(slice,
			     (uint64_t)KERNEL_SAMPLES * k->c * cuda_element_size(bench->element)),
		.n = KERNEL_SAMPLES,
		.positions = k->h * k->w,
		.channels = k->c,
		.element = bench->element,
	};
}

static int global_average(const struct kernel_bench *bench, const struct kernel_case *k,
			  struct slice *slice)
{
	struct pool_global a = global_arguments(bench, k, slice);

	return pool_global_average(&bench->device, &a);
}

static int global_max(const struct kernel_bench *bench, const struct kernel_case *k,
		      struct slice *slice)
{
	struct pool_global a = global_arguments(bench, k, slice);

	a.index = writes(slice, (uint64_t)KERNEL_SAMPLES * k->c * sizeof(*a.index));
	return pool_global_max(&bench->device, &a);
}

/* What backward reads is what forward writes. */
static void turn_round(struct pool_global *a)
{
	const void *x = a->from;

	a->from = a->to;
	a->to = (void *)(uintptr_t)x;
}

static int global_max_backward(const struct kernel_bench *bench, const struct kernel_case *k,
			       struct slice *slice)
{
	struct pool_global a = global_arguments(bench, k, slice);

	a.index = reads(slice, (uint64_t)KERNEL_SAMPLES * k->c * sizeof(*a.index));
	turn_round(&a);
	return pool_global_max_backward(&bench->device, &a);
}

static int global_average_backward(const struct kernel_bench *bench, const struct kernel_case *k,
				   struct slice *slice)
{
	struct pool_global a = global_arguments(bench, k, slice);

	turn_round(&a);
	return pool_global_average_backward(&bench->device, &a);
}

/* ---- ends ---- */

static int input(const struct kernel_bench *bench, const struct kernel_case *k, struct slice *slice)
{
	struct input_normalize a = {
		.step = bench->step,
		.y = writes(slice, rows_of(k) * 4 * cuda_element_size(bench->element)),
		.n = KERNEL_SAMPLES,
		.h = k->h,
		.w = k->w,
		.channels = 3,
		.padded = 4,
		.element = bench->element,
		.mean = {124, 116, 104},
		.std = {58, 57, 57},
	};

	slice->moved += rows_of(k) * 3;
	return input_normalize(&bench->device, &a);
}

static int loss(const struct kernel_bench *bench, const struct kernel_case *k, struct slice *slice)
{
	struct loss_softmax a = {
		.step = bench->step,
		.state = bench->state,
		.logits = reads(slice, rows_of(k) * k->c * sizeof(float)),
		.dlogits = writes(slice, tensor_bytes(bench, k)),
		.results = bench->results,
		.workspace = take(slice, loss_workspace(KERNEL_SAMPLES)),
		.n = KERNEL_SAMPLES,
		.classes = k->c,
		.logits_stride = k->c,
		.dlogits_stride = k->c,
		.dlogits_element = bench->element,
		.smoothing = 0.1f,
	};

	return loss_softmax(&bench->device, &a);
}

/* ---- elementwise ---- */

static int add(const struct kernel_bench *bench, const struct kernel_case *k, struct slice *slice)
{
	struct elementwise_add a = {
		.a = reads(slice, tensor_bytes(bench, k)),
		.b = reads(slice, tensor_bytes(bench, k)),
		.y = writes(slice, tensor_bytes(bench, k)),
		.count = rows_of(k) * k->c,
		.element = bench->element,
	};

	return elementwise_add(&bench->device, &a);
}

static int check(const struct kernel_bench *bench, const struct kernel_case *k, struct slice *slice)
{
	struct elementwise_check a = {
		.x = reads(slice, tensor_bytes(bench, k)),
		.count = rows_of(k) * k->c,
		.element = bench->element,
		.first = take(slice, sizeof(uint64_t)),
	};

	return elementwise_check(&bench->device, &a);
}

/* A weight's gradient: c x 9 h elements. */
static struct elementwise_copy copy_arguments(const struct kernel_bench *bench,
					      const struct kernel_case *k, struct slice *slice)
{
	uint32_t count = k->h * 9 * k->c;

	return (struct elementwise_copy){
		.from = reads(slice, (uint64_t)count * cuda_element_size(bench->element)),
		.to = writes(slice, count * sizeof(float)),
		.rows = count / k->c,
		.from_columns = k->c,
		.to_columns = k->c,
		.from_element = bench->element,
		.to_element = CUDA_F32,
	};
}

static int weight_gradient(const struct kernel_bench *bench, const struct kernel_case *k,
			   struct slice *slice)
{
	struct elementwise_copy a = copy_arguments(bench, k, slice);

	return elementwise_copy(&bench->device, &a);
}

static int weight_gradient_add(const struct kernel_bench *bench, const struct kernel_case *k,
			       struct slice *slice)
{
	struct elementwise_copy a = copy_arguments(bench, k, slice);

	a.add = true;
	slice->moved += a.rows * a.to_columns * sizeof(float);
	return elementwise_copy(&bench->device, &a);
}

static int fold(const struct kernel_bench *bench, const struct kernel_case *k, struct slice *slice)
{
	uint64_t count = (uint64_t)k->h * 9 * k->c;
	struct elementwise_fold a = {
		.w = reads(slice, count * sizeof(float)),
		.gamma = reads(slice, k->h * sizeof(float)),
		.beta = reads(slice, k->h * sizeof(float)),
		.running_mean = reads(slice, k->h * sizeof(float)),
		.running_var = reads(slice, k->h * sizeof(float)),
		.epsilon = 1e-5f,
		.to = writes(slice, count * cuda_element_size(bench->element)),
		.bias = writes(slice, k->h * sizeof(float)),
		.k = k->h,
		.positions = 9,
		.from_columns = k->c,
		.to_columns = k->c,
		.to_element = bench->element,
	};

	return elementwise_fold(&bench->device, &a);
}

/* ---- update ---- */

#define SLOT_BYTES ((uint64_t)KERNEL_PARAMETERS * sizeof(float))

static struct update update_arguments(const struct kernel_bench *bench, struct slice *slice)
{
	return (struct update){
		.chunks = bench->chunks,
		.chunk_count = bench->chunk_count,
		.gradient = reads(slice, SLOT_BYTES),
		.copy_element = bench->element,
		.step = bench->step,
		.state = bench->state,
		.results = bench->results,
		.scaling = {.growth = 1, .backoff = 1, .least = 1, .largest = 1},
		.partial = take(slice, bench->chunk_count * sizeof(double)),
		.decision = bench->decision,
	};
}

static int decide(const struct kernel_bench *bench, const struct kernel_case *k,
		  struct slice *slice)
{
	struct update a = update_arguments(bench, slice);

	return update_decide(&bench->device, &a);
}

static int update_sgd(const struct kernel_bench *bench, const struct kernel_case *k,
		      struct slice *slice)
{
	struct update a = update_arguments(bench, slice);

	a.optimizer =
		(struct device_optimizer_spec){.kind = DEVICE_SGD, .nesterov = true, .ema = true};
	a.value = updates(slice, SLOT_BYTES);
	a.moment1 = updates(slice, SLOT_BYTES);
	a.ema = updates(slice, SLOT_BYTES);
	slice->moved += (uint64_t)KERNEL_PARAMETERS * cuda_element_size(bench->element);
	return update_apply(&bench->device, &a);
}

static int update_adamw(const struct kernel_bench *bench, const struct kernel_case *k,
			struct slice *slice)
{
	struct update a = update_arguments(bench, slice);

	a.optimizer = (struct device_optimizer_spec){.kind = DEVICE_ADAMW, .ema = true};
	a.value = updates(slice, SLOT_BYTES);
	a.moment1 = updates(slice, SLOT_BYTES);
	a.moment2 = updates(slice, SLOT_BYTES);
	a.ema = updates(slice, SLOT_BYTES);
	slice->moved += (uint64_t)KERNEL_PARAMETERS * cuda_element_size(bench->element);
	return update_apply(&bench->device, &a);
}

const struct kernel_case kernel_cases[] = {
	{"norm_statistics", "112x112x64", statistics, 112, 112, 64},
	{"norm_statistics", "56x56x256", statistics, 56, 56, 256},
	{"norm_statistics", "14x14x1024", statistics, 14, 14, 1024},
	{"norm_statistics", "7x7x2048", statistics, 7, 7, 2048},
	{"norm_finalize", "256", finalize, 56, 56, 256},
	{"norm_finalize", "2048", finalize, 7, 7, 2048},
	{"norm_running", "2048", running, 7, 7, 2048},
	{"norm_apply", "relu 112x112x64", apply, 112, 112, 64},
	{"norm_apply", "relu 56x56x64", apply, 56, 56, 64},
	{"norm_apply", "relu 14x14x256", apply, 14, 14, 256},
	{"norm_apply", "gelu 56x56x64", apply_gelu, 56, 56, 64},
	{"norm_apply", "residual relu 56x56x256", apply_residual, 56, 56, 256},
	{"norm_apply", "residual relu 14x14x1024", apply_residual, 14, 14, 1024},
	{"norm_apply", "residual relu 7x7x2048", apply_residual, 7, 7, 2048},
	{"norm_apply", "two norms relu 56x56x256", apply_dual, 56, 56, 256},
	{"norm_backward", "relu from x, sums 56x56x64", backward_sums, 56, 56, 64},
	{"norm_backward", "relu from x, sums 14x14x256", backward_sums, 14, 14, 256},
	{"norm_backward", "gelu from x, sums 56x56x64", backward_sums_gelu, 56, 56, 64},
	{"norm_backward", "end of block 56x56x256", backward_block, 56, 56, 256},
	{"norm_backward", "end of block 14x14x1024", backward_block, 14, 14, 1024},
	{"norm_backward", "end of block 7x7x2048", backward_block, 7, 7, 2048},
	{"norm_backward", "bias 1000", bias_gradient, 1, 1, 1000},
	{"norm_backward_finalize", "256", backward_finalize, 56, 56, 256},
	{"norm_backward_apply", "56x56x256", backward_apply, 56, 56, 256},
	{"norm_backward_apply", "14x14x1024", backward_apply, 14, 14, 1024},
	{"norm_backward_apply", "relu from x 56x56x64", backward_apply_relu, 56, 56, 64},
	{"pool_max", "norm relu 3x3/2 112x112x64", max_pool, 112, 112, 64},
	{"pool_max", "2x2/2 31x31x64", max_pool_pairs, 31, 31, 64},
	{"pool_max_backward", "3x3/2 112x112x64", max_pool_backward, 112, 112, 64},
	{"pool_max_backward", "2x2/2 31x31x64", max_pool_pairs_backward, 31, 31, 64},
	{"pool_max_norm_reduce", "3x3/2 112x112x64", max_pool_norm_reduce, 112, 112, 64},
	{"pool_max_norm_apply", "3x3/2 112x112x64", max_pool_norm_apply, 112, 112, 64},
	{"pool_average", "3x3/2 56x56x256", average, 56, 56, 256},
	{"pool_average_backward", "3x3/2 56x56x256", average_backward, 56, 56, 256},
	{"pool_global_average", "7x7x2048", global_average, 7, 7, 2048},
	{"pool_global_average_backward", "7x7x2048", global_average_backward, 7, 7, 2048},
	{"pool_global_max", "7x7x2048", global_max, 7, 7, 2048},
	{"pool_global_max_backward", "7x7x2048", global_max_backward, 7, 7, 2048},
	{"input_normalize", "bytes 224x224x3 to 4", input, 224, 224, 4},
	{"loss_softmax", "1000", loss, 1, 1, 1000},
	{"elementwise_add", "56x56x256", add, 56, 56, 256},
	{"elementwise_check", "56x56x256", check, 56, 56, 256},
	{"elementwise_copy", "gradient 512x3x3x512", weight_gradient, 512, 0, 512},
	{"elementwise_copy", "gradient 512x3x3x512, added", weight_gradient_add, 512, 0, 512},
	{"elementwise_fold", "512x3x3x512", fold, 512, 0, 512},
	{"update_decide", "25.6 M", decide, 0, 0, 0},
	{"update_apply", "SGD, EMA, 25.6 M", update_sgd, 0, 0, 0},
	{"update_apply", "AdamW, EMA, 25.6 M", update_adamw, 0, 0, 0},
};
const unsigned kernel_case_count = sizeof(kernel_cases) / sizeof(*kernel_cases);
