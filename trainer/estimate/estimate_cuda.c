/* Opens cuDNN for --plan. Returns -ENOTSUP in a build without it. */
#include "trainer/estimate/estimate.h"

#include <errno.h>
#include <stdlib.h>

#ifdef HAVE_CUDA

#include "trainer/device/cuda/engines.h"

int estimate_recipe(const struct recipe *recipe, const struct estimate_options *options, FILE *file,
		    char *error)
{
	struct engines_options engines_options = {0};
	struct engines engines;
	char *properties, problem[ESTIMATE_ERROR_MAX] = "";
	int r = estimate_device_properties(options->device, &properties, error);
	if (r < 0)
		return r;
	engines_options.properties = properties;
	engines_options.tf32 = recipe->train.tf32;
	r = engines_open(&engines_options, &engines, problem);
	if (r < 0) {
		snprintf(error, ESTIMATE_ERROR_MAX, "--plan=%.300s: %.700s", options->device,
			 problem);
	} else {
		r = estimate_with(recipe, options, &engines, file, error);
		engines_close(&engines);
	}
	free(properties);
	return r;
}

#else

int estimate_recipe(const struct recipe *recipe, const struct estimate_options *options, FILE *file,
		    char *error)
{
	snprintf(error, ESTIMATE_ERROR_MAX,
		 "--plan needs cuDNN to find the engines of each pattern, but this trainer was "
		 "built without the CUDA toolkit and cuDNN; install them (nvcc, cudnn.h, "
		 "cublasLt.h; no GPU is needed) and build again");
	return -ENOTSUP;
}

#endif
