/*
 * Libraries that are loaded at run time, because a trainer must start without them. A library stays
 * loaded until the process ends: NVIDIA's keep threads and handlers of their own that do not
 * survive being unloaded.
 */
#pragma once

/* environment: folders separated by ':' that are looked through first */
#define LOAD_FOLDERS "LOADERD_CUDA_LIBRARIES"

/* NULL: not found; dlerror() has the loader's words. */
void *load_library(const char *name);
/*
 * Write the error (DEVICE_ERROR_MAX bytes) for a missing library, and for a function that a library
 * lacks; return -ENODEV.
 */
int load_not_found(const char *name, const char *package, char *error);
int load_no_function(const char *name, const char *function, char *error);
