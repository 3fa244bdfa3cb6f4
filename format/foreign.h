/*
 * What a file is that is given for a .pimg file and is none, by how it begins. For sentences alone:
 * nothing is read by it. Plain functions.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* "a tar archive: ..."; NULL: it is not known. */
const char *foreign_kind(const uint8_t *bytes, size_t size);
