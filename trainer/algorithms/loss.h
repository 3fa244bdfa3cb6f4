/*
 * The training loss of a recipe: softmax cross-entropy; per-class binary cross-entropy (Wightman,
 * Touvron, Jegou: "ResNet strikes back", 2021, section 3.2; smoothing as in timm's
 * BinaryCrossEntropy); Kullback-Leibler divergence, as torch.nn.KLDivLoss with batchmean on
 * log-probabilities; class weights as in torch.nn.CrossEntropyLoss(weight=...); added to any of
 * them the divergence from a teacher, with the share that the recipe gives it (Hinton, Vinyals,
 * Dean: "Distilling the Knowledge in a Neural Network", 2015, section 2). Evaluations use plain
 * softmax cross-entropy whatever the recipe, so that losses are comparable. Pure functions.
 */
#pragma once

#include "trainer/device/device.h"
#include "trainer/recipe/recipe.h"

struct loss {
	/* without the fields that the model sets: name and logit_scale */
	struct device_loss_spec spec;
	float class_weights[RECIPE_NUMBERS_MAX];
};

/*
 * spec points into *ret_loss. balanced: weights by class for train.class_weights = balanced; NULL
 * if not yet known, then all are 1.
 */
void loss_of(const struct recipe_train *recipe, enum device_mode mode, const float *balanced,
	     struct loss *ret_loss);
/*
 * -EINVAL with a sentence (RECIPE_ERROR_MAX bytes) if the loss does not fit this number of classes.
 */
int loss_check(const struct recipe_train *recipe, uint32_t classes, char *error);
