/* loaderbench reads a daemon's status and must select the feeds of its own clients. */
#include "bench/measure/sampler.h"
#include "tests/test.h"

#include <sys/socket.h>

enum { OWN = 100, OWN_TOO = 102, NEIGHBOUR = 101, NOBODY = 0 };

/*
 * Replies with feeds of clients with these pids. Each feed's counters are ten times those of the
 * feed before.
 */
static void answer_with(int daemon, const uint32_t *pids, unsigned count)
{
	Loaderd__FeedStatus feeds[8], *list[8];
	Loaderd__Status status = LOADERD__STATUS__INIT;
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	uint8_t message[1024];
	uint64_t scale = 1;

	for (unsigned i = 0; i < count; i++, scale *= 10) {
		loaderd__feed_status__init(&feeds[i]);
		feeds[i].pid = pids[i];
		feeds[i].images = scale;
		feeds[i].decode_ns = 2 * scale;
		feeds[i].stall_daemon_ns = 3 * scale;
		list[i] = &feeds[i];
	}
	status.pid = (uint32_t)getpid();
	status.threads = 5;
	status.feeds = list;
	status.n_feeds = count;
	reply.kind_case = LOADERD__REPLY__KIND_STATUS;
	reply.status = &status;
	assert_true(loaderd__reply__get_packed_size(&reply) <= sizeof(message));
	size_t size = loaderd__reply__pack(&reply, message);
	assert_int_equal(frame_send(daemon, message, size, NULL, 0, 0), 0);
}

static struct snapshot look(const pid_t *clients, unsigned client_count)
{
	static const uint32_t pids[] = {NEIGHBOUR, OWN, NEIGHBOUR, OWN_TOO, OWN};
	struct connection connection;
	struct snapshot snapshot;
	char error[FEED_ERROR_MAX];
	int ends[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends),
			 0);
	connection = (struct connection){.fd = ends[0]};
	frame_reader_init(&connection.reader);
	/* Queues the reply before the request is sent. */
	answer_with(ends[1], pids, 5);
	assert_int_equal(sampler_take(&connection, clients, client_count, &snapshot, error), 0);
	assert_int_equal(snapshot.threads, 5);
	connection_close(&connection);
	close(ends[1]);
	return snapshot;
}

TEST(counts_only_own_feeds)
{
	static const pid_t clients[] = {OWN, OWN_TOO};
	struct snapshot snapshot = look(clients, 2);

	assert_int_equal(snapshot.feeds, 3);
	assert_int_equal(snapshot.images, 11010);
	assert_int_equal(snapshot.times.stage[STAGE_DECODE], 22020);
	assert_int_equal(snapshot.times.stall_daemon, 33030);
}

TEST(ended_clients_do_not_count)
{
	static const pid_t clients[] = {NOBODY, OWN_TOO};
	struct snapshot snapshot = look(clients, 2);

	assert_int_equal(snapshot.feeds, 1);
	assert_int_equal(snapshot.images, 1000);
	snapshot = look(clients, 1);
	assert_int_equal(snapshot.feeds, 0);
	assert_int_equal(snapshot.images, 0);
	assert_int_equal(snapshot.times.stage[STAGE_DECODE], 0);
}
