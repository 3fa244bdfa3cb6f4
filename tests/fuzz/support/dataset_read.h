/*
 * Reads everything in a dataset, within bounded work, so that a sanitizer sees each access, and
 * decodes the first samples. May be called on any thread, each with its own decoder.
 */
#pragma once

#include "format/packimg.h"

void dataset_read(struct packimg_decoder *decoder, const struct packimg *dataset);
