/*
 * When a request is late, so that a second one is worth sending: "hedged requests" (Dean and
 * Barroso 2013, "The Tail at Scale"). Late is what takes three times as long as 19 of 20 of the
 * last requests of its size did. At most one request in twenty is a second one. One thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
	HEDGE_TIMES = 256, /* of each class that are remembered */
	HEDGE_CLASSES = 8, /* of sizes: up to 4 KiB, then four times as much each, the rest */
	HEDGE_PART = 20,   /* one hedge for so many requests */
};

struct hedge_class {
	uint32_t times_ms[HEDGE_TIMES];
	uint32_t count;   /* since the start */
	uint32_t late_ms; /* 0: not known yet */
};

struct hedging {
	struct hedge_class classes[HEDGE_CLASSES];
	unsigned credit; /* requests for which there was no hedge yet */
};

/* A request of so many bytes has ended well, so long after it was sent. */
void hedging_note(struct hedging *hedging, uint64_t bytes, int64_t took_ms);
/* Returns after how many milliseconds such a request is late; INT64_MAX if that is not known. */
int64_t hedging_late_ms(const struct hedging *hedging, uint64_t bytes);
/* Whether another hedge may be sent, which is then counted. */
bool hedging_spend(struct hedging *hedging);
