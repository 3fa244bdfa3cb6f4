/* The CPUs that the configuration leaves to workers. */
#pragma once

#include "loaderd/config.h"
#include "loaderd/cpus.h"

/* Errors of cpus_init(), with a sentence in error. */
int cpu_list(const struct config *config, struct cpus *ret_cpus, struct config_error *error);
