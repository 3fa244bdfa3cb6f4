#include "loaderd/cpu_list.h"

#include <errno.h>
#include <stdio.h>

int cpu_list(const struct config *config, struct cpus *ret_cpus, struct config_error *error)
{
	int r = cpus_init(ret_cpus, config->cpus);
	if (r < 0)
		snprintf(error->text, sizeof(error->text),
			 r == -ENODEV ? "[pool] cpus = %.200s: this process may use none of them"
				      : "[pool] cpus = %.200s: expected a list such as 0-3,8",
			 config->cpus);
	return r;
}
