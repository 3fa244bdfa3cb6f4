#include "trainer/algorithms/freeze_layers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint32_t freeze_layers_depth(const struct recipe_train *recipe, uint64_t step, uint64_t steps,
			     uint64_t batches_per_epoch, uint32_t layers)
{
	uint64_t begun = batches_per_epoch ? step - step % batches_per_epoch : 0;
	double elapsed = steps ? (double)begun / (double)steps : 0;
	if (elapsed <= recipe->freeze_start || !layers)
		return 0;
	double share = (elapsed - recipe->freeze_start) / (1 - recipe->freeze_start);
	/* the last layer is never frozen */
	return (uint32_t)(recipe->freeze_level * share * (layers - 1));
}

/* Length of a name without its last component: "layer1.0.conv1" of "layer1.0.conv1.weight". */
static size_t stem(const char *name)
{
	const char *dot = strrchr(name, '.');
	return dot ? (size_t)(dot - name) : 0;
}

static bool same_layer(const char *name, const char *other)
{
	size_t length = stem(name);
	return length == stem(other) && strncmp(name, other, length) == 0;
}

int freeze_layers_init(struct freeze_layers *freeze, const struct recipe_train *recipe,
		       const struct device_params *params)
{
	const char *before = NULL;
	*freeze = (struct freeze_layers){0};
	if (recipe->freeze_level == 0)
		return 0;
	freeze->layer = calloc(device_params_count(params) + 1, sizeof(*freeze->layer));
	if (!freeze->layer)
		return -ENOMEM;
	for (size_t i = 0; i < device_params_count(params); i++) {
		const struct device_param_spec *spec =
			device_param_spec(device_params_at(params, i));
		if (spec->kind == DEVICE_BUFFER)
			continue;
		if (!before || !same_layer(spec->name, before))
			freeze->count++;
		freeze->layer[i] = freeze->count;
		before = spec->name;
	}
	return 0;
}

void freeze_layers_deinit(struct freeze_layers *freeze)
{
	free(freeze->layer);
	*freeze = (struct freeze_layers){0};
}

void freeze_layers_apply(struct freeze_layers *freeze, struct device_params *params, uint32_t depth)
{
	freeze->depth = depth;
	for (size_t i = 0; i < device_params_count(params); i++)
		if (freeze->layer[i] && freeze->layer[i] <= depth)
			device_param_freeze(device_params_at(params, i), true);
}
