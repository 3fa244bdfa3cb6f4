#include "loaderd/supervisor/clients.h"

#include "loaderd/event_source.h"
#include "loaderd/reply.h"
#include "proto/framing.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

enum client_state {
	CLIENT_CLOSED,       /* freed by clients_reap() */
	CLIENT_WITHOUT_RING, /* may be evicted */
	CLIENT_WITH_RING,    /* until its feed ends */
};

struct client {
	enum client_state state;
	struct event_source source;
	struct clients *clients;
	struct client *next;
	uint64_t id;
	uint64_t feed; /* CLIENT_WITH_RING: feed id of the ring */
};

/* Changes the state and the counts of clients without a ring. */
static void client_enter(struct client *client, enum client_state state)
{
	struct clients *clients = client->clients;
	if (client->state == CLIENT_WITHOUT_RING) {
		clients->without_ring--;
		clients->table->without_ring--;
	}
	client->state = state;
	if (state == CLIENT_WITHOUT_RING) {
		clients->without_ring++;
		clients->table->without_ring++;
	}
}

/* Closes the connection; clients_reap() frees the client. */
static void clients_remove(struct client *client)
{
	struct clients *clients = client->clients;
	struct client_table *table = clients->table;
	struct client **at = &clients->first;
	while (*at != client)
		at = &(*at)->next;
	*at = client->next;
	clients->count--;
	client_enter(client, CLIENT_CLOSED);
	event_source_remove(table->epoll_fd, &client->source);
	unread_add(table->unread, clients->uid, client->source.fd, true);
	client->next = table->dead;
	table->dead = client;
}

/* The client has hung up, or the worker has shut down the connection. */
static void on_hangup(struct event_source *source, uint32_t events)
{
	struct client *client = CONTAINER_OF(client, source, source);
	if (client->state != CLIENT_CLOSED)
		clients_remove(client);
}

void clients_add(struct clients *clients, uint64_t id, int fd)
{
	struct client *client = malloc(sizeof(*client));
	if (!client) {
		unread_add(clients->table->unread, clients->uid, fd, true);
		return;
	}
	*client = (struct client){
		.source = {fd, on_hangup}, .clients = clients, .next = clients->first, .id = id};
	clients->first = client;
	clients->count++;
	client_enter(client, CLIENT_WITHOUT_RING);
	/* Mask 0: epoll always reports hang-ups and errors. */
	if (event_source_add(clients->table->epoll_fd, &client->source, 0) < 0)
		clients_remove(client);
}

static struct client *clients_find(const struct clients *clients, uint64_t id)
{
	struct client *client = clients->first;
	while (client && client->id != id)
		client = client->next;
	return client;
}

int clients_send_ring(struct clients *clients, uint64_t id, uint64_t feed,
		      const int fds[IPC_FDS_MAX])
{
	Loaderd__Ring ring = LOADERD__RING__INIT;
	const Loaderd__Reply reply = REPLY(RING, ring, &ring);
	uint8_t message[16];
	struct client *client = clients_find(clients, id);
	if (!client || client->state != CLIENT_WITHOUT_RING)
		return ENOTCONN;
	size_t size = loaderd__reply__pack(&reply, message);
	int r = frame_send(client->source.fd, message, size, fds, IPC_FDS_MAX, 0);
	if (r < 0)
		return -r;
	client->feed = feed;
	client_enter(client, CLIENT_WITH_RING);
	return 0;
}

void clients_ring_done(struct clients *clients, uint64_t feed)
{
	for (struct client *client = clients->first; client; client = client->next)
		if (client->state == CLIENT_WITH_RING && client->feed == feed)
			client_enter(client, CLIENT_WITHOUT_RING);
}

void clients_disconnect(struct clients *clients, uint64_t id)
{
	struct client *client = clients_find(clients, id);
	if (client)
		clients_remove(client);
}

void clients_evict_oldest(struct clients *clients)
{
	struct client *oldest = NULL;
	for (struct client *client = clients->first; client; client = client->next)
		if (client->state == CLIENT_WITHOUT_RING)
			oldest = client;
	if (oldest)
		clients_remove(oldest);
}

void clients_refuse_all(struct clients *clients, const uint8_t *message, size_t size)
{
	while (clients->first) {
		(void)frame_send(clients->first->source.fd, message, size, NULL, 0, 0);
		clients_remove(clients->first);
	}
}

void clients_deinit(struct clients *clients)
{
	while (clients->first)
		clients_remove(clients->first);
}

void clients_reap(struct client_table *table)
{
	while (table->dead) {
		struct client *client = table->dead;
		table->dead = client->next;
		free(client);
	}
}
