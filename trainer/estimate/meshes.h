/*
 * `trainer --plan --ranks=N`: the meshes into which N GPUs can divide a training step, data x
 * tensor with each train.shard, with memory, bytes sent and time by rank (mesh_formulas.h,
 * mesh_schedule.h). All figures are predictions. The fastest mesh comes first; those that do not
 * fit into the GPU's memory come last.
 */
#pragma once

#include "trainer/estimate/estimate_internal.h"

/* -EINVAL if DEVICE.json has no link for so many ranks, or no mesh divides the batch. */
int meshes_report(struct estimate *estimate, FILE *file, char *error);
