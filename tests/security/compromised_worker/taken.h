/*
 * A worker that was taken over: started by the supervisor as any other, with the same descriptors,
 * threads and walls, and from then on obeying whoever connects. A connection that begins with
 * TAKEN_MAGIC brings one command in a line and gets lines back, the last of which is TAKEN_END.
 */
#pragma once

#include "loaderd/link.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TAKEN_MAGIC "!cmd " /* as a frame's length it would be beyond the limit */
#define TAKEN_END   "end"
/* In the place of what a victim's end is to be. */
#define TAKEN_ANY 9999

struct taken {
	pid_t self, supervisor;
	int client;         /* who commands, */
	uint64_t client_id; /* and that connection's number */
	struct link_page *page;
	/*
	 * What an accomplice among the clients could have passed: taken before the walls went up.
	 */
	int supervisor_pidfd, root_folder, datagram, listener, stream, memory;
};

/* One line to whoever commands. */
void taken_say(const struct taken *taken, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The next order of this kind; others are taken and dropped. False: none within a second. */
_Bool taken_await(enum link_order_kind kind, struct link_order *ret_order, int fds[LINK_FDS_MAX]);

/* The supervisor's answer to a wish for a ring; descriptors are the caller's, if he wants them. */
int taken_wish(uint64_t feed, uint64_t ring_bytes, uint64_t other_bytes, int ret_fds[LINK_FDS_MAX]);
/* Its answer to the wish that a client be sent its ring: a positive errno. */
int taken_send_ring(uint64_t feed, uint64_t client);
void taken_give_back(uint64_t feed);

/* Commands. arguments: the rest of the line. */
void attempts_run(const struct taken *taken, const char *arguments);
void attempts_foreign_call(const struct taken *taken, const char *arguments);
void deceit_run(const struct taken *taken, const char *arguments);
void lies_records(const struct taken *taken, const char *arguments);
void lies_log(const struct taken *taken, const char *arguments);
void lies_page(const struct taken *taken, const char *arguments);
void lies_leave(const struct taken *taken, const char *arguments);
void greed_memory(const struct taken *taken, const char *arguments);
void greed_threads(const struct taken *taken, const char *arguments);
void greed_rings(const struct taken *taken, const char *arguments);
void greed_silence(const struct taken *taken, const char *arguments);
void greed_spin(const struct taken *taken, const char *arguments);
