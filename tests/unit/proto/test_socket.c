/* The default socket, and the error text if no daemon listens there. */
#include "proto/client/connection.h"

#include "format/base/system/clock.h"
#include "tests/test.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

static const char system_socket[] = "/run/loaderd/loaderd.sock";

static void found(const char *named, const char *expected)
{
	char room[SOCKET_PATH_MAX];
	assert_string_equal(connection_socket(named, room), expected);
}

TEST(order)
{
	char folder[] = "/tmp/loaderd-socket-XXXXXX";
	struct sockaddr_un own = {.sun_family = AF_UNIX};
	assert_non_null(mkdtemp(folder));
	snprintf(own.sun_path, sizeof(own.sun_path), "%s/loaderd.sock", folder);
	unsetenv("LOADERD_SOCKET");
	unsetenv("XDG_RUNTIME_DIR");
	found(NULL, system_socket);
	setenv("XDG_RUNTIME_DIR", folder, 1);
	found(NULL, system_socket);
	/* The path is a regular file. */
	int fd = open(own.sun_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
	found(NULL, system_socket);
	assert_int_equal(unlink(own.sun_path), 0);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (const struct sockaddr *)&own, sizeof(own)), 0);
	found(NULL, own.sun_path);
	found("", own.sun_path);
	/* Another user owns the socket. */
	if (geteuid() == 0) {
		assert_int_equal(chown(own.sun_path, 54321, 54321), 0);
		found(NULL, system_socket);
		assert_int_equal(chown(own.sun_path, 0, 0), 0);
	}
	setenv("LOADERD_SOCKET", "@elsewhere", 1);
	found(NULL, "@elsewhere");
	found("/here", "/here");
	close(fd);
	assert_int_equal(unlink(own.sun_path), 0);
	assert_int_equal(rmdir(folder), 0);
}

static void failed(const char *error, const char *part)
{
	if (!strstr(error, part))
		fail_msg("expected \"%s\" in \"%s\"", part, error);
}

/*
 * A service that cannot start leaves a socket that does not listen, or one whose connections nobody
 * accepts.
 */
TEST(errors_name_the_journal)
{
	static const char journal[] =
		" If the service does not start, journalctl --user -u loaderd says why.";
	char folder[] = "/tmp/loaderd-socket-XXXXXX", error[FEED_ERROR_MAX];
	struct connection connection = {.fd = -1};
	struct sockaddr_un own = {.sun_family = AF_UNIX};
	Loaderd__GetStatus get = LOADERD__GET_STATUS__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	Loaderd__Reply *reply;
	request.kind_case = LOADERD__REQUEST__KIND_GET_STATUS;
	request.get_status = &get;
	assert_non_null(mkdtemp(folder));
	setenv("XDG_RUNTIME_DIR", folder, 1);
	snprintf(own.sun_path, sizeof(own.sun_path), "%s/loaderd.sock", folder);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (const struct sockaddr *)&own, sizeof(own)), 0);
	assert_int_equal(connection_open(&connection, own.sun_path, clock_ms(), error),
			 -ECONNREFUSED);
	failed(error, journal);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(connection_open(&connection, own.sun_path, clock_ms(), error), 0);
	assert_int_equal(
		connection_request(&connection, &request, NULL, clock_ms() + 100, &reply, error),
		-ETIMEDOUT);
	failed(error, "did not answer in time.");
	failed(error, journal);
	close(fd);
	assert_int_equal(
		connection_request(&connection, &request, NULL, clock_ms() + 60000, &reply, error),
		-ECONNRESET);
	failed(error, journal);
	connection_close(&connection);
	assert_string_equal(socket_journal(system_socket), "journalctl -u loaderd");
	assert_null(socket_journal("@elsewhere"));
	assert_int_equal(unlink(own.sun_path), 0);
	assert_int_equal(rmdir(folder), 0);
}
