#include "loaderd/supervisor/guests.h"

#include "loaderd/reply.h"
#include "loaderd/watched.h"
#include "proto/framing.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

struct guest {
	struct watched watched;
	struct guests *guests;
	struct guest *next;
	uint64_t id;
	uint64_t feed; /* whose ring it has, */
	bool has_ring; /* for as long as the feed is there */
};

static void guests_count_ringless(struct guests *guests, int change)
{
	guests->ringless += (unsigned)change;
	guests->house->ringless += (unsigned)change;
}

/* Is hung up on. */
static void guests_leave(struct guest *guest)
{
	struct guests *guests = guest->guests;
	struct guest_house *house = guests->house;
	struct guest **at = &guests->first;
	while (*at != guest)
		at = &(*at)->next;
	*at = guest->next;
	guests->count--;
	if (!guest->has_ring)
		guests_count_ringless(guests, -1);
	watched_remove(house->epoll_fd, &guest->watched);
	unread_add(house->unread, guests->uid, guest->watched.fd, true);
	guest->watched.fd = -1;
	guest->next = house->dead;
	house->dead = guest;
}

/* The client has hung up, or the worker has shut the connection down. */
static void on_hangup(struct watched *watched, uint32_t events)
{
	if (watched->fd >= 0)
		guests_leave((struct guest *)watched);
}

void guests_add(struct guests *guests, uint64_t id, int fd)
{
	struct guest *guest = malloc(sizeof(*guest));
	if (!guest) {
		unread_add(guests->house->unread, guests->uid, fd, true);
		return;
	}
	*guest = (struct guest){
		.watched = {fd, on_hangup}, .guests = guests, .next = guests->first, .id = id};
	guests->first = guest;
	guests->count++;
	guests_count_ringless(guests, 1);
	/* No events but those that are always told: hang-up and error. */
	if (watched_add(guests->house->epoll_fd, &guest->watched, 0) < 0)
		guests_leave(guest);
}

static struct guest *guests_find(const struct guests *guests, uint64_t id)
{
	struct guest *guest = guests->first;
	while (guest && guest->id != id)
		guest = guest->next;
	return guest;
}

int guests_send_ring(struct guests *guests, uint64_t id, uint64_t feed, const int fds[LINK_FDS_MAX])
{
	Loaderd__Ring ring = LOADERD__RING__INIT;
	const Loaderd__Reply reply = REPLY(RING, ring, &ring);
	uint8_t message[16];
	struct guest *guest = guests_find(guests, id);
	if (!guest || guest->has_ring)
		return ENOTCONN;
	size_t size = loaderd__reply__pack(&reply, message);
	int r = frame_send(guest->watched.fd, message, size, fds, LINK_FDS_MAX, 0);
	if (r == 0) {
		guest->has_ring = true;
		guest->feed = feed;
		guests_count_ringless(guests, -1);
	}
	return -r;
}

void guests_ring_done(struct guests *guests, uint64_t feed)
{
	for (struct guest *guest = guests->first; guest; guest = guest->next) {
		if (!guest->has_ring || guest->feed != feed)
			continue;
		guest->has_ring = false;
		guests_count_ringless(guests, 1);
	}
}

void guests_hang_up(struct guests *guests, uint64_t id)
{
	struct guest *guest = guests_find(guests, id);
	if (guest)
		guests_leave(guest);
}

void guests_drop_oldest(struct guests *guests)
{
	struct guest *oldest = NULL;
	for (struct guest *guest = guests->first; guest; guest = guest->next)
		if (!guest->has_ring)
			oldest = guest;
	if (oldest)
		guests_leave(oldest);
}

void guests_refuse(struct guests *guests, const uint8_t *message, size_t size)
{
	while (guests->first) {
		(void)frame_send(guests->first->watched.fd, message, size, NULL, 0, 0);
		guests_leave(guests->first);
	}
}

void guests_deinit(struct guests *guests)
{
	while (guests->first)
		guests_leave(guests->first);
}

void guests_bury(struct guest_house *house)
{
	while (house->dead) {
		struct guest *guest = house->dead;
		house->dead = guest->next;
		free(guest);
	}
}
