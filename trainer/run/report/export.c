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

struct export
{
	struct run *run;
	const char *name, *evaluation;
};

/* Rank 0. */
static int export_lead(void *of)
{
	const struct export *export = of;
	struct run *run = export->run;
	struct checkpoint_about about = run_about(run);
	about.evaluation = export->evaluation;
	if (!run->output.metrics)
		return 0;
	return output_export(&run->output, export->name, run->network.params,
			     network_eval_slot(&run->network, &run->state), &about);
}

int run_export(struct run *run, const char *name, const char *evaluation)
{
	struct export export = {run, name, evaluation};
	return ranks_lead(run->ctx.comm, run->network.params, export_lead, &export, run->ctx.error);
}
