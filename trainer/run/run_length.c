#include "trainer/run/run_length.h"

#include <math.h>

static uint64_t in_steps(double epochs, uint64_t batches_per_epoch)
{
	uint64_t steps = (uint64_t)llround(epochs * (double)batches_per_epoch);
	return epochs > 0 && !steps ? 1 : steps;
}

void run_length_init(struct run_length *length, const struct recipe *recipe,
		     const struct plateau *plateau, uint64_t batches_per_epoch)
{
	length->steps = in_steps(recipe->train.epochs, batches_per_epoch);
	length->eval_every = in_steps(recipe->train.eval_every, batches_per_epoch);
	length->checkpoint_every = in_steps(recipe->checkpoint.every, batches_per_epoch);
	schedule_init(&length->schedule, recipe);
	length->schedule.plateau = plateau;
}

void run_length_stop_at(struct run_length *length, uint64_t step)
{
	length->steps = step;
}

bool run_length_is_due(const struct run_length *length, uint64_t step, uint64_t every)
{
	return step == length->steps || (step && every && step % every == 0);
}
