/*
 * Linked into a trainer to make it fail.
 * - Its backward pass is wrong, which --check-gradients must detect: all gradients of one parameter
 *   are 3 % too small, as if a small term were missing.
 * - With the environment variable FAULTY_CHECKPOINT=N, it is killed while it writes its part of the
 *   N-th sharded checkpoint.
 */
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/device/params.h"
#include "trainer/device/parts.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static int checkpoints;

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

int __real_device_param_read_part(struct device_param *param, enum device_slot slot,
				  const struct device_part *part, float *ret_values);
int __wrap_device_param_read_part(struct device_param *param, enum device_slot slot,
				  const struct device_part *part, float *ret_values);

int __wrap_device_param_read_part(struct device_param *param, enum device_slot slot,
				  const struct device_part *part, float *ret_values)
{
	const char *fatal = getenv("FAULTY_CHECKPOINT");
	if (fatal && slot == DEVICE_EMA && checkpoints == atoi(fatal))
		raise(SIGKILL);
	return __real_device_param_read_part(param, slot, part, ret_values);
}

int __real_checkpoint_save_part(const char *folder, struct device_params *params, const char *id,
				uint64_t step, char *error);
int __wrap_checkpoint_save_part(const char *folder, struct device_params *params, const char *id,
				uint64_t step, char *error);

int __wrap_checkpoint_save_part(const char *folder, struct device_params *params, const char *id,
				uint64_t step, char *error)
{
	checkpoints++;
	return __real_checkpoint_save_part(folder, params, id, step, error);
}
