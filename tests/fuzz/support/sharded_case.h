/* The sharded checkpoint of the fuzz target checkpoint_index: the two files of ranks, and an index.
 */
#pragma once

#include "trainer/checkpoint/safetensors.h"

#include <stdio.h>

#define SHARDED_CASE_ID   "5a5a"
#define SHARDED_CASE_STEP "25"

/* Writes a.safetensors and b.safetensors to a folder. Returns a negative errno on failure. */
int sharded_case_write(const char *folder);
/* Prints the index that describes them, with this metadata. */
void sharded_case_print(FILE *file, const struct safetensors_entry *metadata, size_t count);
