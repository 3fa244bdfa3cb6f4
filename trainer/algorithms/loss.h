/*
 * The training loss of a recipe, one of:
 * - softmax cross-entropy
 * - per-class binary cross-entropy (Wightman, Touvron, Jegou 2021, "ResNet strikes back", section
 *   3.2; smoothing as in timm's BinaryCrossEntropy)
 * - Kullback-Leibler divergence, as torch.nn.KLDivLoss with batchmean on log-probabilities
 * - squared error and Huber's function of the error, as torch.nn.MSELoss and torch.nn.SmoothL1Loss
 *
 * Class weights apply as in torch.nn.CrossEntropyLoss(weight=...). With a teacher, the divergence
 * from its output is added, weighted as the recipe says (Hinton, Vinyals, Dean 2015, "Distilling
 * the Knowledge in a Neural Network", section 2). Evaluations use plain softmax
 * cross-entropy, so that losses are comparable; with data.target, the loss of training without
 * smoothing and weights. Pure functions.
 */
#pragma once

#include "trainer/device/graph.h"
#include "trainer/device/ops.h"
#include "trainer/recipe/recipe.h"

struct loss {
	/* all fields except those that the model sets: name and logit_scale */
	struct device_loss_spec spec;
	float class_weights[RECIPE_NUMBERS_MAX];
};

/*
 * Sets *ret_loss, whose spec points into it. balanced: class weights for train.class_weights =
 * balanced; NULL if not known yet, which sets all of them to 1.
 */
void loss_of(const struct recipe *recipe, enum device_mode mode, const float *balanced,
	     struct loss *ret_loss);
/*
 * -EINVAL with a sentence (RECIPE_ERROR_MAX bytes) if the loss does not support this number of
 * classes.
 */
int loss_check(const struct recipe_train *recipe, uint32_t classes, char *error);
