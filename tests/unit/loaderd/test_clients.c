/* Counts of connections without a ring, in all orders of events. */
#include "loaderd/event_source.h"
#include "loaderd/supervisor/clients.h"
#include "tests/test.h"

#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum { USER = 64201, FIRST = 1, SECOND, THIRD, FEED = 7, OTHER_FEED, CLIENTS = 3 };

struct scene {
	struct unread_replies unread;
	struct client_table table;
	struct clients clients;
	struct blocking_pool *pool;
	int sockets[CLIENTS];
	int ring[IPC_FDS_MAX];
};

/* Adds the clients FIRST, SECOND and THIRD. */
static void set_up(struct scene *scene)
{
	const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	*scene = (struct scene){0};
	assert_true(epoll_fd >= 0);
	assert_int_equal(blocking_pool_new(&scene->pool), 0);
	scene->unread = (struct unread_replies){.epoll_fd = epoll_fd, .blocking_pool = scene->pool};
	scene->table = (struct client_table){.epoll_fd = epoll_fd, .unread = &scene->unread};
	scene->clients = (struct clients){.table = &scene->table, .uid = USER};
	for (unsigned i = 0; i < IPC_FDS_MAX; i++) {
		scene->ring[i] = memfd_create("ring", MFD_CLOEXEC);
		assert_true(scene->ring[i] >= 0);
	}
	for (unsigned i = 0; i < CLIENTS; i++) {
		int ends[2];
		assert_int_equal(
			socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends),
			0);
		scene->sockets[i] = ends[0];
		clients_add(&scene->clients, FIRST + i, ends[1]);
	}
}

static void assert_counts(const struct scene *scene, unsigned clients, unsigned without_ring)
{
	assert_int_equal(scene->clients.count, clients);
	assert_int_equal(scene->clients.without_ring, without_ring);
	assert_int_equal(scene->table.without_ring, without_ring);
}

static int send_ring(struct scene *scene, uint64_t id, uint64_t feed)
{
	return clients_send_ring(&scene->clients, id, feed, scene->ring);
}

static void leave(struct scene *scene, unsigned client)
{
	close(scene->sockets[client]);
	scene->sockets[client] = -1;
	assert_int_equal(event_loop_run_once(scene->table.epoll_fd, 0), 0);
}

static void tear_down(struct scene *scene)
{
	clients_deinit(&scene->clients);
	assert_counts(scene, 0, 0);
	clients_reap(&scene->table);
	unread_deinit(&scene->unread);
	for (unsigned i = 0; i < CLIENTS; i++)
		if (scene->sockets[i] >= 0)
			close(scene->sockets[i]);
	for (unsigned i = 0; i < IPC_FDS_MAX; i++)
		close(scene->ring[i]);
	blocking_pool_free(scene->pool);
	close(scene->table.epoll_fd);
}

TEST(a_ring_counts_as_long_as_its_feed)
{
	struct scene scene;
	set_up(&scene);
	assert_counts(&scene, 3, 3);
	assert_int_equal(send_ring(&scene, FIRST, FEED), 0);
	assert_int_equal(send_ring(&scene, SECOND, OTHER_FEED), 0);
	assert_counts(&scene, 3, 1);
	assert_int_equal(send_ring(&scene, FIRST, OTHER_FEED),
			 ENOTCONN); /* the client already has a ring */
	assert_int_equal(send_ring(&scene, THIRD + 1, FEED),
			 ENOTCONN); /* the client does not exist */
	assert_counts(&scene, 3, 1);
	for (unsigned i = 0; i < 2; i++) {
		clients_ring_done(&scene.clients, FEED);
		assert_counts(&scene, 3, 2);
	}
	assert_int_equal(send_ring(&scene, FIRST, FEED), 0); /* another ring after the first */
	assert_counts(&scene, 3, 1);
	tear_down(&scene);
}

/* Hang-up and the end of the feed occur in either order. */
TEST(disconnected_client_no_longer_counts)
{
	struct scene scene;
	set_up(&scene);
	assert_int_equal(send_ring(&scene, FIRST, FEED), 0);
	assert_int_equal(send_ring(&scene, SECOND, OTHER_FEED), 0);
	/* After the disconnect, replies that were sent but not read count as unread. */
	clients_disconnect(&scene.clients, FIRST);
	assert_counts(&scene, 2, 1);
	clients_ring_done(&scene.clients, FEED);
	assert_counts(&scene, 2, 1);
	assert_int_equal(scene.unread.count, 1);
	clients_ring_done(&scene.clients, OTHER_FEED);
	assert_counts(&scene, 2, 2);
	leave(&scene, 1);
	assert_counts(&scene, 1, 1);
	leave(&scene, 2);
	assert_counts(&scene, 0, 0);
	leave(&scene, 0);
	assert_int_equal(scene.unread.count, 0);
	tear_down(&scene);
}

/* A client that does not read gets no ring, and the counts stay the same. */
TEST(unsent_ring_does_not_count)
{
	static const char bytes[1024];
	struct scene scene;
	int ends[2];
	set_up(&scene);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends),
			 0);
	while (send(ends[1], bytes, sizeof(bytes), MSG_NOSIGNAL) > 0)
		;
	clients_add(&scene.clients, THIRD + 1, ends[1]);
	assert_counts(&scene, 4, 4);
	assert_int_equal(send_ring(&scene, THIRD + 1, FEED), EAGAIN);
	assert_counts(&scene, 4, 4);
	clients_ring_done(&scene.clients, FEED);
	assert_counts(&scene, 4, 4);
	close(ends[0]);
	tear_down(&scene);
}

/* A client with a ring is not evicted, and none is evicted if all have rings. */
TEST(oldest_client_without_ring_is_evicted)
{
	struct scene scene;
	char byte;
	set_up(&scene);
	assert_int_equal(send_ring(&scene, FIRST, FEED), 0);
	clients_evict_oldest(&scene.clients);
	assert_counts(&scene, 2, 1);
	assert_int_equal(recv(scene.sockets[1], &byte, 1, 0), 0);
	clients_evict_oldest(&scene.clients);
	assert_counts(&scene, 1, 0);
	clients_evict_oldest(&scene.clients);
	assert_counts(&scene, 1, 0);
	clients_ring_done(&scene.clients, FEED);
	clients_evict_oldest(&scene.clients);
	assert_counts(&scene, 0, 0);
	tear_down(&scene);
}
