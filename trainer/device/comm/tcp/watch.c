/*
 * How ranks learn that the run has ended. Each rank has a connection to rank 0 that is otherwise
 * idle, so that the kernel notices when a process or machine is gone. Rank 0 tells all others.
 */
#include "trainer/device/comm/tcp/tcp.h"

#include "format/base/system/clock.h"
#include "format/base/system/io.h"
#include "format/base/text/sentence.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum {
	OFTEN_MS = 50,     /* between two looks, while computing */
	SEND_MS = 1000,    /* to send a message to a rank, which usually succeeds at once */
	EXPLAIN_MS = 3000, /* for rank 0 to say why another connection broke */
	LINGER_MS = 2000,  /* for the others to read the reason and go */
	EVENTS = 64,
};

int tcp_end(struct tcp_run *run, enum comm_end ended, int code, const char *format, ...)
{
	va_list arguments;

	if (run->failure)
		return run->failure;
	va_start(arguments, format);
	vsnprintf(run->reason, sizeof(run->reason), format, arguments);
	va_end(arguments);
	run->ended = ended;
	run->failure = code;
	return code;
}

static unsigned controls_of(const struct tcp_run *run)
{
	return run->rank ? 1 : run->world;
}

static int end_lost(struct tcp_run *run, unsigned rank)
{
	const struct tcp_member *member = &run->members[rank];

	return tcp_end(run, COMM_LOST, -ECONNRESET,
		       "rank %u of %u (process %u on %s) went away; this rank ends, and a new "
		       "start with --resume=auto continues from the newest checkpoint",
		       rank, run->world, member->process, member->name);
}

static void send_message(const struct tcp_run *run, unsigned control, enum tcp_news news,
			 unsigned rank, const char *text)
{
	struct tcp_message message = {.news = news, .rank = rank};

	snprintf(message.text, sizeof(message.text), "%s", text);
	if (run->controls[control] >= 0)
		tcp_send_all(run->controls[control], &message, sizeof(message),
			     clock_ms() + SEND_MS);
}

/* Rank 0: passes on how the run has ended. */
static void tell_all(const struct tcp_run *run)
{
	enum tcp_news news = run->ended == COMM_LOST ? TCP_NEWS_LOST : TCP_NEWS_ABORTED;

	for (unsigned rank = 1; rank < run->world; rank++)
		send_message(run, rank, news, run->culprit, run->reason);
}

int tcp_watch_open(struct tcp_run *run)
{
	run->events = epoll_create1(EPOLL_CLOEXEC);
	if (run->events < 0)
		return -errno;
	for (unsigned i = 0; i < controls_of(run); i++) {
		struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.u32 = i};

		if (run->controls[i] < 0)
			continue;
		tcp_keep_alive(run->controls[i]);
		if (epoll_ctl(run->events, EPOLL_CTL_ADD, run->controls[i], &event) < 0)
			return -errno;
	}
	return 0;
}

/* What the news of one look add up to. A rank's reason counts more than that it is gone. */
struct outcome {
	bool aborted, lost, gone;
	unsigned rank; /* that is lost or gone */
	char text[COMM_ERROR_MAX];
};

static void read_news(struct tcp_run *run, unsigned control, struct outcome *outcome)
{
	struct tcp_message message;
	int r = tcp_receive_all(run->controls[control], &message, sizeof(message),
				clock_ms() + SEND_MS);

	message.text[sizeof(message.text) - 1] = '\0';
	if (r < 0) {
		epoll_ctl(run->events, EPOLL_CTL_DEL, run->controls[control], NULL);
		/* its lanes tell if it went too early */
		if (run->closing && r == -ECONNRESET)
			return;
		if (!outcome->gone && !outcome->lost)
			outcome->rank = run->rank ? 0 : control;
		outcome->gone = true;
	} else if (message.news == TCP_NEWS_ABORTED && !outcome->aborted) {
		outcome->aborted = true;
		run->culprit = message.rank < run->world ? message.rank : control;
		memcpy(outcome->text, message.text, sizeof(outcome->text));
	} else if (message.news == TCP_NEWS_LOST && !outcome->lost) {
		outcome->lost = true;
		outcome->rank = message.rank < run->world ? message.rank : control;
		if (!outcome->aborted)
			memcpy(outcome->text, message.text, sizeof(outcome->text));
	}
}

int tcp_watch(struct tcp_run *run, int wait_ms)
{
	struct epoll_event events[EVENTS];
	struct outcome outcome = {0};

	if (run->failure)
		return run->failure;
	run->watched = clock_ms();
	int count = epoll_wait(run->events, events, EVENTS, wait_ms);
	for (int i = 0; i < count; i++)
		read_news(run, events[i].data.u32, &outcome);
	if (outcome.aborted)
		tcp_end(run, COMM_ABORTED, -ECANCELED, "%s", outcome.text);
	else if (outcome.lost && run->rank)
		tcp_end(run, COMM_LOST, -ECONNRESET, "%s", outcome.text);
	else if (outcome.lost || outcome.gone)
		end_lost(run, outcome.rank);
	if (run->failure && run->rank == 0)
		tell_all(run);
	return run->failure;
}

int tcp_watch_often(struct tcp_run *run)
{
	return run->failure || clock_ms() - run->watched >= OFTEN_MS ? tcp_watch(run, 0) : 0;
}

int tcp_lose(struct tcp_run *run, unsigned rank)
{
	int64_t deadline = clock_ms() + EXPLAIN_MS;

	while (!run->failure && clock_ms() < deadline)
		tcp_watch(run, clock_left_ms(deadline));
	if (run->failure)
		return run->failure;
	end_lost(run, rank);
	if (run->rank == 0)
		tell_all(run);
	else
		send_message(run, 0, TCP_NEWS_LOST, rank, "");
	return run->failure;
}

void tcp_tell_aborted(struct tcp_run *run, const char *reason)
{
	const struct tcp_member *member = &run->members[run->rank];

	if (run->failure)
		return;
	run->culprit = run->rank;
	tcp_end(run, COMM_ABORTED, -ECANCELED, "rank %u of %u (process %u on %s) failed: %.800s",
		run->rank, run->world, member->process, member->name, reason);
	if (run->rank == 0)
		tell_all(run);
	else
		send_message(run, 0, TCP_NEWS_ABORTED, run->rank, run->reason);
}

/* Reads what still comes until the other end closes, so that it is not reset before it has read. */
static void linger(struct tcp_run *run)
{
	int64_t deadline = clock_ms() + LINGER_MS;
	char rest[4096];

	for (unsigned i = 0; i < controls_of(run); i++)
		if (run->controls[i] >= 0)
			shutdown(run->controls[i], SHUT_WR);
	for (unsigned i = 0; i < controls_of(run); i++)
		while (run->controls[i] >= 0 &&
		       tcp_receive_all(run->controls[i], rest, sizeof(rest), deadline) == 0)
			;
}

void tcp_watch_close(struct tcp_run *run)
{
	if (!run->controls)
		return;
	if (run->failure)
		linger(run);
	for (unsigned i = 0; i < controls_of(run); i++)
		io_close(run->controls[i]);
	io_close(run->events);
	free(run->controls);
	run->controls = NULL;
}
