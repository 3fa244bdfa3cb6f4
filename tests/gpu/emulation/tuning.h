/*
 * What tuning has found on the emulated GPU, for tests/gpu/emulation/conv.c; tests set it by
 * tests/gpu/emulation/engines.h. One state for all devices of the process.
 */
#pragma once

#include "trainer/device/cuda/conv.h"

/* Milliseconds that tests give the problem; 0: none do. */
double emulation_tuned_ms(const struct conv_problem *problem);
bool emulation_refused(const struct conv_problem *problem);

/* Functions of struct conv_engines. */
int emulation_refuse(void *state, const struct conv_problem *problem, float ms);
int emulation_findings(void *state, char **ret_bytes, size_t *ret_size);
int emulation_adopt(void *state, const char *bytes, size_t size);
