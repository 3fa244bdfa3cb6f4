/* Mutations for runs without libFuzzer, drawn from a seed so that every run is the same. */
#pragma once

#include <stddef.h>
#include <stdint.h>

uint64_t mutate_random(uint64_t *state);
/*
 * Flips bits, inserts values that provoke arithmetic errors, duplicates or removes a piece, or
 * truncates the data. Returns the new size, which is at most the old one.
 */
size_t mutate_bytes(uint8_t *data, size_t size, uint64_t *state);
