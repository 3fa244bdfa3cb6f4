#include "trainer/algorithms/ema.h"

#include <math.h>

float ema_decay(const struct recipe_train *recipe, uint64_t step, uint64_t batches_per_epoch)
{
	if ((double)step <= recipe->ema_warmup * (double)batches_per_epoch)
		return 0;
	if (step % recipe->ema_every)
		return 1;
	double position = (double)step / (recipe->epochs * (double)batches_per_epoch);
	return (float)(recipe->ema * pow(fmin(position, 1), recipe->ema_rise));
}
