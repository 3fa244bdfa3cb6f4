/*
 * --evaluate --predictions: records the predicted class of each image, accuracy by class, and the
 * confusion matrix. Keeps the predictions for all samples of data.val in host memory; logits arrive
 * batch by batch.
 */
#pragma once

#include "proto/client/feed.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/class_names.h"
#include "trainer/run/context.h"

struct predictions;

/* -ENOMEM. */
int predictions_new(struct predictions **ret_predictions, uint32_t classes, double logit_scale);
void predictions_free(struct predictions *predictions); /* accepts NULL */
/* logits: [batch->count][classes], before multiplication by logit_scale. -ENOMEM. */
int predictions_add(struct predictions *predictions, const struct feed_batch *batch,
		    const float *logits);
/*
 * Writes the files of predictions, classes and confusion matrix, with the evaluation's totals from
 * the state. class_names: [classes], NULL if unknown.
 */
int predictions_write(struct predictions *predictions, struct run_context *ctx,
		      const struct checkpoint_state *state, const char *const *class_names);
