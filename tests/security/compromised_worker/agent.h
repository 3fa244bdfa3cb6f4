/*
 * A compromised worker: started by the supervisor as any other, with the same descriptors,
 * threads and walls, and from then on obeying whoever connects. A connection that begins with
 * AGENT_MAGIC brings one command in a line and gets lines back, the last of which is AGENT_END.
 */
#pragma once

#include "loaderd/link.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define AGENT_MAGIC "!cmd " /* as a frame's length it would be beyond the limit */
#define AGENT_END   "end"
/* In the place of what a peer's end is to be. */
#define AGENT_ANY 9999

struct agent {
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
void agent_say(const struct agent *agent, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The next order of this kind; others are taken and dropped. False: none within a second. */
_Bool agent_await(enum link_order_kind kind, struct link_order *ret_order, int fds[LINK_FDS_MAX]);

/* The supervisor's answer to a wish for a ring; descriptors are the caller's, if he wants them. */
int agent_wish(uint64_t feed, uint64_t ring_bytes, uint64_t other_bytes, int ret_fds[LINK_FDS_MAX]);
/* Its answer to the wish that a client be sent its ring: a positive errno. */
int agent_send_ring(uint64_t feed, uint64_t client);
void agent_give_back(uint64_t feed);

/* Commands. arguments: the rest of the line. */
void escape_attempts_run(const struct agent *agent, const char *arguments);
void escape_attempts_foreign_call(const struct agent *agent, const char *arguments);
void bad_feed_run(const struct agent *agent, const char *arguments);
void bad_records(const struct agent *agent, const char *arguments);
void bad_log(const struct agent *agent, const char *arguments);
void bad_page(const struct agent *agent, const char *arguments);
void abandon_descriptors(const struct agent *agent, const char *arguments);
void exhaust_memory(const struct agent *agent, const char *arguments);
void exhaust_threads(const struct agent *agent, const char *arguments);
void exhaust_rings(const struct agent *agent, const char *arguments);
void hang_silently(const struct agent *agent, const char *arguments);
void hang_spinning(const struct agent *agent, const char *arguments);
