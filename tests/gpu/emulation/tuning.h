/*
 * Tuning results of the emulated GPU, read by conv.c and set by tests through engines.h. One state
 * per process, shared by all devices.
 */
#pragma once

#include "trainer/device/cuda/conv.h"

/* Returns the time in ms that the test set for the problem, or 0 if it set none. */
double emulation_tuned_ms(const struct conv_problem *problem);
bool emulation_refused(const struct conv_problem *problem);

/* Implementations of struct conv_engines. */
int emulation_refuse(void *state, const struct conv_problem *problem, float ms);
int emulation_export_tuning(void *state, char **ret_bytes, size_t *ret_size);
int emulation_import_tuning(void *state, const char *bytes, size_t size);
