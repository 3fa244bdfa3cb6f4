/*
 * A compromised worker: the supervisor starts it like any other, with the same fds, threads and
 * sandbox, but then it obeys its clients. A connection that begins with AGENT_MAGIC sends one
 * command line and receives lines in return. The last line is AGENT_END.
 */
#pragma once

#include "loaderd/worker_ipc.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define AGENT_MAGIC "!cmd " /* not a valid frame: as a length it exceeds the limit */
#define AGENT_END   "end"
/* As an expected result: any result of the peer is acceptable. */
#define AGENT_ANY 9999

struct agent {
	pid_t self, supervisor;
	int client;         /* connection that sent the command */
	uint64_t client_id; /* the supervisor's id of that connection */
	struct status_page *page;
	/*
	 * fds that a colluding client could have passed; opened before the worker enters the
	 * sandbox
	 */
	int supervisor_pidfd, root_folder, datagram, listener, stream, memory;
};

/* Sends one line to the client that sent the command. */
void agent_send(const struct agent *agent, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/*
 * Returns the next order of this kind and drops orders of other kinds; false if none arrives within
 * a second.
 */
_Bool agent_await(enum ipc_order_kind kind, struct ipc_order *ret_order, int fds[IPC_FDS_MAX]);

/*
 * Requests a ring and returns the supervisor's answer. The caller owns the fds; ret_fds may be
 * NULL.
 */
int agent_request_ring(uint64_t feed, uint64_t ring_bytes, uint64_t other_bytes,
		       int ret_fds[IPC_FDS_MAX]);
/* Requests that a client receive its ring; returns the supervisor's answer, a positive errno. */
int agent_send_ring(uint64_t feed, uint64_t client);
void agent_give_back(uint64_t feed);

/* Commands. `arguments` is the rest of the command line. */
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
