/* A wait for fds reports them even if its timeout is far in the future. */
#include "format/base/system/clock.h"
#include "loaderd/event_source.h"
#include "tests/test.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#define MS UINT64_C(1000000)

static unsigned calls;

static void count_call(struct event_source *source, uint32_t events)
{
	calls++;
}

/* Runs one iteration with this timeout; a descriptor becomes ready after 20 ms. */
static void run_once(uint64_t wait_ns)
{
	const struct itimerspec soon = {.it_value.tv_nsec = (long)(20 * MS)};
	struct event_source source = {timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), count_call};
	int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	assert_true(source.fd >= 0 && epoll_fd >= 0);
	assert_int_equal(event_source_add(epoll_fd, &source, EPOLLIN), 0);
	assert_int_equal(timerfd_settime(source.fd, 0, &soon, NULL), 0);
	calls = 0;
	assert_int_equal(event_loop_run_once(epoll_fd, clock_ns(CLOCK_MONOTONIC) + wait_ns), 0);
	assert_int_equal(calls, 1);
	close(epoll_fd);
	close(source.fd);
}

/* [daemon] idle_ms may be 49 days, twice as long as the timeout of epoll_wait() can be. */
TEST(long_timeouts_are_waited_for)
{
	run_once(UINT32_MAX * MS);
	run_once((UINT64_C(1) << 32) * MS);
	run_once((UINT64_C(1) << 40) * MS);
}
