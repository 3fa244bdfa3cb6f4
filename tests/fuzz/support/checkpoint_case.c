#include "tests/fuzz/support/checkpoint_case.h"

static int declare(struct device_params *params)
{
	static const struct device_param_spec specs[] = {
		{.name = "conv1.weight", .kind = DEVICE_CONV_WEIGHT, .shape = {2, 1, 3, 2}},
		{.name = "bn1.weight", .kind = DEVICE_VECTOR, .shape = {2}, .group = 1},
		{.name = "bn1.running_mean", .kind = DEVICE_BUFFER, .shape = {2}},
		{.name = "fc.weight", .kind = DEVICE_LINEAR_WEIGHT, .shape = {3, 2}},
	};
	struct device_optimizer_spec optimizer = {.kind = DEVICE_SGD, .ema = true};
	int r = 0;

	for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]) && r == 0; i++) {
		struct device_param *param;

		r = device_param_add(params, &specs[i], &param);
	}
	return r < 0 ? r : device_params_allocate(params, &optimizer);
}

int checkpoint_case_open(struct device **ret_device, struct device_params **ret_params)
{
	struct device_options options = {.precision = DEVICE_FP32, .threads = 1};
	struct device_params *params = NULL;
	struct device *device;
	int r = device_open("cpu", &options, &device, NULL);

	if (r < 0)
		return r;
	r = device_params_new(device, &params);
	if (r == 0)
		r = declare(params);
	if (r < 0) {
		device_params_free(params);
		device_close(device);
		return r;
	}
	*ret_device = device;
	*ret_params = params;
	return 0;
}
