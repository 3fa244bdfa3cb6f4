/*
 * A fuzz target: one source that defines LLVMFuzzerTestOneInput(), run in two ways. With clang and
 * -Dfuzzing=enabled it becomes a libFuzzer binary; in every build it becomes a test that replays
 * the target's corpus and small mutations of it (replay.c).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * Feeds one input; always returns 0. Must not keep state from input to input that changes what the
 * next one does.
 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
