/*
 * A control connection to loaderd: connects, sends one request, receives its reply. Used by all of
 * libfeed and by loaderctl. A connection belongs to one thread. Every wait has a deadline. Error
 * texts for the user go to `error`, which is NULL or has FEED_ERROR_MAX bytes. proto/SPEC.md,
 * "Frames" and "Messages". Internal: not installed.
 */
#pragma once

#include "format/base/text/sentence.h"
#include "format/base/text/text.h"
#include "proto/client/feed.h"
#include "proto/feed.pb-c.h"
#include "proto/framing.h"
#include "proto/socket_path.h"

#include <stdbool.h>
#include <stdint.h>

enum {
	/* default timeout for connecting and for a reply */
	CONNECTION_TIMEOUT_MS = 30000,
};

struct connection {
	int fd;
	struct frame_reader reader;
	char socket[128];     /* as the user would write it, for error texts */
	bool version_refused; /* the daemon does not know the version of the last request */
	/* feed_options.progress, while a feed is being opened */
	int (*progress)(void *user, uint64_t done, uint64_t total);
	void *progress_user;
};

/* Formats a sentence into error and returns code. */
#define error_set(error, code, ...) sentence_fail((error), FEED_ERROR_MAX, (code), __VA_ARGS__)
/* An error about the daemon; `does` is a literal that continues "The daemon on SOCKET". */
#define daemon_error(connection, error, code, does, ...)                                           \
	error_set(error, code, "The daemon on %s " does, (connection)->socket, ##__VA_ARGS__)

/*
 * Makes a text from the daemon safe for a terminal: replaces each byte that printable.h would
 * escape with '?', which keeps the length.
 */
void text_make_printable(char *text);

/*
 * Resolves a socket name: NULL and "" become $LOADERD_SOCKET or the default of socket_path.h; any
 * other name is returned unchanged. `room` is the buffer for the default.
 */
const char *connection_socket(const char *socket, char room[SOCKET_PATH_MAX]);
/*
 * Connects to a socket of socket_path.h, waiting while too many clients wait there. Returns a
 * non-blocking fd or a negative errno: -ENAMETOOLONG, -ETIMEDOUT, or one of connect().
 */
int socket_connect(const char *path, int64_t deadline_ms);
/* Accepts any `socket` that connection_socket() accepts. */
int connection_open(struct connection *connection, const char *socket, int64_t deadline_ms,
		    char *error);
void connection_close(struct connection *connection);

/*
 * Sends a request and waits for the reply, skipping doorbells. An Error reply becomes a negative
 * errno and an error text; `text` is the request field that a position may refer to (the pipeline),
 * or NULL. The reply's fds stay in the reader until its next frame. The caller frees the reply with
 * loaderd__reply__free_unpacked(reply, NULL).
 */
int connection_request(struct connection *connection, const Loaderd__Request *request,
		       const char *text, int64_t deadline_ms, Loaderd__Reply **ret_reply,
		       char *error);
/* Waits for one more reply to an earlier request. */
int connection_reply(struct connection *connection, const char *text, int64_t deadline_ms,
		     Loaderd__Reply **ret_reply, char *error);
/*
 * Converts an Error reply into a negative errno and an error text. Returns -EPROTO if the code is
 * out of range or one that libfeed reserves for its own state.
 */
int connection_error(const Loaderd__Error *message, const char *text, char *error);

/* Copies a dataset's UUID; zeros if the field does not have 16 bytes. */
void copy_uuid(const ProtobufCBinaryData *field, uint8_t ret_uuid[16]);

/*
 * Makes a dataset's path absolute against the working directory; does not resolve symbolic links.
 * Copies an address. The caller frees it.
 */
int absolute_path(const char *path, char **ret_path, char *error);
