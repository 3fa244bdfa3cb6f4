/*
 * For tests of how the CUDA backend runs steps: a small residual net (a stem, a pool, a block that
 * keeps its shape, one that halves it, a classifier) on the emulated GPU or another backend,
 * batches for it, and comparisons of what two such nets have learned. Failures end the test through
 * cmocka's assertions.
 */
#pragma once

#include "tests/unit/trainer/device/test_device_reference.h"

#include <cmocka.h>

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
	unsigned count, used; /* parameters declared; taken while recording */
	struct device_graph *graph;
	struct device_value *stem; /* the first convolution's result */
};

/*
 * Opens the backend's device with a net to train on it; returns what planning its graph does, with
 * the error's text. close_net() in any case.
 */
int open_net(struct net *net, const char *backend, const struct device_options *options,
	     char *error);
/* On the emulated GPU, where it must succeed. */
void open_emulated(struct net *net, enum device_precision precision, enum device_fusion fusion,
		   bool eager);
void close_net(struct net *net);
/* Records the net into net->graph, which is new. */
void record(struct net *net);
/* Another graph of the net's parameters, planned; the caller frees it. */
struct device_graph *plan_another(struct net *net, enum device_mode mode);

/* Random images and labels; the same for the same seed. */
void make_batch(struct batch *batch, uint64_t seed);
struct device_batch view(const struct batch *batch);
struct device_hyper hyper_at(unsigned t);
/* Feeds batch t and steps on it; returns the step's number, for results_of(), which waits. */
uint64_t step(struct net *net, unsigned t, bool update);
struct device_results results_of(struct net *net, uint64_t number);
void set_scale(struct net *net, double scale, uint64_t age);

/* Bit for bit: parameters with all that is kept of them, and counters; what steps gave. */
void assert_same(struct net *a, struct net *b);
void assert_same_results(const struct device_results *a, const struct device_results *b);
