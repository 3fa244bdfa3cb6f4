/*
 * Fixture of the tests of format/: a decoder, and a temporary folder for datasets, which is removed
 * with its contents.
 */
#pragma once

#include "format/packimg.h"
#include "tests/test.h"

extern struct packimg_decoder *decoder;
extern struct packimg_error error;
extern char *directory;

/* cmocka group functions. */
int decoder_setup(void **state);
int decoder_teardown(void **state);
int directory_setup(void **state);
int directory_teardown(void **state);

/* Returns the path of a file in the folder, in static storage. */
const char *path_of(const char *name);
/* Opens and closes a dataset. Returns the result of packimg_open(). */
int try_open(const char *path);
