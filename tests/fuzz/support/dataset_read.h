/*
 * Reads all contents of a dataset, within bounded work, so that a sanitizer checks each access;
 * decodes only the first samples. Any thread may call it with its own decoder.
 */
#pragma once

#include "format/packimg.h"

void dataset_read(struct packimg_decoder *decoder, const struct packimg *dataset);
