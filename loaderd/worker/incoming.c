#include "loaderd/worker/incoming.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

void incoming_init(struct incoming *incoming, uint32_t most, bool direct)
{
	*incoming = (struct incoming){.most = most, .direct = direct};
}

void incoming_deinit(struct incoming *incoming)
{
	for (uint32_t i = 0; i < incoming->count; i++)
		if (incoming->fds[i] >= 0)
			close(incoming->fds[i]);
	free(incoming->fds);
	*incoming = (struct incoming){0};
}

static uint32_t incoming_wanted(const struct incoming *incoming)
{
	return incoming->total < incoming->most ? incoming->total : incoming->most;
}

bool incoming_complete(const struct incoming *incoming)
{
	return incoming->total > 0 && incoming->count == incoming_wanted(incoming);
}

uint32_t incoming_left(const struct incoming *incoming)
{
	return incoming_wanted(incoming) - incoming->count;
}

void incoming_ask(struct incoming *incoming, Loaderd__NeedFiles *ret_need)
{
	uint32_t left = incoming->total == 0 ? incoming->most : incoming_left(incoming);
	loaderd__need_files__init(ret_need);
	ret_need->first = incoming->count;
	ret_need->most = left < FRAME_FDS_MAX ? left : FRAME_FDS_MAX;
	ret_need->direct = incoming->direct;
	incoming->due = true;
}

int incoming_take(struct incoming *incoming, const Loaderd__Files *part,
		  struct frame_reader *reader, uint64_t limit)
{
	unsigned count = frame_fd_count(reader);
	if (!incoming->due || count == 0 || part->first != incoming->count ||
	    part->direct != incoming->direct || part->total == 0 ||
	    (incoming->total != 0 && part->total != incoming->total))
		return -EPROTO;
	if (part->total > limit)
		return -EDQUOT;
	incoming->due = false;
	incoming->total = part->total;
	if (count > incoming_left(incoming))
		return -EPROTO;
	int *fds = realloc(incoming->fds, (incoming->count + count) * sizeof(*fds));
	if (!fds)
		return -ENOMEM;
	incoming->fds = fds;
	for (unsigned i = 0; i < count; i++)
		fds[incoming->count + i] = frame_take_fd(reader, i);
	incoming->count += count;
	return 0;
}
