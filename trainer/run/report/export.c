/* Exports weights with their metadata, for other programs. */
#include "trainer/run/run_internal.h"

struct checkpoint_about run_about(const struct run *run)
{
	bool normalised = run->input.batch.element == FEED_U8;
	return (struct checkpoint_about){
		.mean = normalised ? run->data.mean : NULL,
		.std = normalised ? run->data.std : NULL,
		.class_names = run->data.class_names,
	};
}

int run_export(struct run *run, const char *name, const char *evaluation)
{
	struct checkpoint_about about = run_about(run);
	about.evaluation = evaluation;
	return output_export(&run->output, name, run->network.params,
			     network_eval_slot(&run->network, &run->state), &about);
}
