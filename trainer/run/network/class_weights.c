/* train.class_weights = balanced: counts the labels of the training set. */
#include "trainer/algorithms/class_weights.h"
#include "trainer/run/input/labels.h"
#include "trainer/run/network/network.h"

#include <errno.h>
#include <stdlib.h>

/* Rank 0: counts the labels. */
static int class_weights_count(struct network *network, uint64_t *counts)
{
	struct run_context *ctx = network->ctx;
	const struct data *data = network->data;
	const char *path = ctx->recipe->data.train;
	struct labels labels;
	char problem[RUN_ERROR_MAX];
	int r = labels_read(ctx, path, &data->train_uuid, data->classes, counts, &labels);
	if (r == 0)
		return 0;
	snprintf(problem, sizeof(problem), "%s", ctx->error);
	return run_fail(ctx, r, "train.class_weights = balanced: data.train = %.300s: %.600s", path,
			problem);
}

static int class_weights_compute(struct network *network)
{
	uint32_t classes = network->data->classes;
	uint64_t *counts = calloc(classes, sizeof(*counts));
	if (!counts)
		return run_fail(network->ctx, -ENOMEM, "out of memory");
	int r = class_weights_count(network, counts);
	if (r == 0)
		class_weights_balanced(counts, classes, network->class_weights);
	free(counts);
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
