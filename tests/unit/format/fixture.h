/*
 * What tests of format share: a decoder, and a folder for the datasets that they write. The folder
 * is temporary and removed with its contents.
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

/* Path of a file in the folder, in static storage. */
const char *path_of(const char *name);
/* Opens and closes a dataset. Returns the result of packimg_open(). */
int try_open(const char *path);
