/*
 * Fixture of the tests of libfeed: starts a fake daemon (fake_loaderd, whose path is
 * $FAKE_LOADERD), opens feeds that run its scripts (the feed's dataset selects the script, see
 * fake.h), and checks the contents of batches. A failure ends the test through cmocka's assertions.
 */
#pragma once

#include "tests/unit/proto/testing.h"

#include "proto/client/feed.h"
#include "tests/unit/proto/client/fake.h"

extern const char *binary; /* path of fake_loaderd */
extern struct feed_daemon *fake;
extern char error[FEED_ERROR_MAX];

/* Call before running tests. Returns 0, or the exit status for main() if the tests cannot run. */
int find_fake(void);
/* cmocka group functions. */
int start_fake(void **state);
int stop_fake(void **state);

/*
 * options_for() prepares a feed with batches of 8 samples that runs a script, open_script() opens
 * such a feed, and next() takes the next batch, which must arrive.
 */
struct feed_options options_for(const char *script);
struct feed *open_script(const char *script);
struct feed_batch next(struct feed *feed);
void check_pixels(const struct feed_batch *batch);
