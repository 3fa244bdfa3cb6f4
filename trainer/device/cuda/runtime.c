/*
 * Implements gpu.h with the CUDA runtime, which is linked statically: without a driver its calls
 * fail, but the trainer loads.
 */
#include "format/base/text/sentence.h"
#include "trainer/device/cuda/gpu.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <string.h>

#define fail(result, ...) sentence_fail(error_text, sizeof(error_text), (result), __VA_ARGS__)

static char error_text[512];

const char *gpu_error(void)
{
	return error_text;
}

/* True for errors of an earlier kernel, which this and all later calls return. */
static bool gpu_is_fault(cudaError_t status)
{
	switch (status) {
	case cudaErrorIllegalAddress:
	case cudaErrorMisalignedAddress:
	case cudaErrorInvalidAddressSpace:
	case cudaErrorInvalidPc:
	case cudaErrorIllegalInstruction:
	case cudaErrorHardwareStackError:
	case cudaErrorLaunchFailure:
	case cudaErrorLaunchTimeout:
		return true;
	default:
		return false;
	}
}

/* Returns 0, or the errno of a status with its text and the call's name. */
static int gpu_check(cudaError_t status, const char *call)
{
	int r = -EIO;

	if (status == cudaSuccess)
		return 0;
	cudaGetLastError(); /* clear the error, so that the next launch does not report it */
	if (status == cudaErrorMemoryAllocation)
		r = -ENOMEM;
	else if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver ||
		 status == cudaErrorInvalidDevice || status == cudaErrorDevicesUnavailable)
		r = -ENODEV;
	else if (status == cudaErrorNotSupported)
		r = -ENOTSUP;
	return fail(r, "%s: %s (%s)%s", call, cudaGetErrorString(status), cudaGetErrorName(status),
		    gpu_is_fault(status)
			    ? "; it is of work queued before, which CUDA_LAUNCH_BLOCKING=1 "
			      "and --detect-anomaly name"
			    : "");
}

static int gpu_check_driver(int *ret_driver, int *ret_runtime)
{
	int devices = 0;
	cudaError_t status;

	*ret_driver = *ret_runtime = 0;
	cudaDriverGetVersion(ret_driver);
	cudaRuntimeGetVersion(ret_runtime);
	if (!*ret_driver)
		return fail(-ENODEV,
			    "no NVIDIA driver was found (libcuda.so.1); in a container, start it "
			    "with access to the GPU");
	if (*ret_driver / 1000 < *ret_runtime / 1000)
		return fail(-ENODEV,
			    "the NVIDIA driver supports CUDA %d.%d, this program was built with "
			    "CUDA %d.%d; install a newer driver",
			    *ret_driver / 1000, *ret_driver % 1000 / 10, *ret_runtime / 1000,
			    *ret_runtime % 1000 / 10);
	status = cudaGetDeviceCount(&devices);
	if (status == cudaErrorNoDevice || (status == cudaSuccess && !devices))
		return fail(
			-ENODEV,
			"the NVIDIA driver shows no GPU: `nvidia-smi -L` lists those that there "
			"are, and CUDA_VISIBLE_DEVICES may hide them");
	return gpu_check(status, "looking for GPUs");
}

int gpu_select(unsigned index, struct gpu_properties *ret_properties)
{
	struct cudaDeviceProp device;
	size_t available = 0, total = 0;
	int devices = 0, registers = 0, khz = 0, driver, runtime;

	int r = gpu_check_driver(&driver, &runtime);
	if (r < 0)
		return r;
	cudaGetDeviceCount(&devices);
	if (index >= (unsigned)devices)
		return fail(-ENODEV, "there %s %d GPU%s, numbered from 0, and none of index %u",
			    devices == 1 ? "is" : "are", devices, devices == 1 ? "" : "s", index);
	r = gpu_check(cudaSetDevice((int)index), "choosing the GPU");
	/* waiting threads sleep: the loader needs the CPUs */
	if (r == 0)
		r = gpu_check(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync),
			      "choosing the GPU");
	if (r == 0)
		r = gpu_check(cudaGetDeviceProperties(&device, (int)index),
			      "asking for properties");
	if (r == 0)
		r = gpu_check(cudaMemGetInfo(&available, &total), "asking for free memory");
	if (r < 0)
		return r;
	memset(ret_properties, 0, sizeof(*ret_properties));
	snprintf(ret_properties->name, sizeof(ret_properties->name), "%.127s", device.name);
	ret_properties->compute_major = device.major;
	ret_properties->compute_minor = device.minor;
	ret_properties->multiprocessors = (uint32_t)device.multiProcessorCount;
	ret_properties->memory_total = total;
	ret_properties->memory_free = available;
	cudaDeviceGetAttribute(&registers, cudaDevAttrHostRegisterReadOnlySupported, (int)index);
	ret_properties->registers_read_only = registers;
	cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, (int)index);
	ret_properties->clock_khz = khz > 0 ? (uint32_t)khz : 0;
	ret_properties->driver_version = driver;
	ret_properties->runtime_version = runtime;
	return 0;
}

/* ---- memory ---- */

int gpu_allocate(uint64_t bytes, void **ret_memory)
{
	return gpu_check(cudaMalloc(ret_memory, bytes ? bytes : 1), "allocating device memory");
}

void gpu_free(void *memory)
{
	cudaFree(memory);
}

int gpu_allocate_host(uint64_t bytes, void **ret_memory)
{
	return gpu_check(cudaHostAlloc(ret_memory, bytes ? bytes : 1, cudaHostAllocDefault),
			 "allocating page-locked memory");
}

void gpu_free_host(void *memory)
{
	cudaFreeHost(memory);
}

int gpu_register_host(void *memory, uint64_t bytes, bool read_only)
{
	return gpu_check(
		cudaHostRegister(memory, bytes,
				 read_only ? cudaHostRegisterReadOnly : cudaHostRegisterDefault),
		"registering host memory");
}

void gpu_unregister_host(void *memory)
{
	cudaHostUnregister(memory);
}

/* ---- streams and events ---- */

int gpu_stream_new(gpu_stream *ret_stream)
{
	return gpu_check(cudaStreamCreateWithFlags(ret_stream, cudaStreamNonBlocking),
			 "creating a stream");
}

void gpu_stream_free(gpu_stream stream)
{
	if (stream)
		cudaStreamDestroy(stream);
}

int gpu_stream_synchronize(gpu_stream stream)
{
	return gpu_check(cudaStreamSynchronize(stream), "waiting for queued work");
}

int gpu_event_new(bool timing, gpu_event *ret_event)
{
	unsigned flags = cudaEventBlockingSync | (timing ? 0 : cudaEventDisableTiming);

	return gpu_check(cudaEventCreateWithFlags(ret_event, flags), "creating an event");
}

void gpu_event_free(gpu_event event)
{
	if (event)
		cudaEventDestroy(event);
}

int gpu_event_record(gpu_event event, gpu_stream stream)
{
	return gpu_check(cudaEventRecord(event, stream), "recording an event");
}

int gpu_event_query(gpu_event event)
{
	cudaError_t status = cudaEventQuery(event);

	if (status == cudaErrorNotReady) {
		cudaGetLastError();
		return -EAGAIN;
	}
	return gpu_check(status, "asking for an event");
}

int gpu_event_synchronize(gpu_event event)
{
	return gpu_check(cudaEventSynchronize(event), "waiting for an event");
}

int gpu_event_elapsed(gpu_event from, gpu_event to, float *ret_milliseconds)
{
	return gpu_check(cudaEventElapsedTime(ret_milliseconds, from, to), "time between events");
}

int gpu_stream_wait(gpu_stream stream, gpu_event event)
{
	return gpu_check(cudaStreamWaitEvent(stream, event, cudaEventWaitDefault),
			 "ordering streams by an event");
}

/* ---- copies ---- */

int gpu_copy_in(void *device, const void *host, uint64_t bytes, gpu_stream stream)
{
	return gpu_check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream),
			 "copying to the device");
}

int gpu_copy_out(void *host, const void *device, uint64_t bytes, gpu_stream stream)
{
	return gpu_check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream),
			 "copying from the device");
}

int gpu_copy(void *to, const void *from, uint64_t bytes, gpu_stream stream)
{
	return gpu_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream),
			 "copying within the device");
}

int gpu_fill(void *memory, uint8_t value, uint64_t bytes, gpu_stream stream)
{
	return gpu_check(cudaMemsetAsync(memory, value, bytes, stream), "filling device memory");
}

/* ---- kernels ---- */

int gpu_launch(const struct gpu_kernel *kernel, uint32_t blocks_x, uint32_t blocks_y,
	       uint32_t threads, const void *arguments, size_t size, gpu_stream stream)
{
	void *list[] = {(void *)(uintptr_t)arguments};
	dim3 grid = {blocks_x, blocks_y, 1}, block = {threads, 1, 1};

	return gpu_check(cudaLaunchKernel(kernel->function, grid, block, list, 0, stream),
			 kernel->name);
}

/* ---- captured work ---- */

int gpu_capture_begin(gpu_stream stream)
{
	return gpu_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
			 "beginning a capture");
}

int gpu_capture_end(gpu_stream stream, gpu_graph *ret_graph)
{
	cudaGraph_t graph = NULL;
	int r = gpu_check(cudaStreamEndCapture(stream, &graph), "ending a capture");

	if (r == 0)
		r = gpu_check(cudaGraphInstantiate(ret_graph, graph, 0), "instantiating a graph");
	if (graph)
		cudaGraphDestroy(graph);
	return r;
}

int gpu_graph_launch(gpu_graph graph, gpu_stream stream)
{
	return gpu_check(cudaGraphLaunch(graph, stream), "launching a graph");
}

void gpu_graph_free(gpu_graph graph)
{
	if (graph)
		cudaGraphExecDestroy(graph);
}

/* ---- profilers ---- */

void gpu_range_push(const char *name)
{
	nvtxRangePushA(name);
}

void gpu_range_pop(void)
{
	nvtxRangePop();
}
