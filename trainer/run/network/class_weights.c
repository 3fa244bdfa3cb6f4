/* train.class_weights = balanced: counts the labels of the training set. */
#include "trainer/algorithms/class_weights.h"
#include "trainer/run/input/labels.h"
#include "trainer/run/network/network.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * Adds the labels of a dataset of data.train to frequency[classes]: their number, or in a mixture
 * the part of all draws. counts: [classes], zeros.
 */
static int class_weights_count(struct network *network, const struct train_dataset *dataset,
			       uint64_t *counts, double *frequency)
{
	struct run_context *ctx = network->ctx;
	uint32_t classes = network->data->classes;
	struct labels labels;
	char problem[RUN_ERROR_MAX];
	int r = labels_read(ctx, dataset->path, &dataset->uuid, classes, counts, &labels);
	if (r < 0) {
		snprintf(problem, sizeof(problem), "%s", ctx->error);
		return run_fail(ctx, r,
				"train.class_weights = balanced: data.train = %.300s: %.600s",
				dataset->path, problem);
	}
	bool mixed = network->data->order->count > 1;
	double scale = mixed ? dataset->drawn / (double)labels.samples : 1;
	for (uint32_t i = 0; i < classes; i++)
		frequency[i] += scale * (double)counts[i];
	return 0;
}

/* Rank 0. */
static int class_weights_compute(struct network *network)
{
	const struct train_order *order = network->data->order;
	uint32_t classes = network->data->classes;
	uint64_t *counts = calloc(classes, sizeof(*counts));
	double *frequency = calloc(classes, sizeof(*frequency));
	int r = counts && frequency ? 0 : run_fail(network->ctx, -ENOMEM, "out of memory");
	for (uint32_t i = 0; r == 0 && i < order->count; i++) {
		memset(counts, 0, classes * sizeof(*counts));
		r = class_weights_count(network, &order->datasets[i], counts, frequency);
	}
	if (r == 0)
		class_weights_balanced(frequency, classes, network->class_weights);
	free(counts);
	free(frequency);
	return r;
}

int network_init_class_weights(struct network *network)
{
	struct run_context *ctx = network->ctx;
	size_t size = network->data->classes * sizeof(*network->class_weights);
	if (!ctx->recipe->train.class_weights.word)
		return 0;
	network->class_weights = calloc(1, size);
	int r = network->class_weights ? 0 : run_fail(ctx, -ENOMEM, "out of memory");
	if (r == 0 && !ctx->comm->rank)
		r = class_weights_compute(network);
	r = ranks_agree(ctx->comm, r, ctx->error);
	if (r < 0)
		return r;
	r = comm_broadcast(ctx->comm, network->class_weights, size, 0);
	return r < 0 ? run_fail(ctx, r, "%s", comm_error(ctx->comm)) : 0;
}
