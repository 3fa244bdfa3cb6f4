/*
 * What tests of libfeed share: a fake daemon (fake_loaderd, named in $FAKE_LOADERD), whose scripts
 * are the datasets that feeds name (fake.h), and what its batches hold. Failures end the test
 * through cmocka's assertions.
 */
#pragma once

#include "tests/unit/proto/testing.h"

#include "proto/client/feed.h"
#include "tests/unit/proto/client/fake.h"

extern const char *binary; /* fake_loaderd */
extern struct feed_daemon *fake;
extern char error[FEED_ERROR_MAX];

/* Before the tests run: 0, or main()'s exit status where they cannot. */
int find_fake(void);
/* cmocka group functions. */
int start_fake(void **state);
int stop_fake(void **state);

/* Batches of 8 of a script; opened; the next one, which must come. */
struct feed_options options_for(const char *script);
struct feed *open_script(const char *script);
struct feed_batch next(struct feed *feed);
void check_pixels(const struct feed_batch *batch);
