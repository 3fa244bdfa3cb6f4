/*
 * train.class_weights = balanced: counts the labels of the training set. The daemon hands out
 * samples, which would have to be read and decoded; their index, of the files that this process
 * opens for it, has the labels alone.
 */
#include "trainer/algorithms/balance.h"
#include "format/packimg.h"
#include "trainer/run/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Samples without a label, and those whose record is damaged, are of no class. */
static void balance_count(const struct packimg *dataset, uint32_t classes, uint64_t *counts)
{
	struct packimg_sample sample;
	for (uint64_t i = 0; i < packimg_count(dataset); i++)
		if (!packimg_sample(dataset, i, &sample) && sample.label >= 0 &&
		    sample.label < (int32_t)classes)
			counts[sample.label]++;
}

/* Rank 0 */
static int balance_read(struct run *run, uint64_t *counts)
{
	const char *path = run->recipe->data.train;
	struct packimg_error problem = {{0}};
	struct packimg *dataset;
	int r = packimg_open(path, &dataset, &problem);
	if (r)
		return run_fail(run, r, "train.class_weights = balanced: data.train = %.300s: %s",
				path, *problem.text ? problem.text : strerror(-r));
	if (memcmp(packimg_uuid(dataset), &run->data.train_uuid, sizeof(struct uuid)) == 0)
		balance_count(dataset, run->data.classes, counts);
	else
		r = run_fail(run, -ESTALE,
			     "train.class_weights = balanced: data.train = %.600s is another "
			     "dataset than the daemon has found: start again",
			     path);
	packimg_close(dataset);
	return r;
}

static int balance_weigh(struct run *run)
{
	uint32_t classes = run->data.classes;
	uint64_t *counts = calloc(classes, sizeof(*counts));
	int r = counts ? balance_read(run, counts) : run_fail(run, -ENOMEM, "out of memory");
	if (!r)
		balance_weights(counts, classes, run->balanced);
	free(counts);
	return r;
}

int run_balance(struct run *run)
{
	size_t size = run->data.classes * sizeof(*run->balanced);
	if (!run->recipe->train.class_weights.word)
		return 0;
	run->balanced = calloc(1, size);
	int r = run->balanced ? 0 : run_fail(run, -ENOMEM, "out of memory");
	if (!r && !run->comm->rank)
		r = balance_weigh(run);
	r = ranks_agree(run->comm, r, run->error);
	if (!r && (r = comm_broadcast(run->comm, run->balanced, size, 0)))
		run_fail(run, r, "%s", comm_error(run->comm));
	return r;
}
