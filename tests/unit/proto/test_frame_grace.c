/*
 * How long frame_send() waits for a peer to read the rest of a partly sent frame. Clock and poll()
 * are simulated: the peer reads at the times that the test sets, and a test takes no real time.
 */
#include "proto/framing.h"
#include "tests/test.h"

#include <poll.h>
#include <sys/socket.h>

enum { GRACE_MS = 100, TIMEOUT_MS = 50, READ_BYTES = 64 << 10 };

static struct {
	int64_t now_ms;
	int64_t reads_from_ms, reads_every_ms; /* times at which the peer reads READ_BYTES */
	int peer;
} simulation;

int64_t __wrap_clock_ms(void);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms);

int64_t __wrap_clock_ms(void)
{
	return simulation.now_ms;
}

static void read_some(void)
{
	static char bytes[READ_BYTES];
	for (size_t size = 0; size < sizeof(bytes);) {
		ssize_t n = recv(simulation.peer, bytes, sizeof(bytes) - size, MSG_DONTWAIT);
		if (n <= 0)
			break;
		size += (size_t)n;
	}
}

/* Advances the clock until the peer reads or the timeout has passed. */
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
	for (int i = 0; i < timeout_ms; i++) {
		simulation.now_ms++;
		const int64_t since_ms = simulation.now_ms - simulation.reads_from_ms;
		if (since_ms < 0 || since_ms % simulation.reads_every_ms != 0)
			continue;
		read_some();
		return 1;
	}
	return 0;
}

/*
 * Sends a frame of `size` bytes to a peer that has not read anything yet. Returns the result of
 * frame_send().
 */
static int send_to_full(size_t size, int64_t reads_from_ms, int64_t reads_every_ms)
{
	int sockets[2];
	uint8_t *bytes = calloc(1, size);
	assert_non_null(bytes);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
	simulation.now_ms = 0;
	simulation.reads_from_ms = reads_from_ms;
	simulation.reads_every_ms = reads_every_ms;
	simulation.peer = sockets[1];
	while (send(sockets[0], bytes, size, MSG_DONTWAIT) > 0)
		;
	int r = frame_send(sockets[0], bytes, size, NULL, 0, TIMEOUT_MS);
	close(sockets[0]);
	close(sockets[1]);
	free(bytes);
	return r;
}

/* A frame begun at the end of the timeout still has the whole grace period. */
TEST(grace_counts_from_the_first_byte)
{
	assert_int_equal(send_to_full(16 * READ_BYTES, TIMEOUT_MS - 1, 6), 0);
	assert_true(simulation.now_ms > GRACE_MS);
	assert_true(simulation.now_ms < TIMEOUT_MS + GRACE_MS);
}

/* A peer that keeps reading a little does not extend the wait. */
TEST(progress_does_not_extend_the_grace)
{
	assert_int_equal(send_to_full(FRAME_SIZE_MAX, TIMEOUT_MS - 1, 60), -EPIPE);
	assert_int_equal(simulation.now_ms, TIMEOUT_MS - 1 + GRACE_MS);
}

TEST(unsent_frame_gives_eagain)
{
	assert_int_equal(send_to_full(FRAME_SIZE_MAX, TIMEOUT_MS + 1, 60), -EAGAIN);
	assert_int_equal(simulation.now_ms, TIMEOUT_MS);
}
