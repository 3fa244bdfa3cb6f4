#include "proto/client/connection.h"
#include "format/base/system/clock.h"
#include "format/base/system/io.h"
#include "format/base/text/printable.h"
#include "proto/client/daemon.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	CONNECT_RETRY_MS = 5, /* connect() to a Unix socket with a full backlog cannot be polled */
	CARET_WIDTH = 72,     /* columns of a quoted text */
	FIELD_MAX = 64,       /* bytes of a field name in an error text */
	JOURNAL_MAX = 96,     /* buffer size of where_to_look() */
};

void text_make_printable(char *text)
{
	char *end = text + strlen(text);
	for (char *p = text; p < end; p++) {
		p += printable_span(p, (size_t)(end - p));
		if (p < end)
			*p = '?';
	}
}

/*
 * Returns the sentence that names the service's log, with a leading space, for the end of an error
 * text; "" if the socket belongs to no service.
 */
static const char *where_to_look(const char *socket, char room[JOURNAL_MAX])
{
	const char *journal = socket_journal(socket);
	room[0] = '\0';
	if (journal)
		snprintf(room, JOURNAL_MAX, " If the service does not start, %s says why.",
			 journal);
	return room;
}

static int connect_error(const char *socket, int code, char *error)
{
	char journal[JOURNAL_MAX];
	where_to_look(socket, journal);
	if (code == -ENOENT || code == -ECONNREFUSED)
		return error_set(error, code,
				 "No daemon listens on %s. Start one (systemctl start loaderd, or "
				 "loaderd in a terminal), name its socket in the option or in "
				 "$LOADERD_SOCKET, or start a private one.%s",
				 socket, journal);
	if (code == -EACCES)
		return error_set(
			error, code,
			"Permission denied on the socket %s: this user may not use that daemon.",
			socket);
	if (code == -ETIMEDOUT)
		return error_set(error, code,
				 "The daemon on %s does not accept connections: too many clients "
				 "are waiting.%s",
				 socket, journal);
	return error_set(error, code, "Cannot connect to the daemon on %s: %s.", socket,
			 strerror(-code));
}

static int connect_until(int fd, const struct sockaddr_un *address, socklen_t size,
			 int64_t deadline_ms)
{
	while (connect(fd, (const struct sockaddr *)address, size) < 0) {
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return -errno;
		if (clock_left_ms(deadline_ms) == 0)
			return -ETIMEDOUT;
		poll(NULL, 0, CONNECT_RETRY_MS);
	}
	return 0;
}

int socket_connect(const char *path, int64_t deadline_ms)
{
	struct sockaddr_un address;
	socklen_t size = socket_address(path, &address);
	if (size == 0)
		return -ENAMETOOLONG;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	int r = connect_until(fd, &address, size, deadline_ms);
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}

const char *connection_socket(const char *socket, char room[SOCKET_PATH_MAX])
{
	if (!socket || socket[0] == '\0')
		socket = getenv("LOADERD_SOCKET");
	if (socket && socket[0] != '\0')
		return socket;
	socket_to_connect(room);
	return room;
}

int feed_default_socket(char *buffer, size_t size)
{
	char room[SOCKET_PATH_MAX];
	const char *socket = connection_socket(NULL, room);
	size_t length = strlen(socket);
	if (length >= size)
		return -ENAMETOOLONG;
	memcpy(buffer, socket, length + 1);
	return (int)length;
}

int connection_open(struct connection *connection, const char *path, int64_t deadline_ms,
		    char *error)
{
	char room[SOCKET_PATH_MAX];
	path = connection_socket(path, room);
	struct sockaddr_un address;
	if (socket_address(path, &address) == 0)
		return error_set(error, -ENAMETOOLONG,
				 "socket: \"%s\" has %zu bytes, a socket's path may have %zu.",
				 path, strlen(path), sizeof(address.sun_path) - 1);
	/* This process holds the listening socket, so connect() would succeed. */
	if (daemon_has_ended(path))
		return connect_error(path, -ECONNREFUSED, error);
	int fd = socket_connect(path, deadline_ms);
	if (fd < 0)
		return connect_error(path, fd, error);
	connection->fd = fd;
	snprintf(connection->socket, sizeof(connection->socket), "%s", path);
	frame_reader_init(&connection->reader);
	return 0;
}

void connection_close(struct connection *connection)
{
	io_close(connection->fd);
	frame_reader_deinit(&connection->reader);
	connection->fd = -1;
}

static int send_request(struct connection *connection, const Loaderd__Request *request,
			int64_t deadline_ms, char *error)
{
	size_t size = loaderd__request__get_packed_size(request);
	if (size > FRAME_SIZE_MAX)
		return error_set(error, -EMSGSIZE,
				 "The request has %zu bytes, a message may have %d: shorten the "
				 "pipeline, the paths or the list of fields.",
				 size, FRAME_SIZE_MAX);
	uint8_t *data = malloc(size + 1);
	if (!data)
		return error_set(error, -ENOMEM, "Out of memory.");
	loaderd__request__pack(request, data);
	int r = frame_send(connection->fd, data, size, NULL, 0, clock_left_ms(deadline_ms));
	free(data);
	if (r == -EAGAIN)
		return daemon_error(connection, error, -ETIMEDOUT, "does not read requests.");
	if (r == -EPIPE || r == -ECONNRESET)
		return 0; /* the daemon's last message explains more than EPIPE */
	if (r < 0)
		return error_set(error, r, "Cannot send to the daemon on %s: %s.",
				 connection->socket, strerror(-r));
	return 0;
}

/*
 * Without the second fd, a connection that an ended private daemon never accepted would wait for
 * the next daemon.
 */
static int wait_for_reply(struct connection *connection, int timeout_ms, char *error)
{
	struct pollfd p[2] = {{.fd = connection->fd, .events = POLLIN},
			      {.fd = daemon_watch(connection->socket), .events = POLLIN}};
	int r = poll(p, 2, timeout_ms);
	io_close(p[1].fd);
	if (r < 0 && errno != EINTR)
		return error_set(error, -errno, "Cannot wait for the daemon on %s: %s.",
				 connection->socket, strerror(errno));
	if (r > 0 && p[0].revents == 0)
		return daemon_error(connection, error, -ECONNRESET, "ended before it answered.");
	return 0;
}

/* Waits for the next reply, skipping doorbells. */
static int receive_reply(struct connection *connection, int64_t deadline_ms,
			 Loaderd__Reply **ret_reply, char *error)
{
	char journal[JOURNAL_MAX];
	for (;;) {
		const uint8_t *data;
		size_t size;
		int r = frame_receive(&connection->reader, connection->fd, &data, &size);
		if (r == -ECONNRESET)
			return daemon_error(connection, error, r,
					    "closed the connection before it answered.%s",
					    where_to_look(connection->socket, journal));
		if (r < 0)
			return error_set(error, r,
					 "What the daemon on %s sends is not our protocol: %s.",
					 connection->socket, strerror(-r));
		if (r > 0) {
			Loaderd__Reply *reply = loaderd__reply__unpack(NULL, size, data);
			if (!reply)
				return daemon_error(connection, error, -EPROTO,
						    "sent a message that cannot be read.");
			if (reply->kind_case != LOADERD__REPLY__KIND_DOORBELL) {
				*ret_reply = reply;
				return 0;
			}
			loaderd__reply__free_unpacked(reply, NULL);
		}
		int left_ms = clock_left_ms(deadline_ms);
		if (left_ms == 0)
			return daemon_error(connection, error, -ETIMEDOUT,
					    "did not answer in time.%s",
					    where_to_look(connection->socket, journal));
		if (r > 0)
			continue;
		r = wait_for_reply(connection, left_ms, error);
		if (r < 0)
			return r;
	}
}

int connection_request(struct connection *connection, const Loaderd__Request *request,
		       const char *text, int64_t deadline_ms, Loaderd__Reply **ret_reply,
		       char *error)
{
	int r = send_request(connection, request, deadline_ms, error);
	return r < 0 ? r : connection_reply(connection, text, deadline_ms, ret_reply, error);
}

int connection_reply(struct connection *connection, const char *text, int64_t deadline_ms,
		     Loaderd__Reply **ret_reply, char *error)
{
	Loaderd__Reply *reply = NULL;
	int r = receive_reply(connection, deadline_ms, &reply, error);
	if (r < 0)
		return r;
	if (reply->kind_case == LOADERD__REPLY__KIND_ERROR) {
		connection->version_refused =
			reply->error->code == EPROTO && strcmp(reply->error->field, "version") == 0;
		r = connection_error(reply->error, text, error);
		loaderd__reply__free_unpacked(reply, NULL);
		return r;
	}
	*ret_reply = reply;
	return 0;
}

/*
 * Writes to `out` the part of the text around a position, with a caret below it. Cuts a long text
 * on both sides. Bytes beyond ASCII take one column each and become '?', control characters become
 * a space, so that the caret lines up.
 */
static void quote_with_caret(const char *text, size_t position, char *out, size_t size)
{
	size_t length = strlen(text);
	if (position > length)
		position = length;
	size_t begin = position > CARET_WIDTH * 2 / 3 ? position - CARET_WIDTH * 2 / 3 : 0;
	size_t end = length - begin > CARET_WIDTH ? begin + CARET_WIDTH : length;
	char line[CARET_WIDTH + 1];
	for (size_t i = begin; i < end; i++) {
		unsigned char c = (unsigned char)text[i];
		line[i - begin] = (char)(c < ' ' ? ' ' : c > '~' ? '?' : c);
	}
	line[end - begin] = '\0';
	snprintf(out, size, "\n  %s%s%s\n  %s%*s^", begin > 0 ? "..." : "", line,
		 end < length ? "..." : "", begin > 0 ? "   " : "", (int)(position - begin), "");
}

/*
 * Some codes describe libfeed's own state, and its callers act on them: a daemon must not send
 * them.
 */
static int code_of(const Loaderd__Error *message)
{
	switch (message->code) {
	case EAGAIN:
	case ECHILD:
	case EINTR:
	case ENOBUFS:
	case ENOTCONN:
		return -EPROTO;
	default:
		return message->code > 0 && message->code < 4096 ? -message->code : -EPROTO;
	}
}

int connection_error(const Loaderd__Error *message, const char *text, char *error)
{
	int code = code_of(message);
	char quote[3 * CARET_WIDTH] = "";
	if (text && message->position >= 0 && strcmp(message->field, "pipeline") == 0)
		quote_with_caret(text, (size_t)message->position, quote, sizeof(quote));
	char field[FIELD_MAX], said[FEED_ERROR_MAX - 300];
	snprintf(field, sizeof(field), "%s", message->field);
	snprintf(said, sizeof(said), "%s", message->text);
	text_make_printable(field);
	text_make_printable(said);
	/* Most texts already begin with the field's name. */
	int named = field[0] == '\0' || strncmp(said, field, strlen(field)) == 0;
	return error_set(error, code, "%s%s%s%s", named ? "" : field, named ? "" : ": ", said,
			 quote);
}

void copy_uuid(const ProtobufCBinaryData *field, uint8_t ret_uuid[16])
{
	if (field->len == 16)
		memcpy(ret_uuid, field->data, 16);
	else
		memset(ret_uuid, 0, 16);
}

int absolute_path(const char *path, char **ret_path, char *error)
{
	char directory[PATH_MAX];
	if (!path || path[0] == '\0')
		return error_set(error, -EINVAL, "dataset: no path given; name a .pimg file.");
	if (path[0] == '/' || text_is_address(path)) {
		directory[0] = '\0';
	} else if (!getcwd(directory, sizeof(directory))) {
		return error_set(
			error, -errno,
			"dataset: \"%s\" is relative and the working directory is unknown: %s.",
			path, strerror(errno));
	}
	char *absolute;
	if (asprintf(&absolute, "%s%s%s", directory, directory[0] == '\0' ? "" : "/", path) < 0)
		return error_set(error, -ENOMEM, "Out of memory.");
	*ret_path = absolute;
	return 0;
}
