/* Opens a GPU device. */
#include "trainer/device/cuda/cuda.h"
#include "trainer/device/cuda/lowering/roofline.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define COMPUTE_MIN                                                                                \
	8 /* the least compute capability that kernels/ are compiled for, major part               \
	   */

int cuda_check(struct cuda_device *device, int result, const char *what)
{
	if (result >= 0)
		return 0;
	return device_fail(&device->base, result, "%s: %s", what, gpu_error());
}

void *cuda_allocate(int *r, uint64_t bytes)
{
	void *memory = NULL;

	if (*r == 0)
		*r = gpu_allocate(bytes, &memory);
	return memory;
}

void *cuda_allocate_host(int *r, uint64_t bytes)
{
	void *memory = NULL;

	if (*r == 0)
		*r = gpu_allocate_host(bytes, &memory);
	return memory;
}

gpu_event cuda_event(int *r, bool timing)
{
	gpu_event event = NULL;

	if (*r == 0)
		*r = gpu_event_new(timing, &event);
	return event;
}

int cuda_copy_in(struct cuda_device *device, void *to, const void *from, uint64_t bytes)
{
	int r = gpu_copy_in(to, from, bytes, device->compute);

	return r < 0 ? r : gpu_stream_synchronize(device->compute);
}

int cuda_copy_out(struct cuda_device *device, void *to, const void *from, uint64_t bytes)
{
	int r = gpu_copy_out(to, from, bytes, device->compute);

	return r < 0 ? r : gpu_stream_synchronize(device->compute);
}

static void cuda_close(struct device *base)
{
	struct cuda_device *device = (struct cuda_device *)base;

	cuda_ranks_close(device);
	if (device->engines_open)
		engines_close(&device->engines);
	gpu_stream_free(device->copy);
	gpu_stream_free(device->compute);
	free(device);
}

static int cuda_synchronize(struct device *base)
{
	struct cuda_device *device = (struct cuda_device *)base;
	int r = gpu_stream_synchronize(device->copy);

	if (r == 0)
		r = gpu_stream_synchronize(device->compute);
	return cuda_check(device, r, "waiting for queued work");
}

/* ---- registered host memory ---- */

bool cuda_is_registered(const struct cuda_device *device, const void *memory, size_t bytes)
{
	const char *from = memory;

	for (int i = 0; i < CUDA_REGISTERED_MAX; i++) {
		const struct cuda_registered *range = &device->registered[i];

		if (range->memory && from >= range->memory &&
		    from + bytes <= range->memory + range->bytes)
			return !range->staged;
	}
	return false;
}

/*
 * A read-only mapping can be registered without the read-only flag only if the GPU uses the host's
 * page tables.
 */
static int open_register_range(struct cuda_device *device, struct cuda_registered *range,
			       bool writable)
{
	bool read_only = !writable && device->gpu.registers_read_only;
	int r = gpu_register_host((void *)(uintptr_t)range->memory, range->bytes, read_only);

	if (r == 0)
		return 0;
	if (!writable) {
		range->memory = NULL;
		return device_fail(&device->base, DEVICE_WANTS_WRITABLE,
				   "the GPU cannot register memory that is mapped read-only (%s)",
				   gpu_error());
	}
	range->staged = true;
	return device_fail(
		&device->base, DEVICE_STAGED,
		"%zu bytes of host memory could not be registered (%s); the kernel's log (dmesg) "
		"may have why the driver could not pin them",
		range->bytes, gpu_error());
}

static int cuda_register_host(struct device *base, const void *memory, size_t bytes, bool writable)
{
	struct cuda_device *device = (struct cuda_device *)base;
	struct cuda_registered *unused = NULL;
	const char *from = memory;

	for (int i = 0; i < CUDA_REGISTERED_MAX; i++) {
		struct cuda_registered *range = &device->registered[i];

		if (!range->memory)
			unused = range;
		else if (from < range->memory + range->bytes && range->memory < from + bytes)
			return device_fail(base, -EEXIST, "the memory was announced before");
	}
	if (!unused)
		return device_fail(base, DEVICE_STAGED,
				   "%d ranges of host memory are registered already",
				   CUDA_REGISTERED_MAX);
	*unused = (struct cuda_registered){from, bytes, false};
	return open_register_range(device, unused, writable);
}

static void cuda_unregister_host(struct device *base, const void *memory)
{
	struct cuda_device *device = (struct cuda_device *)base;

	for (int i = 0; i < CUDA_REGISTERED_MAX; i++) {
		struct cuda_registered *range = &device->registered[i];

		if (range->memory != memory)
			continue;
		gpu_stream_synchronize(device->copy);
		if (!range->staged)
			gpu_unregister_host((void *)(uintptr_t)memory);
		range->memory = NULL;
	}
}

static const struct device_ops cuda_ops = {
	.close = cuda_close,
	.synchronize = cuda_synchronize,
	.register_host = cuda_register_host,
	.unregister_host = cuda_unregister_host,
	.params_allocate = cuda_params_allocate,
	.params_release = cuda_params_release,
	.param_write = cuda_param_write,
	.param_read = cuda_param_read,
	.params_exchange = cuda_params_exchange,
	.drop_gradients = cuda_drop_gradients,
	.get_state = cuda_get_state,
	.set_state = cuda_set_state,
	.graph_plan = cuda_graph_plan,
	.graph_release = cuda_graph_release,
	.graph_info = cuda_graph_info,
	.graph_layer = cuda_graph_layer,
	.upload = cuda_upload,
	.upload_done = cuda_upload_done,
	.step = cuda_step,
	.forward = cuda_forward,
	.warmup = cuda_warmup,
	.evaluate = cuda_evaluate,
	.results = cuda_results,
	.logits = cuda_logits,
	.logits_keep = cuda_logits_keep,
	.memory_new = cuda_memory_new,
	.memory_free = cuda_memory_free,
	.memory_read = cuda_memory_read,
	.losses = cuda_losses,
	.value_read = cuda_value_read,
	.value_write = cuda_value_write,
};

/* ---- opening ---- */

static void open_choose(struct cuda_device *device, const struct device_options *options)
{
	enum device_precision precision = options->precision;

	/* the fastest precision that needs no loss scaling */
	if (precision == DEVICE_AUTO)
		precision = DEVICE_BF16;
	device->base.info.precision = precision;
	device->base.copies_weights = precision != DEVICE_FP32;
	device->element = precision == DEVICE_FP16   ? CUDA_F16
			  : precision == DEVICE_BF16 ? CUDA_BF16
						     : CUDA_F32;
	device->fusion = program_fusion(options->fusion, device->element);
}

static void open_describe(struct cuda_device *device)
{
	const struct gpu_properties *gpu = &device->gpu;
	struct device_info *info = &device->base.info;

	snprintf(device->name, sizeof(device->name),
		 "%s, compute capability %d.%d, driver for CUDA %d.%d, %s%s%s", gpu->name,
		 gpu->compute_major, gpu->compute_minor, gpu->driver_version / 1000,
		 gpu->driver_version % 1000 / 10, device->engines.name,
		 device->collective ? ", " : "",
		 device->collective ? collective_name(device->collective) : "");
	info->name = device->name;
	info->peak_flops = roofline_peak_flops(gpu, device->element, device->base.options.tf32);
	info->memory_bytes = gpu->memory_free;
}

/*
 * Reports a missing GPU. Suggests fewer ranks, except on the machine's first rank, which needs a
 * GPU in any case.
 */
static void open_explain_missing(const struct cuda_device *device, int r, char *error)
{
	const struct comm *comm = device->base.options.comm;

	if (r == -ENODEV && comm && comm->local_rank > 0)
		snprintf(error, DEVICE_ERROR_MAX,
			 "one of %u ranks on this machine, it takes the GPU of index %u: %s; start "
			 "no more ranks than there are GPUs",
			 comm->local_world, device->index, gpu_error());
	else
		snprintf(error, DEVICE_ERROR_MAX, "%s", gpu_error());
}

static int open_parts(struct cuda_device *device, char *error)
{
	const struct device_options *options = &device->base.options;
	struct engines_options engines = {
		.gpu = &device->gpu, .tf32 = options->tf32, .autotune = options->autotune};

	device->index = options->index + (options->comm ? options->comm->local_rank : 0);
	int r = gpu_select(device->index, &device->gpu);

	if (r < 0) {
		open_explain_missing(device, r, error);
		return r;
	}
	if (device->gpu.compute_major < COMPUTE_MIN) {
		snprintf(error, DEVICE_ERROR_MAX,
			 "%s has compute capability %d.%d, the CUDA backend needs %d.0 (Ampere) or "
			 "newer",
			 device->gpu.name, device->gpu.compute_major, device->gpu.compute_minor,
			 COMPUTE_MIN);
		return -ENODEV;
	}
	*error = 0;
	r = engines_open(&engines, &device->engines, error);
	if (r < 0)
		return r;
	device->engines_open = true;
	snprintf(device->base.error, sizeof(device->base.error), "%s", error);
	r = gpu_stream_new(&device->compute);
	if (r == 0)
		r = gpu_stream_new(&device->copy);
	if (r < 0)
		snprintf(error, DEVICE_ERROR_MAX, "%s", gpu_error());
	device->kernels = (struct kernel_device){
		.stream = device->compute,
		.multiprocessors = device->gpu.multiprocessors,
	};
	return r;
}

int device_cuda_open(const struct device_options *options, struct device **ret_device, char *error)
{
	struct cuda_device *device = calloc(1, sizeof(*device));

	if (!device)
		return -ENOMEM;
	device->base.ops = &cuda_ops;
	device->base.options = *options;
	device->base.bucket_elements = collective_elements;
	/* the ranks of a group compute what is not divided each for itself, to the same bits */
	device->base.options.deterministic |= options->group != NULL;
	int r = cuda_ranks_open(device, open_parts(device, error), error);
	if (r < 0) {
		cuda_close(&device->base);
		return r;
	}
	open_choose(device, options);
	open_describe(device);
	*ret_device = &device->base;
	return 0;
}
