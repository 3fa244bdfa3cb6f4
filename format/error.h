/* Sentences for people: how every function of libpackimg fills its error argument. Any thread. */
#pragma once

#include "format/base/text/sentence.h"
#include "format/packimg.h"

#include <errno.h>

/* A struct packimg_error is its text. NULL: nobody will read it. */
#define packimg_say(error, ...) sentence_write((char *)(error), PACKIMG_ERROR_MAX, __VA_ARGS__)
/* The same, with the value to return; no function, so that the compiler sees that it is negative.
 */
#define packimg_fail(error, code, ...) (packimg_say((error), __VA_ARGS__), (code))
/* The same of data that is damaged. */
#define packimg_damaged(error, ...) packimg_fail((error), -EBADMSG, __VA_ARGS__)
