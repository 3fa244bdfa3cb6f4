#include "trainer/device/comm/tcp/acceptor.h"

#include "format/base/system/clock.h"
#include "format/base/system/io.h"
#include "trainer/device/comm/tcp/socket.h"

unsigned acceptor_polls(const struct acceptor *acceptor, struct pollfd *polls)
{
	polls[0] = (struct pollfd){acceptor->listener, POLLIN, 0};
	for (unsigned i = 0; i < acceptor->count; i++)
		polls[i + 1] = (struct pollfd){acceptor->newcomers[i].fd, POLLIN, 0};
	return acceptor->count + 1;
}

static void drop(struct acceptor *acceptor, unsigned i)
{
	io_close(acceptor->newcomers[i].fd);
	if (i != --acceptor->count)
		acceptor->newcomers[i] = acceptor->newcomers[acceptor->count];
}

static void make_room(struct acceptor *acceptor)
{
	unsigned oldest = acceptor->count;

	for (unsigned i = 0; i < acceptor->count; i++)
		if (!acceptor->newcomers[i].proved &&
		    (oldest == acceptor->count ||
		     acceptor->newcomers[i].deadline < acceptor->newcomers[oldest].deadline))
			oldest = i;
	if (oldest < acceptor->count)
		drop(acceptor, oldest);
}

/* False if the connection is of no further use. */
static bool advance(struct acceptor *acceptor, struct newcomer *newcomer)
{
	for (;;) {
		ssize_t got = tcp_receive(newcomer->fd, newcomer->bytes + newcomer->got,
					  newcomer->wanted - newcomer->got);
		if (got < 0)
			return false;
		newcomer->got += (size_t)got;
		if (newcomer->got < newcomer->wanted)
			return clock_ms() < newcomer->deadline;
		if (!acceptor->read(newcomer, acceptor->context))
			return false;
	}
}

void acceptor_advance(struct acceptor *acceptor)
{
	for (unsigned i = 0; i < acceptor->count;) {
		if (advance(acceptor, &acceptor->newcomers[i]))
			i++;
		else
			drop(acceptor, i);
	}
	for (unsigned i = 0; i < ACCEPTOR_MAX; i++) {
		int fd = tcp_accept(acceptor->listener);

		if (fd < 0)
			return;
		if (acceptor->count == ACCEPTOR_MAX)
			make_room(acceptor);
		if (acceptor->count == ACCEPTOR_MAX) {
			io_close(fd);
			return;
		}
		struct newcomer *newcomer = &acceptor->newcomers[acceptor->count++];
		*newcomer = (struct newcomer){
			.fd = fd, .deadline = clock_ms() + ACCEPTOR_MS, .wanted = acceptor->wanted};
		/* a rank sends at once, so that a flood of strangers does not push it out */
		if (!advance(acceptor, newcomer))
			drop(acceptor, acceptor->count - 1);
	}
}

void acceptor_close(struct acceptor *acceptor)
{
	while (acceptor->count)
		drop(acceptor, acceptor->count - 1);
	io_close(acceptor->listener);
	acceptor->listener = -1;
}
