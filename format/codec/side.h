/* Side data of a sample: items that speed its decoding up or say more about it (SPEC.md, "Side data"). Pure functions. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Do the items fill the bytes exactly? Nothing (size 0) is valid. */
bool side_is_valid(const uint8_t *side, size_t size);
