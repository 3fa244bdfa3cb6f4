#include "trainer/algorithms/loss.h"
#include "trainer/algorithms/mix.h"

#include "format/base/text/sentence.h"

#include <errno.h>
#include <string.h>

void loss_of(const struct recipe *whole, enum device_mode mode, const float *balanced,
	     struct loss *ret_loss)
{
	static const enum device_loss_kind kinds[] = {
		[RECIPE_LOSS_SOFTMAX] = DEVICE_SOFTMAX, [RECIPE_LOSS_SIGMOID] = DEVICE_SIGMOID,
		[RECIPE_LOSS_KL] = DEVICE_KL,           [RECIPE_LOSS_SQUARED] = DEVICE_SQUARED,
		[RECIPE_LOSS_HUBER] = DEVICE_HUBER,
	};
	const struct recipe_train *recipe = &whole->train;
	bool dense = *whole->data.target;
	memset(ret_loss, 0, sizeof(*ret_loss));
	if (dense || mode == DEVICE_TRAIN)
		ret_loss->spec.kind = kinds[recipe->loss];
	if (dense)
		ret_loss->spec.targets = DEVICE_DENSE;
	else if (mode == DEVICE_TRAIN && mix_is_on(recipe))
		ret_loss->spec.targets = DEVICE_TWO_LABELS;
	if (mode != DEVICE_TRAIN)
		return;
	ret_loss->spec.smoothing = (float)recipe->label_smoothing;
	if (*recipe->teacher) {
		ret_loss->spec.teacher_weight = (float)recipe->teacher_weight;
		ret_loss->spec.teacher_temperature = (float)recipe->temperature;
	}
	for (unsigned i = 0; i < recipe->class_weights.count; i++)
		ret_loss->class_weights[i] = (float)recipe->class_weights.value[i];
	if (recipe->class_weights.count)
		ret_loss->spec.class_weights = ret_loss->class_weights;
	if (recipe->class_weights.word)
		ret_loss->spec.class_weights = balanced;
}

int loss_check(const struct recipe_train *recipe, uint32_t classes, char *error)
{
	unsigned count = recipe->class_weights.count;
	if (!count || count == classes)
		return 0;
	return sentence_fail(error, RECIPE_ERROR_MAX, -EINVAL,
			     "train.class_weights has %u number%s, but there %s %u class%s: give "
			     "one number per class, in order",
			     count, count == 1 ? "" : "s", classes == 1 ? "is" : "are", classes,
			     classes == 1 ? "" : "es");
}
