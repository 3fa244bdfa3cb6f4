/*
 * The GPU runtime as the CUDA backend uses it: memory, streams, events, captured graphs. Two
 * implementations: runtime.c over the CUDA runtime; and tests/gpu/emulation/gpu.c with memory.c,
 * which runs work in host memory, as late as CUDA might, so that the backend can be tested without
 * a GPU.
 *
 * Functions return 0 or a negative errno: -ENOMEM, -ENODEV, -ENOTSUP, or -EIO for other CUDA
 * errors; gpu_error() then has CUDA's text. Work on a stream runs in order; only events order work
 * on different streams. All objects belong to the thread that uses the device.
 */
#ifndef TRAINER_DEVICE_CUDA_GPU_H
#define TRAINER_DEVICE_CUDA_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Forward declarations of cudaStream_t, cudaEvent_t and cudaGraphExec_t, so that this header needs
 * none of CUDA's.
 */
typedef struct CUstream_st *gpu_stream;
typedef struct CUevent_st *gpu_event;
typedef struct CUgraphExec_st *gpu_graph;

struct gpu_properties {
	char name[128];
	int compute_major, compute_minor;
	uint32_t multiprocessors;
	uint32_t clock_khz;                  /* maximal clock of a multiprocessor; 0 if unknown */
	uint64_t memory_total, memory_free;  /* bytes */
	bool registers_read_only;            /* host memory mapped read-only can be registered */
	int driver_version, runtime_version; /* in CUDA's encoding: 13000 is 13.0 */
};

/*
 * Selects the device for this thread. -ENODEV if there is no such device, no driver, or a driver
 * older than the toolkit; the error text says which.
 */
int gpu_select(unsigned index, struct gpu_properties *ret_properties);
const char *gpu_error(void); /* message of the last failure; valid until the next call */

/* Device memory, aligned to 256 bytes, uninitialised. */
int gpu_allocate(uint64_t bytes, void **ret_memory);
void gpu_free(void *memory); /* accepts NULL */
/* Page-locked host memory. */
int gpu_allocate_host(uint64_t bytes, void **ret_memory);
void gpu_free_host(void *memory); /* accepts NULL */
/*
 * Page-locks existing host memory, so that copies from it use DMA. -ENOTSUP if the device cannot.
 */
int gpu_register_host(void *memory, uint64_t bytes, bool read_only);
void gpu_unregister_host(void *memory);

int gpu_stream_new(gpu_stream *ret_stream);
void gpu_stream_free(gpu_stream stream); /* accepts NULL */
int gpu_stream_synchronize(gpu_stream stream);
int gpu_event_new(bool timing, gpu_event *ret_event);
void gpu_event_free(gpu_event event); /* accepts NULL */
int gpu_event_record(gpu_event event, gpu_stream stream);
int gpu_event_query(gpu_event event); /* 0 if passed or never recorded; -EAGAIN if not yet */
int gpu_event_synchronize(gpu_event event);
/* Both events must have passed and have been created with timing. */
int gpu_event_elapsed(gpu_event from, gpu_event to, float *ret_milliseconds);
int gpu_stream_wait(gpu_stream stream, gpu_event event);

/*
 * Queued copies. Host memory must stay valid until they have run and should be page-locked:
 * otherwise the call may wait for the copy.
 */
int gpu_copy_in(void *device, const void *host, uint64_t bytes, gpu_stream stream);
int gpu_copy_out(void *host, const void *device, uint64_t bytes, gpu_stream stream);
int gpu_copy(void *to, const void *from, uint64_t bytes, gpu_stream stream); /* device to device */
int gpu_fill(void *memory, uint8_t value, uint64_t bytes, gpu_stream stream);

/*
 * A kernel of kernels/: `function` is CUDA's handle, or in emulation the function that each thread
 * runs, void (*)(const void *arguments). gpu_launch() queues blocks_x * blocks_y blocks of
 * `threads` threads (a multiple of 32) with a copy of the kernel's single argument.
 */
struct gpu_kernel {
	const char *name;
	const void *function;
};
int gpu_launch(const struct gpu_kernel *kernel, uint32_t blocks_x, uint32_t blocks_y,
	       uint32_t threads, const void *arguments, size_t size, gpu_stream stream);

/*
 * Between begin and end, work queued on the stream is recorded instead of run, including work on
 * other streams that wait for its events.
 */
int gpu_capture_begin(gpu_stream stream);
/* Ends the recording even on failure. */
int gpu_capture_end(gpu_stream stream, gpu_graph *ret_graph);
int gpu_graph_launch(gpu_graph graph, gpu_stream stream);
void gpu_graph_free(gpu_graph graph); /* accepts NULL */

/* Ranges for profilers (NVTX). */
void gpu_range_push(const char *name);
void gpu_range_pop(void);

#endif
