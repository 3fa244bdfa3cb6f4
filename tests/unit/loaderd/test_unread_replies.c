/* Connections with unread replies: kept until the replies are read, and counted per user. */
#include "loaderd/event_source.h"
#include "loaderd/supervisor/unread_replies.h"
#include "tests/test.h"

#include <sys/epoll.h>
#include <sys/socket.h>

enum { ANNA = 1000, BERT = 1001, PIECES = 3 };

static struct unread_replies unread;

static int set_up(void **state)
{
	unread = (struct unread_replies){.epoll_fd = epoll_create1(EPOLL_CLOEXEC)};
	assert_true(unread.epoll_fd >= 0);
	return blocking_pool_new(&unread.blocking_pool);
}

static int tear_down(void **state)
{
	unread_deinit(&unread);
	assert_int_equal(unread.count, 0);
	blocking_pool_free(unread.blocking_pool);
	close(unread.epoll_fd);
	return 0;
}

/*
 * All pending events have been handled on return: the kernel queues them before read() and close()
 * return.
 */
static void run_once(void)
{
	assert_int_equal(event_loop_run_once(unread.epoll_fd, 0), 0);
	unread_reap(&unread);
}

/* Returns the client's end of a connection that was closed after this many replies. */
static int closed_after(uid_t uid, unsigned replies)
{
	int pair[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	for (unsigned i = 0; i < replies; i++)
		assert_int_equal(send(pair[0], "reply", 5, 0), 5);
	unread_add(&unread, uid, pair[0], replies % 2 == 1);
	run_once();
	return pair[1];
}

TEST_WITH(connection_without_unread_replies_is_not_kept, set_up, tear_down)
{
	char byte;
	int client = closed_after(ANNA, 0);
	assert_int_equal(unread_count(&unread, ANNA), 0);
	assert_int_equal(read(client, &byte, 1), 0);
	close(client);
}

TEST_WITH(connection_is_kept_until_replies_are_read, set_up, tear_down)
{
	char reply[5], byte;
	int client = closed_after(ANNA, PIECES);
	assert_int_equal(unread_count(&unread, ANNA), 1);
	assert_int_equal(send(client, "x", 1, MSG_NOSIGNAL), -1);
	assert_int_equal(errno, EPIPE);
	for (unsigned i = 0; i < PIECES; i++) {
		assert_int_equal(unread_count(&unread, ANNA), 1);
		assert_int_equal(read(client, reply, sizeof(reply)), sizeof(reply));
		assert_memory_equal(reply, "reply", sizeof(reply));
		run_once();
	}
	assert_int_equal(unread_count(&unread, ANNA), 0);
	assert_int_equal(unread.count, 0);
	assert_int_equal(read(client, &byte, 1), 0);
	close(client);
}

TEST_WITH(closed_client_no_longer_counts, set_up, tear_down)
{
	int client = closed_after(ANNA, PIECES);
	assert_int_equal(unread_count(&unread, ANNA), 1);
	close(client);
	run_once();
	assert_int_equal(unread_count(&unread, ANNA), 0);
}

TEST_WITH(users_are_counted_apart, set_up, tear_down)
{
	enum { EACH = 20 };
	int annas[EACH], berts[EACH];
	for (unsigned i = 0; i < EACH; i++) {
		annas[i] = closed_after(ANNA, 1 + i % 2);
		berts[i] = closed_after(BERT, 1 + i % 2);
	}
	for (unsigned i = 0; i < EACH; i++) {
		assert_int_equal(unread_count(&unread, ANNA), EACH - i);
		assert_int_equal(unread_count(&unread, BERT), EACH);
		/* not in the order of connection */
		close(annas[(i * 7) % EACH]);
		run_once();
	}
	assert_int_equal(unread.count, EACH);
	for (unsigned i = 0; i < EACH; i++)
		close(berts[i]);
	/* One iteration reports only some of the events. */
	for (unsigned i = 0; i < EACH; i++)
		run_once();
	assert_int_equal(unread.count, 0);
}

TEST_WITH(the_largest_count_is_found, set_up, tear_down)
{
	uid_t uid = 0;
	assert_int_equal(unread_largest(&unread, &uid), 0);
	int clients[] = {closed_after(BERT, 1), closed_after(ANNA, 1), closed_after(ANNA, 1)};
	assert_int_equal(unread_largest(&unread, &uid), 2);
	assert_int_equal(uid, ANNA);
	for (unsigned i = 0; i < 3; i++)
		close(clients[i]);
}

TEST_WITH(evicted_connections_still_count, set_up, tear_down)
{
	char text[16];
	uid_t uid;
	int clients[] = {closed_after(ANNA, 1), closed_after(ANNA, 1), closed_after(BERT, 1)};
	assert_true(unread_evict(&unread, ANNA));
	assert_int_equal(unread.count, 2);
	assert_int_equal(unread_count(&unread, ANNA), 2);
	assert_int_equal(unread_open(&unread, ANNA), 1);
	/* ANNA's newer connection is still open; read its reply. */
	assert_int_equal(read(clients[1], text, sizeof(text)), 5);
	run_once();
	assert_int_equal(unread.count, 1);
	assert_int_equal(unread_count(&unread, ANNA), 1);
	assert_int_equal(unread_largest(&unread, &uid), 1);
	assert_int_equal(uid, BERT);
	assert_false(unread_evict(&unread, ANNA));
	/* The sent replies are still readable. */
	assert_int_equal(read(clients[0], text, sizeof(text)), 5);
	for (unsigned i = 0; i < 3; i++)
		close(clients[i]);
}

/* Returns true if the epoll set reports an event. */
static bool is_woken(void)
{
	struct epoll_event event;
	return epoll_wait(unread.epoll_fd, &event, 1, 0) > 0;
}

/* A client that shuts its end down repeatedly wakes the supervisor a bounded number of times. */
TEST_WITH(client_with_repeated_events_is_paused, set_up, tear_down)
{
	enum { AGAIN = 1000, CLIENTS = 3 };
	int clients[CLIENTS];
	char text[16];
	for (unsigned i = 0; i < CLIENTS; i++)
		clients[i] = closed_after(ANNA, 1);
	assert_true(unread_due_ns(&unread) == UINT64_MAX);
	for (unsigned i = 0; i < AGAIN; i++) {
		shutdown(clients[i % CLIENTS], SHUT_WR);
		run_once();
	}
	for (unsigned i = 0; i < CLIENTS; i++) {
		shutdown(clients[i], SHUT_WR);
		assert_false(is_woken());
	}
	assert_int_equal(unread_count(&unread, ANNA), CLIENTS);
	/* A change during the pause is detected at its end, a later one immediately. */
	assert_int_equal(read(clients[0], text, sizeof(text)), 5);
	unread_on_time(&unread, unread_due_ns(&unread) - 1);
	assert_int_equal(unread_count(&unread, ANNA), CLIENTS);
	unread_on_time(&unread, unread_due_ns(&unread));
	assert_int_equal(unread_count(&unread, ANNA), CLIENTS - 1);
	assert_true(unread_due_ns(&unread) == UINT64_MAX);
	run_once();
	close(clients[1]);
	run_once();
	assert_int_equal(unread_count(&unread, ANNA), 1);
	for (unsigned i = 0; i < AGAIN; i++) {
		shutdown(clients[2], SHUT_WR);
		run_once();
	}
	/* A paused connection can be evicted like any other. */
	assert_true(unread_evict(&unread, ANNA));
	assert_true(unread_due_ns(&unread) == UINT64_MAX);
	close(clients[0]);
	close(clients[2]);
}

TEST_WITH(deinit_closes_remaining_connections, set_up, tear_down)
{
	char text[16];
	int client = closed_after(ANNA, 1);
	unread_deinit(&unread);
	assert_int_equal(unread.count, 0);
	assert_int_equal(read(client, text, sizeof(text)), 5);
	close(client);
}
