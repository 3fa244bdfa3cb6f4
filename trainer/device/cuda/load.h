/*
 * Loads libraries at run time, because the trainer must start without them. They are never
 * unloaded: NVIDIA's libraries leave threads and handlers behind.
 */
#pragma once

/* environment variable: folders to search first, separated by ':' */
#define LOAD_FOLDERS "LOADERD_CUDA_LIBRARIES"

/* NULL if not found; then dlerror() has the loader's text. */
void *load_library(const char *name);
/*
 * Write the error (DEVICE_ERROR_MAX bytes) that a library, or a function in a library, is missing,
 * and return -ENODEV.
 */
int load_not_found(const char *name, const char *package, char *error);
int load_no_function(const char *name, const char *function, char *error);
