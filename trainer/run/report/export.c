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

int run_lead(struct run *run, int (*function)(struct run *run))
{
	struct device_params *params = run->network.params;
	int r, ended;
	if (run->ctx.comm->rank) {
		r = device_params_follow(params);
		return r < 0 ? run_fail_step(run, r, "parts of the parameters") : 0;
	}
	device_params_lead(params);
	r = function(run);
	ended = device_params_dismiss(params);
	if (r == 0 && ended < 0)
		return run_fail_step(run, ended, "parts of the parameters");
	return r;
}

int run_export(struct run *run, const char *name, const char *evaluation)
{
	struct checkpoint_about about = run_about(run);
	about.evaluation = evaluation;
	return output_export(&run->output, name, run->network.params,
			     network_eval_slot(&run->network, &run->state), &about);
}
