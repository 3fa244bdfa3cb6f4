/*
 * Shared code for tests of how the CUDA backend runs steps: a small residual net (a stem, a pool, a
 * block that keeps its shape, a block that halves it, a classifier) on the emulated GPU or another
 * backend, batches for it, and comparisons of two such nets after training. A failure ends the test
 * through cmocka's assertions.
 */
#pragma once

#include "tests/test.h"
#include "tests/unit/trainer/device/test_device_reference.h"

#define SAMPLES    4
#define SIDE       12
#define CLASSES    10
#define PARAMS_MAX 40
#define IMAGE      (SIDE * SIDE * 3)
#define ELEMENTS   20000 /* more than the largest parameter has */

struct batch {
	uint8_t images[SAMPLES * IMAGE];
	int32_t labels[SAMPLES];
};

struct net {
	struct device *device;
	struct device_params *params;
	struct device_param *p[PARAMS_MAX];
	unsigned count, used; /* parameters declared; parameters used so far while recording */
	struct device_graph *graph;
	struct device_value *stem; /* output of the first convolution */
};

/*
 * Opens the backend's device with a trainable net. Returns the result of planning its graph and
 * sets the error text. Call close_net() in any case.
 */
int open_net(struct net *net, const char *backend, const struct device_options *options,
	     char *error);
/* Opens a net on the emulated GPU; fails the test on an error. */
void open_emulated(struct net *net, enum device_precision precision, enum device_fusion fusion,
		   bool eager);
void close_net(struct net *net);
/* Records the net into net->graph, which must be new. */
void record_net(struct net *net);
/* Plans another graph over the net's parameters; the caller frees it. */
struct device_graph *plan_another(struct net *net, enum device_mode mode);

/* Makes random images and labels; equal seeds give equal batches. */
void make_batch(struct batch *batch, uint64_t seed);
struct device_batch view(const struct batch *batch);
struct device_hyper hyper_at(unsigned t);
/* Feeds batch t and runs a step on it. Returns the step's number for results_of(), which waits. */
uint64_t step(struct net *net, unsigned t, bool update);
struct device_results results_of(struct net *net, uint64_t number);
void set_scale(struct net *net, double scale, uint64_t age);

/*
 * Both compare bit for bit: the parameters with all their slots and the counters, and the results
 * of a step.
 */
void assert_same(struct net *a, struct net *b);
void assert_same_results(const struct device_results *a, const struct device_results *b);
