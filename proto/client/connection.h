/*
 * A control connection to loaderd: connect, one request, its reply. Used by every part of libfeed
 * and by loaderctl; belongs to one thread. All waiting is bounded by a deadline; texts for a person
 * go to `error`, which is NULL or FEED_ERROR_MAX bytes. proto/SPEC.md, "Frames" and "Messages".
 * Internal: not installed.
 */
#pragma once

#include "format/base/text/sentence.h"
#include "proto/client/feed.h"
#include "proto/feed.pb-c.h"
#include "proto/framing.h"
#include "proto/socket_path.h"

#include <stdint.h>

enum {
	/* for connecting and for a reply, unless the caller says otherwise */
	CONNECTION_TIMEOUT_MS = 30000,
};

struct connection {
	int fd;
	struct frame_reader reader;
	char socket[128]; /* as the user would write it, for texts */
};

/* Writes a sentence to error and returns code. */
#define error_set(error, code, ...) sentence_fail((error), FEED_ERROR_MAX, (code), __VA_ARGS__)
/* One about who is at the other end; does: a literal, what follows "The daemon on SOCKET". */
#define daemon_error(connection, error, code, does, ...)                                           \
	error_set(error, code, "The daemon on %s " does, (connection)->socket, ##__VA_ARGS__)

/*
 * What a daemon wrote, for a terminal: each byte of what printable.h would show by number becomes
 * '?', so that the text keeps its length.
 */
void text_make_printable(char *text);

/*
 * The socket that NULL and "" stand for: $LOADERD_SOCKET, else socket_path.h's; any other is
 * itself. room is for the answer.
 */
const char *connection_socket(const char *socket, char room[SOCKET_PATH_MAX]);
/* socket as connection_socket() takes it. */
int connection_open(struct connection *connection, const char *socket, int64_t deadline_ms,
		    char *error);
void connection_close(struct connection *connection);

/*
 * Sends a request and waits for the reply, skipping doorbells. An Error reply becomes its errno and
 * a text; `text` is the request's field that a position may point into (the pipeline), or NULL.
 * Descriptors of the reply stay in the reader until its next frame. The caller frees the reply with
 * loaderd__reply__free_unpacked(reply, NULL).
 */
int connection_request(struct connection *connection, const Loaderd__Request *request,
		       const char *text, int64_t deadline_ms, Loaderd__Reply **ret_reply,
		       char *error);
/* Waits for one more reply to a request that was sent before. */
int connection_reply(struct connection *connection, const char *text, int64_t deadline_ms,
		     Loaderd__Reply **ret_reply, char *error);
/*
 * Turns an Error reply into its negative errno and a text. -EPROTO: it has none, or one by which
 * libfeed tells of its own state.
 */
int connection_error(const Loaderd__Error *message, const char *text, char *error);

/* A dataset's UUID as it came; zeros when it is none. */
void copy_uuid(const ProtobufCBinaryData *field, uint8_t ret_uuid[16]);

/*
 * Makes a dataset's path absolute against the working directory, without resolving links. The
 * caller frees it.
 */
int absolute_path(const char *path, char **ret_path, char *error);
