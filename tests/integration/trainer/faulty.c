/*
 * Linked into a trainer to make its backward pass wrong, which --check-gradients must detect: all
 * gradients of one parameter are 3 % too small, as if a small term were missing.
 */
#include "trainer/device/device.h"

#include <string.h>

int __real_device_param_read(struct device_param *param, enum device_slot slot, float *ret_values);
int __wrap_device_param_read(struct device_param *param, enum device_slot slot, float *ret_values);

int __wrap_device_param_read(struct device_param *param, enum device_slot slot, float *ret_values)
{
	int r = __real_device_param_read(param, slot, ret_values);
	bool faulty = strcmp(device_param_spec(param)->name, "layer2.0.conv1.weight") == 0;
	for (size_t i = 0; i < device_param_elements(param) && !r && slot == DEVICE_GRAD && faulty;
	     i++)
		ret_values[i] *= 0.97F;
	return r;
}
