/* Error messages: macros that fill the error argument of libpackimg's functions. Any thread. */
#pragma once

#include "format/base/text/sentence.h"
#include "format/packimg.h"

#include <errno.h>

/* Formats a message into error, which may be NULL. */
#define packimg_say(error, ...) sentence_write((char *)(error), PACKIMG_ERROR_MAX, __VA_ARGS__)
/*
 * Formats a message and returns code. A macro, so that the compiler sees that the result is
 * negative.
 */
#define packimg_fail(error, code, ...) (packimg_say((error), __VA_ARGS__), (code))
/* packimg_fail() with -EBADMSG, for damaged data. */
#define packimg_damaged(error, ...) packimg_fail((error), -EBADMSG, __VA_ARGS__)
