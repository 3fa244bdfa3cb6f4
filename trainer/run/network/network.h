/*
 * The network of a run: parameters, model, and the graphs planned for it. Call network_deinit()
 * before device_close(). Only the functions below write the struct.
 */
#pragma once

#include "trainer/algorithms/freeze.h"
#include "trainer/algorithms/freeze_layers.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/device/graph.h"
#include "trainer/device/params.h"
#include "trainer/model/model.h"
#include "trainer/run/context.h"
#include "trainer/run/input/data.h"

/* A graph planned for one image size. */
struct run_graph {
	struct device_graph *graph;
	uint32_t count, height, width;
};

struct network {
	struct run_context *ctx;
	const struct data *data;
	struct device_params *params;
	struct model *model;
	float *class_weights; /* [classes] with train.class_weights = balanced, else NULL */
	struct freeze freeze;
	struct freeze_layers freeze_layers;
	struct run_graph train, eval;
	/* with train.selective_backprop: graph for batches of the kept samples */
	struct run_graph selected;
	bool warned; /* the device's warning about planning was printed */
};

/*
 * Creates the parameters and the model, without initial values. Creates no optimizer state for an
 * evaluation.
 */
int network_init(struct network *network);
void network_deinit(struct network *network);
/*
 * With train.class_weights = balanced: computes the weights on all ranks (class_weights.c).
 */
int network_init_class_weights(struct network *network);

/* Makes a graph fit an image size; plans a new one only if needed. */
int network_plan(struct network *network, struct run_graph *graph, enum device_mode mode,
		 uint32_t count, uint32_t height, uint32_t width);
bool run_graph_fits(const struct run_graph *graph, uint32_t count, uint32_t height, uint32_t width);
void run_graph_drop(struct run_graph *graph);
/* Frees the graph, but keeps its size for planning it again. */
void run_graph_release(struct run_graph *graph);
/* Frees the training graphs; they must have no pending steps. */
void network_drop_training(struct network *network);

/*
 * network_freeze_is_due() returns true if, at the state's step, train.freeze thaws parameters or
 * train.freeze_level freezes more layers. network_move_freeze() applies the change, and records in
 * state->begun the first update of thawed parameters. Call network_drop_training() afterwards.
 */
bool network_freeze_is_due(const struct network *network, const struct checkpoint_state *state,
			   uint64_t steps);
int network_move_freeze(struct network *network, struct checkpoint_state *state, uint64_t steps);

/* True if the model has running statistics. */
bool network_has_batch_norms(const struct network *network);
/*
 * Selects the weights to evaluate and export after the state's step: an average, if the recipe has
 * one and it has begun.
 */
enum device_slot network_eval_slot(const struct network *network,
				   const struct checkpoint_state *state);
