#include "ema.h"

float ema_decay(const struct recipe_train *recipe, uint64_t step, uint64_t batches_per_epoch)
{
	if ((double)step <= recipe->ema_warmup * (double)batches_per_epoch)
		return 0;
	return step % recipe->ema_every ? 1 : (float)recipe->ema;
}
