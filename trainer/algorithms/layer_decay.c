#include "trainer/algorithms/layer_decay.h"

#include "trainer/device/params.h"

#include <math.h>

int layer_decay_apply(const struct recipe *recipe, const struct model *model,
		      struct device_params *params)
{
	double decay = recipe->optim.layer_decay;
	for (size_t i = 0; decay < 1 && i < device_params_count(params); i++) {
		struct device_param *param = device_params_at(params, i);
		double factor = pow(decay, model_blocks_after(model, param));
		int r = device_param_scale_rate(param, (float)factor);
		if (r < 0)
			return r;
	}
	return 0;
}
