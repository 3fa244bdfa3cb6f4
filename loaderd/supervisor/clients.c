#include "loaderd/supervisor/clients.h"

#include "loaderd/event_source.h"
#include "loaderd/reply.h"
#include "proto/framing.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

struct client {
	struct event_source source;
	struct clients *clients;
	struct client *next;
	uint64_t id;
	uint64_t feed; /* valid if has_ring */
	bool has_ring; /* until the feed ends */
};

static void clients_count_without_ring(struct clients *clients, int change)
{
	clients->without_ring += (unsigned)change;
	clients->table->without_ring += (unsigned)change;
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
	if (!client->has_ring)
		clients_count_without_ring(clients, -1);
	event_source_remove(table->epoll_fd, &client->source);
	unread_add(table->unread, clients->uid, client->source.fd, true);
	client->source.fd = -1;
	client->next = table->dead;
	table->dead = client;
}

/* The client has hung up, or the worker has shut down the connection. */
static void on_hangup(struct event_source *source, uint32_t events)
{
	if (source->fd >= 0)
		clients_remove((struct client *)source);
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
	clients_count_without_ring(clients, 1);
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
	if (!client || client->has_ring)
		return ENOTCONN;
	size_t size = loaderd__reply__pack(&reply, message);
	int r = frame_send(client->source.fd, message, size, fds, IPC_FDS_MAX, 0);
	if (r == 0) {
		client->has_ring = true;
		client->feed = feed;
		clients_count_without_ring(clients, -1);
	}
	return -r;
}

void clients_ring_done(struct clients *clients, uint64_t feed)
{
	for (struct client *client = clients->first; client; client = client->next) {
		if (!client->has_ring || client->feed != feed)
			continue;
		client->has_ring = false;
		clients_count_without_ring(clients, 1);
	}
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
		if (!client->has_ring)
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
