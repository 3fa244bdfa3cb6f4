/*
 * The loss that a recipe trains with: softmax cross-entropy; binary cross-entropy of each class by
 * itself (Wightman, Touvron, Jegou: "ResNet strikes back", 2021, section 3.2; smoothing as timm's
 * BinaryCrossEntropy spreads it); Kullback-Leibler divergence, as torch.nn.KLDivLoss with batchmean
 * has it of log-probabilities; classes weighted as by torch.nn.CrossEntropyLoss(weight=...); beside
 * any of them the divergence from a teacher, for as large a share as the recipe gives it (Hinton,
 * Vinyals, Dean: "Distilling the Knowledge in a Neural Network", 2015, section 2).
 * Evaluations have softmax of plain labels whatever the recipe, so that their losses can be
 * compared. Plain functions.
 */
#pragma once

#include "trainer/device/device.h"
#include "trainer/recipe/recipe.h"

struct loss {
	struct device_loss_spec spec; /* but for what the model says: name and logit_scale */
	float class_weights[RECIPE_NUMBERS_MAX];
};

/*
 * spec points into *ret_loss. balanced: what train.class_weights = balanced comes to, by class;
 * NULL where that is not known, and all are 1.
 */
void loss_of(const struct recipe_train *recipe, enum device_mode mode, const float *balanced,
	     struct loss *ret_loss);
/* -EINVAL with a sentence (RECIPE_ERROR_MAX bytes) where it is none for so many classes. */
int loss_check(const struct recipe_train *recipe, uint32_t classes, char *error);
