/* Initial values of the parameters. */
#include "trainer/device/params.h"
#include "trainer/model/layers.h"
#include "trainer/model/random.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool model_needs_images(const struct model *model)
{
	for (size_t i = 0; i < model->param_count; i++)
		if (model->params[i].init == LAYER_INIT_WHITEN)
			return true;
	return false;
}

/* [1 2 1] / 4 in both dimensions. */
static void fill_blur(size_t count, float *values)
{
	static const float blur[] = {0.25f, 0.5f, 0.25f};
	for (size_t i = 0; i < count; i++)
		values[i] = blur[i / 3 % 3] * blur[i % 3];
}

/* Sets the first C of the filters [K][R][R][C] to the identity. */
static void fill_identity(const uint32_t *shape, float *values)
{
	uint32_t k = shape[0], window = shape[1], c = shape[3];
	size_t filter = (size_t)window * window * c, centre = (window / 2) * (window + 1);
	for (uint32_t i = 0; i < (k < c ? k : c); i++) {
		memset(values + i * filter, 0, filter * sizeof(float));
		values[i * filter + centre * c + i] = 1;
	}
}

static int fill(const struct layer_param *param, uint64_t seed, const struct model_images *images,
		float *values)
{
	const struct device_param_spec *spec = device_param_spec(param->param);
	const uint32_t *shape = spec->shape;
	size_t count = device_param_elements(param->param);
	uint64_t key = random_key(seed, spec->name);
	double value = param->value;
	switch (param->init) {
	case LAYER_INIT_CONSTANT:
		for (size_t i = 0; i < count; i++)
			values[i] = (float)value;
		break;
	case LAYER_INIT_BLUR:
		fill_blur(count, values);
		break;
	case LAYER_INIT_WHITEN:
		return images ? whiten_weights(images, shape[1], values) : -EINVAL;
	case LAYER_INIT_FAN_OUT:
		value = sqrt(2.0 / ((double)shape[0] * shape[1] * shape[2]));
		/* fall through */
	case LAYER_INIT_NORMAL:
		for (size_t i = 0; i < count; i++)
			values[i] = (float)(value * random_normal(key, i));
		break;
	case LAYER_INIT_FAN_IN:
	case LAYER_INIT_DIRAC:
		for (size_t i = 0; i < count; i++)
			values[i] = (float)(value * random_uniform(key, i));
		if (param->init == LAYER_INIT_DIRAC)
			fill_identity(shape, values);
		break;
	}
	return 0;
}

static int initialize(struct model *model, bool constants, uint64_t seed,
		      const struct model_images *images)
{
	for (size_t i = 0; i < model->param_count; i++) {
		const struct layer_param *param = &model->params[i];
		if (constants && !device_param_spec(param->param)->constant)
			continue;
		float *values = malloc(device_param_elements(param->param) * sizeof(float));
		if (!values)
			return -ENOMEM;
		int r = fill(param, seed, images, values);
		if (!r)
			r = device_param_write(param->param, DEVICE_VALUE, values);
		free(values);
		if (r)
			return r;
	}
	return 0;
}

int model_initialize(struct model *model, uint64_t seed, const struct model_images *images)
{
	return initialize(model, false, seed, images);
}

int model_initialize_constants(struct model *model)
{
	return initialize(model, true, 0, NULL);
}
