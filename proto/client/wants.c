#include "proto/client/feed_state.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

/* Encoded Request{doorbell{}} and Request{forget{}}: a field, length-delimited, empty. */
static const uint8_t doorbell[] = {4 << 3 | 2, 0}, forget[] = {9 << 3 | 2, 0};

void feed_doorbell(struct feed *feed)
{
	atomic_store(&feed->doorbell_due, true);
	while (atomic_load(&feed->doorbell_due) && pthread_mutex_trylock(&feed->sending) == 0) {
		/*
		 * A doorbell that does not fit may be dropped: the socket then holds frames that
		 * the daemon has yet to read, and it checks the acks after reading. feed_next()
		 * reports a lost daemon; a spurious doorbell to the next one is harmless.
		 */
		if (atomic_exchange(&feed->doorbell_due, false))
			(void)frame_send(feed->connection.fd, doorbell, sizeof(doorbell), NULL, 0,
					 0);
		pthread_mutex_unlock(&feed->sending);
	}
}

/* A failure loses the connection, which feed_next() notices. */
static void send_request(struct feed *feed, const uint8_t *request, size_t size)
{
	pthread_mutex_lock(&feed->sending);
	int r = frame_send(feed->connection.fd, request, size, NULL, 0, CONNECTION_TIMEOUT_MS);
	pthread_mutex_unlock(&feed->sending);
	if (r < 0)
		shutdown(feed->connection.fd, SHUT_RDWR);
	else if (atomic_load(&feed->doorbell_due))
		feed_doorbell(feed);
}

static bool connected(const struct feed *feed)
{
	return feed->ring.header && feed->failed == 0;
}

static struct wanted_batch *entry_of(const struct feed *feed, uint32_t i)
{
	const struct wanted_batches *wanted = &feed->wanted;
	return &wanted->list[(wanted->first + i) % (2 * wanted->limit)];
}

/*
 * Encodes the Want when it is asked for, so that sending it, also after a reconnect, cannot fail
 * for lack of memory. Returns 0 or -ENOMEM.
 */
static int wanted_batch_init(struct wanted_batch *batch, uint64_t epoch, const uint64_t *samples,
			     uint32_t count)
{
	Loaderd__Want want = LOADERD__WANT__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	want.epoch = epoch;
	want.n_samples = count;
	want.samples = (uint64_t *)samples;
	request.kind_case = LOADERD__REQUEST__KIND_WANT;
	request.want = &want;
	size_t size = loaderd__request__get_packed_size(&request);
	uint8_t *packed = malloc(size);
	if (!packed)
		return -ENOMEM;
	loaderd__request__pack(&request, packed);
	*batch = (struct wanted_batch){epoch, count, packed, size};
	return 0;
}

/* Sends as many of the batches that have not been sent as the daemon accepts. */
static void send_more(struct feed *feed)
{
	struct wanted_batches *wanted = &feed->wanted;
	while (connected(feed) && wanted->sent < wanted->count && wanted->sent < wanted->limit) {
		const struct wanted_batch *batch = entry_of(feed, wanted->sent++);
		send_request(feed, batch->request, batch->request_size);
	}
}

int wants_init(struct feed *feed)
{
	struct wanted_batches *wanted = &feed->wanted;
	wanted->limit = feed->info.slots + FEED_WANTS_AHEAD;
	wanted->list = calloc(2 * (size_t)wanted->limit, sizeof(*wanted->list));
	return wanted->list ? 0 : -ENOMEM;
}

void wants_deinit(struct feed *feed)
{
	if (!feed->wanted.list)
		return;
	for (uint32_t i = 0; i < feed->wanted.count; i++)
		free(entry_of(feed, i)->request);
	free(feed->wanted.list);
}

const struct wanted_batch *wants_due(const struct feed *feed)
{
	const struct wanted_batches *wanted = &feed->wanted;
	return wanted->count > wanted->forgotten ? entry_of(feed, wanted->forgotten) : NULL;
}

static void drop_oldest(struct feed *feed)
{
	struct wanted_batches *wanted = &feed->wanted;
	pthread_mutex_lock(&feed->lock);
	free(entry_of(feed, 0)->request);
	wanted->first = (wanted->first + 1) % (2 * wanted->limit);
	wanted->count--;
	wanted->sent -= wanted->sent > 0;
	wanted->forgotten -= wanted->forgotten > 0;
	pthread_mutex_unlock(&feed->lock);
}

void wants_pop(struct feed *feed)
{
	if (feed->wanted.count == 0)
		return;
	drop_oldest(feed);
	send_more(feed);
}

void wants_resend(struct feed *feed)
{
	struct wanted_batches *wanted = &feed->wanted;
	while (wanted->forgotten > 0)
		drop_oldest(feed);
	wanted->sent = 0;
	send_more(feed);
}

static int check_want(struct feed *feed, const uint64_t *samples, uint32_t count)
{
	const struct wanted_batches *wanted = &feed->wanted;
	if (count == 0 || count > feed->info.batch_size)
		return error_set(feed->error, -EINVAL,
				 "%u samples are wanted for a batch, which has 1 to %u.", count,
				 feed->info.batch_size);
	for (uint32_t i = 0; i < count; i++)
		if (samples[i] >= feed->info.samples)
			return error_set(feed->error, -EINVAL,
					 "Sample %llu is wanted, but the dataset has %llu samples.",
					 (unsigned long long)samples[i],
					 (unsigned long long)feed->info.samples);
	if (wanted->count - wanted->forgotten >= wanted->limit)
		return error_set(feed->error, -EAGAIN,
				 "%u batches are wanted already: take one before asking for more.",
				 wanted->limit);
	return 0;
}

static int refuse_unwanted(struct feed *feed)
{
	return error_set(feed->error, -EINVAL,
			 "This feed chooses its samples: open it with `wanted` to ask for them.");
}

int feed_want(struct feed *feed, uint64_t epoch, const uint64_t *samples, uint32_t count)
{
	struct wanted_batches *wanted = &feed->wanted;
	if (feed->connection.fd < 0)
		return feed_refuse_in_fork(feed);
	if (!wanted->list)
		return refuse_unwanted(feed);
	int r = check_want(feed, samples, count);
	if (r < 0)
		return r;
	struct wanted_batch batch;
	r = wanted_batch_init(&batch, epoch, samples, count);
	if (r < 0)
		return error_set(feed->error, r, "Out of memory.");
	pthread_mutex_lock(&feed->lock);
	*entry_of(feed, wanted->count++) = batch;
	pthread_mutex_unlock(&feed->lock);
	send_more(feed);
	return 0;
}

int feed_forget(struct feed *feed)
{
	struct wanted_batches *wanted = &feed->wanted;
	if (feed->connection.fd < 0)
		return feed_refuse_in_fork(feed);
	if (!wanted->list)
		return refuse_unwanted(feed);
	pthread_mutex_lock(&feed->lock);
	while (wanted->count > wanted->sent)
		free(entry_of(feed, --wanted->count)->request);
	pthread_mutex_unlock(&feed->lock);
	bool more = wanted->forgotten < wanted->count;
	wanted->forgotten = wanted->count;
	if (more && connected(feed))
		send_request(feed, forget, sizeof(forget));
	return 0;
}
