#include "tools/loaderctl/ask.h"
#include "format/base/system/clock.h"
#include "proto/client/files.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	ADMIN_SOCKET_MAX = 1024,
	LISTED_MAX =
		1024, /* maximum number of feeds, and of bad samples, in a reply (proto/SPEC.md) */
};

/* Fails unless the reply is of the expected kind. */
static int ask(struct connection *connection, const char *socket, const Loaderd__Request *request,
	       const char *path, Loaderd__Reply__KindCase expected, Loaderd__Reply **ret_reply,
	       char *error)
{
	int64_t deadline_ms = clock_ms() + CONNECTION_TIMEOUT_MS;
	int r = connection_open(connection, socket, deadline_ms, error);
	if (r < 0)
		return r;
	Loaderd__Reply *reply;
	const struct file_source source = {.path = path};
	r = files_request(connection, request, NULL, &source, path ? 1 : 0, &deadline_ms, &reply,
			  error);
	if (r < 0)
		return r;
	if (reply->kind_case != expected) {
		r = error_set(error, -EPROTO, "The daemon on %s answered with message %d, not %d.",
			      connection->socket, (int)reply->kind_case, (int)expected);
		loaderd__reply__free_unpacked(reply, NULL);
		return r;
	}
	*ret_reply = reply;
	return 0;
}

/* The path of the administrator's socket is the public socket's path plus ".admin". */
static const char *admin_socket(const char *socket, char buffer[ADMIN_SOCKET_MAX])
{
	char found[SOCKET_PATH_MAX];
	snprintf(buffer, ADMIN_SOCKET_MAX, "%.900s.admin", connection_socket(socket, found));
	return buffer;
}

/*
 * Explains a permission error: the public socket may admit users that the administrator's refuses.
 * Returns r.
 */
static int explain_admin(int r, const char *admin, const char *remedy, char *error)
{
	if (r != -EACCES && r != -EPERM)
		return r;
	return error_set(
		error, r,
		"Only root and the daemon's own user may use the administrator's socket %s. %s",
		admin, remedy);
}

int ask_status_of_all(const char *socket, Loaderd__Reply **ret_reply, char *error)
{
	char buffer[ADMIN_SOCKET_MAX];
	const char *admin = admin_socket(socket, buffer);
	int r = ask_status(admin, ret_reply, error);
	return explain_admin(r, admin, "Without --all, loaderctl shows this user's own feeds.",
			     error);
}

int ask_status(const char *socket, Loaderd__Reply **ret_reply, char *error)
{
	struct connection connection = {.fd = -1};
	Loaderd__GetStatus get = LOADERD__GET_STATUS__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	request.kind_case = LOADERD__REQUEST__KIND_GET_STATUS;
	request.get_status = &get;
	Loaderd__Reply *reply = NULL;
	int r = ask(&connection, socket, &request, NULL, LOADERD__REPLY__KIND_STATUS, &reply,
		    error);
	if (r == 0 && (reply->status->n_feeds > LISTED_MAX || reply->status->n_bad > LISTED_MAX)) {
		/* A message has room for half a million empty feeds. */
		r = error_set(error, -EPROTO,
			      "The daemon on %s lists %zu feeds and %zu bad samples: no daemon has "
			      "more than %d.",
			      connection.socket, reply->status->n_feeds, reply->status->n_bad,
			      LISTED_MAX);
		loaderd__reply__free_unpacked(reply, NULL);
	}
	if (r == 0)
		*ret_reply = reply;
	connection_close(&connection);
	return r;
}

int ask_dataset(const char *socket, const char *path, Loaderd__Reply **ret_reply, char *error)
{
	struct connection connection = {.fd = -1};
	Loaderd__GetDataset get = LOADERD__GET_DATASET__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	char *absolute;
	int r = absolute_path(path, &absolute, error);
	if (r < 0)
		return r;
	get.path = absolute;
	get.version = PROTO_VERSION_OLDEST; /* asks for nothing newer */
	request.kind_case = LOADERD__REQUEST__KIND_GET_DATASET;
	request.get_dataset = &get;
	r = ask(&connection, socket, &request, absolute, LOADERD__REPLY__KIND_DATASET, ret_reply,
		error);
	connection_close(&connection);
	free(absolute);
	return r;
}

static int wait_for_end(struct connection *connection, int64_t deadline_ms, char *error)
{
	for (;;) {
		const uint8_t *data;
		size_t size;
		int r = frame_receive(&connection->reader, connection->fd, &data, &size);
		if (r == -ECONNRESET)
			return 0;
		if (r < 0)
			return error_set(error, r,
					 "The daemon on %s broke the protocol while stopping.",
					 connection->socket);
		struct pollfd p = {.fd = connection->fd, .events = POLLIN};
		int left_ms = clock_left_ms(deadline_ms);
		if (left_ms == 0)
			return error_set(
				error, -ETIMEDOUT,
				"The daemon on %s is stopping and still finishes its feeds.",
				connection->socket);
		if (r == 0 && poll(&p, 1, left_ms) < 0 && errno != EINTR)
			return error_set(error, -errno, "Cannot wait for the daemon on %s.",
					 connection->socket);
	}
}

int ask_shutdown(const char *socket, int timeout_ms, char *error)
{
	struct connection connection = {.fd = -1};
	Loaderd__Shutdown stop = LOADERD__SHUTDOWN__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	Loaderd__Reply *reply;
	char buffer[ADMIN_SOCKET_MAX];
	const char *admin = admin_socket(socket, buffer);
	request.kind_case = LOADERD__REQUEST__KIND_SHUTDOWN;
	request.shutdown = &stop;
	int r = ask(&connection, admin, &request, NULL, LOADERD__REPLY__KIND_SHUTTING_DOWN, &reply,
		    error);
	r = explain_admin(r, admin, "One of them has to stop the daemon.", error);
	if (r == 0) {
		loaderd__reply__free_unpacked(reply, NULL);
		r = wait_for_end(&connection, clock_ms() + timeout_ms, error);
	}
	connection_close(&connection);
	return r;
}
