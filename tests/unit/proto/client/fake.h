/*
 * A fake daemon for tests of libfeed. It speaks the protocol, computes pixels by a formula, and
 * misbehaves on request. The base name of the dataset path selects a script, with an optional
 * number after a dash (fake.c lists the scripts). The pipeline selects element type and layout.
 * fake_serve() runs on the calling thread and starts one thread per connection.
 */
#pragma once

#include <stdint.h>

enum {
	FAKE_HEIGHT = 4,
	FAKE_WIDTH = 6,
	FAKE_CHANNELS = 3,
	FAKE_BATCHES = 10, /* batches per epoch */
	FAKE_CLASSES = 10,
	FAKE_SLOTS = 4,
};

/* Returns the dataset index of sample i of a batch. */
static inline uint64_t fake_sample(uint64_t batch, uint32_t batch_size, uint32_t i)
{
	return batch * batch_size + i;
}

/* Returns the value of every byte of a sample's pixels if the element type is u8. */
static inline uint8_t fake_pixel(uint64_t epoch, uint64_t sample)
{
	return (uint8_t)(epoch * 31 + sample * 7);
}

/*
 * Serves connections to a listening socket until lifeline (-1 if none) hangs up, then closes both
 * fds.
 */
void fake_serve(int listen_fd, int lifeline);
