/* Recognition of files of raw pixels: idx, and the binary version of CIFAR. Any thread. */
#pragma once

#include "tools/packimg/source/source.h"

/* Returns true if the regular file at path is such a file. */
bool source_is_pixels(const char *path);
