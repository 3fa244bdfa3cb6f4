/*
 * The interface between the trainer and the hardware: devices and their options here, parameters
 * and optimizers in params.h, graphs in graph.h, the operations that models record in ops.h, and
 * batches, steps and results in steps.h. Models, recipes and the loop use only these headers; cpu/
 * (oneDNN) and cuda/ implement them.
 *
 * A device holds parameter stores (named tensors with gradients and optimizer state) and graphs.
 * Several graphs (training sizes, evaluation) may share a store. Use a device and its objects from
 * one thread at a time; calls documented as "queued" may return before the work is done. Free
 * graphs before their store, and stores before the device.
 *
 * Several ranks (comm.h), each a process with its own device, train one model on global batches.
 * Each uploads the same number of samples. Gradients are summed over ranks at every update, so
 * parameters stay equal and results are those of the global batch. On training graphs all ranks
 * call device_graph_plan(), device_upload(), device_step() and device_results() in the same order;
 * evaluation is local to a rank. A call that fails on one rank leaves the others waiting: end them
 * with comm_abort(). Opening and planning differ: on GPUs ranks wait for each other there, and if
 * one fails all fail, with an error that begins with "rank N: ".
 *
 * Results are bitwise reproducible for the same device, precision, thread count and world; on a GPU
 * only with device_options.deterministic. Functions return 0, a negative errno, or a positive
 * outcome defined in their header. Error strings are sentences for users.
 */
#ifndef TRAINER_DEVICE_H
#define TRAINER_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#define DEVICE_ERROR_MAX 1024 /* size of an error string, including the NUL */
/* bytes of a parameter or operation name, including the NUL */
#define DEVICE_NAME_MAX 128

enum device_precision {
	/*
	 * the fastest precision that needs no loss scaling: bf16 where faster than fp32, else fp32
	 */
	DEVICE_AUTO = 0,
	DEVICE_FP32 = 1,
	DEVICE_BF16 = 2,
	DEVICE_FP16 = 3, /* with dynamic loss scaling, adjusted on the device */
};

struct comm; /* comm.h */
struct device;

/*
 * How far a backend fuses across operations. Backends without fusion ignore it. All levels give the
 * same results up to rounding.
 */
enum device_fusion {
	DEVICE_FUSION_AUTO = 0, /* the highest level that pays off in the precision */
	DEVICE_FUSION_NONE = 1, /* each textbook layer separately: the reference */
	DEVICE_FUSION_B = 2,    /* norm + residual + activation in one pass, forward and backward */
	/*
	 * DEVICE_FUSION_B, plus norms and activations in the prologues and epilogues of
	 * convolutions
	 */
	DEVICE_FUSION_C = 3,
};

struct device_options {
	enum device_precision precision;
	/*
	 * CPU threads including the caller's; 0 for all that affinity and cgroup allow,
	 * divided among the ranks on the machine
	 */
	unsigned threads;
	/*
	 * index of the device among several; with several ranks, a rank uses GPU index + local_rank
	 */
	unsigned index;
	struct comm *comm; /* the ranks; NULL for a single one. Must outlive the device */
	/*
	 * tensor parallelism: the ranks that hold one model together (device_params_divide()); NULL
	 * for none. `comm` then has one rank of each group, which have the same rank in their
	 * groups. Must outlive the device
	 */
	struct comm *group;
	/*
	 * check every tensor after every operation: a step fails with -EDOM and device_error()
	 * names the first non-finite one. Slow
	 */
	bool detect_anomaly;
	bool profile; /* time every operation (device_graph_layer); may hinder overlap */
	/* Backends may ignore the following fields where they do not apply. */
	enum device_fusion fusion;
	/*
	 * time candidate kernels on the device instead of trusting a heuristic; winners are cached
	 * for later runs
	 */
	bool autotune;
	/*
	 * fp32: convolutions and matrix products may round their inputs to tf32 (10 mantissa bits)
	 */
	bool tf32;
	bool deterministic; /* use only bitwise reproducible kernels; all CPU kernels are */
	/*
	 * upper limit in bytes of a graph's arena: planning a larger one fails with -ENOMEM. 0 for
	 * available memory
	 */
	uint64_t arena_bytes_max;
	/*
	 * launch each operation separately, without capture and replay (tests, debugging); results
	 * are bitwise the same
	 */
	bool eager;
};

struct device_info {
	/* hardware, library and instruction set; valid until device_close() */
	const char *name;
	enum device_precision precision; /* resolved, never DEVICE_AUTO */
	unsigned threads;                /* resolved; 0 if not applicable */
	/* CPUs available to the threads of this process; 0 if unknown or not applicable */
	unsigned cpus;
	/* dense FLOP/s in this precision at the highest clock; 0 if unknown */
	double peak_flops;
	uint64_t memory_bytes; /* free when opened; 0 if unknown */
};

/*
 * Opens a backend: "cpu", or "cuda" if built in; NULL for the best one present. options NULL for
 * defaults. -ENODEV if the backend is not built in, or its hardware or a library is missing;
 * -ENOTSUP if the precision is not supported. error is NULL or has DEVICE_ERROR_MAX bytes. On
 * success with backend NULL it says why better backends were skipped; otherwise success sets it to
 * "".
 */
int device_open(const char *backend, const struct device_options *options,
		struct device **ret_device, char *error);
/* Accepts NULL. Free graphs and stores first. */
void device_close(struct device *device);
const struct device_info *device_info(const struct device *device);
/* Waits until all queued work is done. */
int device_synchronize(struct device *device);
/* Error string of the last run-time failure, or ""; valid until the next call on the device. */
const char *device_error(const struct device *device);

#endif
