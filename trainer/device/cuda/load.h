/*
 * Loads libraries at run time, since the trainer must start without them. They are never unloaded:
 * NVIDIA's libraries keep threads and handlers that would not survive it.
 */
#pragma once

/* environment variable: folders to search first, separated by ':' */
#define LOAD_FOLDERS "LOADERD_CUDA_LIBRARIES"

/* NULL if not found; then dlerror() has the loader's text. */
void *load_library(const char *name);
/*
 * Write the error (DEVICE_ERROR_MAX bytes) for a missing library, or for a function that a library
 * lacks; return -ENODEV.
 */
int load_not_found(const char *name, const char *package, char *error);
int load_no_function(const char *name, const char *function, char *error);
