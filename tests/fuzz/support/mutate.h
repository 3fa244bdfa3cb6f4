/*
 * Mutations where libFuzzer is not there to make them, drawn from a number, so that every run does
 * the same.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

uint64_t mutate_random(uint64_t *state);
/*
 * Flips bits, plants values that break arithmetic, doubles or drops a piece, cuts the end off.
 * Returns the new size, which is not beyond the old one.
 */
size_t mutate_bytes(uint8_t *data, size_t size, uint64_t *state);
