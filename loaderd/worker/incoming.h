/*
 * The files of a request as they come, part by part: descriptors that the client opened with its
 * own rights. Nothing is known of them here but their number. Belongs to its request: the control
 * thread's while they come. proto/SPEC.md, "Files".
 */
#pragma once

#include "proto/feed.pb-c.h"
#include "proto/framing.h"

#include <stdbool.h>
#include <stdint.h>

struct incoming {
	int *fds;
	uint32_t count; /* have come */
	uint32_t total; /* of the dataset; 0: not known yet */
	uint32_t most;  /* wanted of them */
	bool direct;    /* opened with O_DIRECT */
	bool due;       /* a part has been asked for */
};

/* Wants the first `most` files. */
void incoming_init(struct incoming *incoming, uint32_t most, bool direct);
/* Closes descriptors that nobody took, which may wait: on a chores thread. */
void incoming_deinit(struct incoming *incoming);
bool incoming_complete(const struct incoming *incoming);
/* How many are still to come; once the first part has. */
uint32_t incoming_left(const struct incoming *incoming);
/* What to ask for next. */
void incoming_ask(struct incoming *incoming, Loaderd__NeedFiles *ret_need);
/*
 * Takes a part's descriptors from the frame that it came with. -EPROTO: not what was asked for;
 * -EDQUOT: more files than `limit`; -ENOMEM.
 */
int incoming_take(struct incoming *incoming, const Loaderd__Files *part,
		  struct frame_reader *reader, uint64_t limit);
