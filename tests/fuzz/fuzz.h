/*
 * A fuzz target is one source file that defines LLVMFuzzerTestOneInput(). It is used in two ways:
 * with clang and -Dfuzzing=enabled as a libFuzzer binary, and in every build as a test that replays
 * the target's corpus and small mutations of it (replay.c).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * Runs the target on one input and returns 0. An input must not leave state that changes how the
 * next one runs.
 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
