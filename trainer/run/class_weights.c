/* train.class_weights = balanced: counts the labels of the training set. */
#include "trainer/algorithms/class_weights.h"
#include "trainer/run/labels.h"
#include "trainer/run/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Rank 0 */
static int class_weights_read(struct run *run, uint64_t *counts)
{
	const char *path = run->recipe->data.train;
	struct labels labels;
	char problem[RUN_ERROR_MAX];
	int r = run_read_labels(run, path, &run->data.train_uuid, counts, &labels);
	if (!r)
		return 0;
	snprintf(problem, sizeof(problem), "%s", run->error);
	return run_fail(run, r, "train.class_weights = balanced: data.train = %.300s: %.600s", path,
			problem);
}

static int class_weights_weigh(struct run *run)
{
	uint32_t classes = run->data.classes;
	uint64_t *counts = calloc(classes, sizeof(*counts));
	int r = counts ? class_weights_read(run, counts) : run_fail(run, -ENOMEM, "out of memory");
	if (!r)
		class_weights_balanced(counts, classes, run->class_weights);
	free(counts);
	return r;
}

int run_init_class_weights(struct run *run)
{
	size_t size = run->data.classes * sizeof(*run->class_weights);
	if (!run->recipe->train.class_weights.word)
		return 0;
	run->class_weights = calloc(1, size);
	int r = run->class_weights ? 0 : run_fail(run, -ENOMEM, "out of memory");
	if (!r && !run->comm->rank)
		r = class_weights_weigh(run);
	r = ranks_agree(run->comm, r, run->error);
	if (!r && (r = comm_broadcast(run->comm, run->class_weights, size, 0)))
		run_fail(run, r, "%s", comm_error(run->comm));
	return r;
}
