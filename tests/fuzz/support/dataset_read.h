/*
 * Reads all that a dataset says, as far as that is bounded work, for a sanitizer to see; decodes
 * its first samples. Any thread, with a decoder of its own.
 */
#pragma once

#include "format/packimg.h"

void dataset_read(struct packimg_decoder *decoder, const struct packimg *dataset);
