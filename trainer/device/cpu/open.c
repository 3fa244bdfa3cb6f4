/* Opens the CPU device. */
#include "trainer/device/cpu/cpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

/*
 * Elements per bucket (1 MiB): large enough to make the start of a sum cheap, small enough for most
 * to start early.
 */
#define BUCKET_ELEMENTS ((size_t)1 << 18)

static void cpu_close(struct device *base)
{
	struct cpu_device *device = (struct cpu_device *)base;

	if (device->attributes)
		dnnl_primitive_attr_destroy(device->attributes);
	if (device->stream)
		dnnl_stream_destroy(device->stream);
	if (device->engine)
		dnnl_engine_destroy(device->engine);
	loops_deinit(&device->loops);
	free(device);
}

static int cpu_synchronize(struct device *base)
{
	return 0; /* all calls are synchronous */
}

static const struct device_ops cpu_ops = {
	.close = cpu_close,
	.synchronize = cpu_synchronize,
	.params_allocate = cpu_params_allocate,
	.params_release = cpu_params_release,
	.param_write = cpu_param_write,
	.param_read = cpu_param_read,
	.params_exchange = cpu_params_exchange,
	.drop_gradients = cpu_drop_gradients,
	.get_state = cpu_get_state,
	.set_state = cpu_set_state,
	.graph_plan = cpu_graph_plan,
	.graph_release = cpu_graph_release,
	.graph_info = cpu_graph_info,
	.graph_layer = cpu_graph_layer,
	.upload = cpu_upload,
	.upload_done = cpu_upload_done,
	.step = cpu_step,
	.forward = cpu_forward,
	.warmup = cpu_warmup,
	.evaluate = cpu_evaluate,
	.results = cpu_results,
	.logits = cpu_logits,
	.losses = cpu_losses,
	.value_read = cpu_value_read,
	.value_write = cpu_value_write,
};

/*
 * Applies LOADERD_ISA to oneDNN as well. oneDNN only accepts it before its first primitive, so for
 * a second device in a process it has no effect.
 */
static int cap_instruction_set(char *error)
{
	static const dnnl_cpu_isa_t caps[] = {
		dnnl_cpu_isa_sse41,
		dnnl_cpu_isa_avx2,
		dnnl_cpu_isa_avx512_core,
	};
	int r = cpu_isa_check(error, DEVICE_ERROR_MAX);

	if (r < 0)
		return r;
	if (cpu_isa_cap() < CPU_ISA_AVX512)
		dnnl_set_max_cpu_isa(caps[cpu_isa_cap()]);
	return 0;
}

static bool has_isa(dnnl_cpu_isa_t wanted)
{
	return (dnnl_get_effective_cpu_isa() & wanted) == wanted;
}

static int choose_precision(enum device_precision requested, enum device_precision *ret_precision,
			    char *error)
{
	if (requested == DEVICE_FP16)
		return sentence_fail(
			error, DEVICE_ERROR_MAX, -ENOTSUP,
			"the CPU does not train in fp16; use fp32, or bf16 where it has AVX-512");
	if (requested == DEVICE_BF16 && !has_isa(dnnl_cpu_isa_avx512_core))
		return sentence_fail(
			error, DEVICE_ERROR_MAX, -ENOTSUP,
			"bf16 on the CPU needs AVX-512, which this one has not got; use fp32");
	/* Without AVX-512 BF16 instructions, oneDNN emulates bf16 at a third of fp32's speed. */
	*ret_precision = requested != DEVICE_AUTO                 ? requested
			 : has_isa(dnnl_cpu_isa_avx512_core_bf16) ? DEVICE_BF16
								  : DEVICE_FP32;
	return 0;
}

static void brand(char *ret_brand, size_t size)
{
	snprintf(ret_brand, size, "CPU");
#if defined(__x86_64__) || defined(__i386__)
	unsigned words[12];

	if ((unsigned)__get_cpuid_max(0x80000000, NULL) < 0x80000004)
		return;
	for (unsigned i = 0; i < 3; i++)
		__get_cpuid(0x80000002 + i, &words[i * 4], &words[i * 4 + 1], &words[i * 4 + 2],
			    &words[i * 4 + 3]);
	snprintf(ret_brand, size, "%.48s", (const char *)words);
#endif
}

static void describe(struct cpu_device *device)
{
	const dnnl_version_t *version = dnnl_version();
	struct device_info *info = &device->base.info;
	long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
	char model[64];

	brand(model, sizeof(model));
	snprintf(device->name, sizeof(device->name),
		 "%s, %u thread%s, oneDNN %d.%d.%d%s, own kernels %s", model,
		 device->thread_pool.threads, device->thread_pool.threads == 1 ? "" : "s",
		 version->major, version->minor, version->patch,
		 has_isa(dnnl_cpu_isa_avx512_core_bf16) ? " with avx512_bf16"
		 : has_isa(dnnl_cpu_isa_avx512_core)    ? " with avx512"
		 : has_isa(dnnl_cpu_isa_avx2)           ? " with avx2"
							: "",
		 device->loops.kernels->isa);
	info->name = device->name;
	info->threads = device->thread_pool.threads;
	info->cpus = device->thread_pool.cpus;
	info->memory_bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}

int device_cpu_open(const struct device_options *options, struct device **ret_device, char *error)
{
	enum device_precision precision = options->precision;

	if (options->index)
		return sentence_fail(error, DEVICE_ERROR_MAX, -ENODEV,
				     "there is one CPU device, not one of index %u",
				     options->index);
	int r = cap_instruction_set(error);
	if (r < 0)
		return r;
	r = choose_precision(options->precision, &precision, error);
	if (r < 0)
		return r;
	struct cpu_device *device = calloc(1, sizeof(*device));
	if (!device)
		return -ENOMEM;
	device->base.ops = &cpu_ops;
	device->base.options = *options;
	device->base.bucket_elements = BUCKET_ELEMENTS;
	device->base.info.precision = precision;
	device->element = precision == DEVICE_BF16 ? ELEMENT_BF16 : ELEMENT_F32;
	r = thread_pool_init(&device->thread_pool, options->threads,
			     options->comm ? options->comm->sharers : 1);
	if (r < 0)
		snprintf(error, DEVICE_ERROR_MAX, "%u threads are too many", options->threads);
	if (r == 0)
		r = cpu_status(dnnl_engine_create(&device->engine, dnnl_cpu, 0));
	if (r == 0)
		r = cpu_status(dnnl_stream_create(&device->stream, device->engine,
						  dnnl_stream_default_flags));
	if (r == 0) {
		device->attributes = cpu_attributes();
		r = device->attributes ? 0 : -ENOMEM;
	}
	if (r < 0) {
		cpu_close(&device->base);
		return r;
	}
	device->loops.thread_pool = &device->thread_pool;
	device->loops.kernels = kernels_of(cpu_isa_chosen());
	describe(device);
	*ret_device = &device->base;
	return 0;
}
