#include "format/base/system/io.h"
#include "proto/client/daemon.h"
#include "proto/client/feed_state.h"
#include "proto/client/order.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* Sizes of the structures in the first release, for callers that leave size at 0. */
enum {
	OPTIONS_SIZE_0 = offsetof(struct feed_options, reconnect),
	INFO_SIZE_0 = offsetof(struct feed_info, reconnects),
};

_Static_assert((int)FEED_WRITABLE == (int)RING_MAP_WRITABLE && (int)FEED_OWN == (int)RING_MAP_OWN,
	       "mappings pass through");

void feed_options_init(struct feed_options *options)
{
	*options = (struct feed_options){.size = sizeof(*options)};
}

size_t feed_known_size(size_t callers, size_t first, size_t ours)
{
	if (callers == 0)
		callers = first;
	return callers < ours ? callers : ours;
}

/* Checks only what the daemon cannot check. */
static int check_options(const struct feed_options *options, char *error)
{
	if (options->field_count > RING_FIELDS_MAX)
		return error_set(error, -EINVAL,
				 "fields: %u asked for, a feed delivers at most %d.",
				 options->field_count, RING_FIELDS_MAX);
	for (uint32_t i = 0; i < options->field_count; i++)
		if (!options->fields || !options->fields[i])
			return error_set(error, -EINVAL, "fields: number %u of %u has no name.", i,
					 options->field_count);
	if (options->field_count > 0 && options->value_count > 0)
		return error_set(
			error, -EINVAL,
			"values: not together with fields; ask for all of them as values.");
	if (options->value_count > RING_SECTIONS_MAX)
		return error_set(error, -EINVAL,
				 "values: %u asked for, a feed delivers at most %d.",
				 options->value_count, RING_SECTIONS_MAX);
	for (uint32_t i = 0; i < options->value_count; i++)
		if (!options->values || !options->values[i])
			return error_set(error, -EINVAL, "values: number %u of %u has no name.", i,
					 options->value_count);
	if (options->filling && options->dataset && text_is_address(options->dataset))
		return error_set(error, -EINVAL,
				 "filling: not together with the address of a dataset.");
	if (options->order && options->dataset)
		return error_set(error, -EINVAL,
				 "dataset: not together with an order, whose parts name datasets.");
	if (options->world == 0 ? options->rank > 0 : options->rank >= options->world)
		return error_set(error, -EINVAL, "rank: %u is not below world, %u.", options->rank,
				 options->world == 0 ? 1 : options->world);
	const struct {
		const char *name;
		uint32_t value, most;
		const char *is;
	} choices[] = {
		{"last", options->last, FEED_LAST_SHORT,
		 "neither FEED_LAST_DROP nor FEED_LAST_SHORT"},
		{"bad", options->bad, FEED_BAD_FAIL,
		 "none of FEED_BAD_SUBSTITUTE, FEED_BAD_SKIP, FEED_BAD_FAIL"},
		{"writable", options->writable, FEED_OWN,
		 "none of FEED_READ_ONLY, FEED_WRITABLE, FEED_OWN"},
		{"cut_values", options->cut_values, 1, "neither 0 nor 1"},
		{"wanted", options->wanted, 1, "neither 0 nor 1"},
		{"reconnect", options->reconnect, FEED_RECONNECT_NEVER,
		 "neither FEED_RECONNECT nor FEED_RECONNECT_NEVER"},
	};
	for (size_t i = 0; i < sizeof(choices) / sizeof(*choices); i++)
		if (choices[i].value > choices[i].most)
			return error_set(error, -EINVAL, "%s: %u is %s.", choices[i].name,
					 choices[i].value, choices[i].is);
	return 0;
}

struct feed *feed_new(void)
{
	struct feed *feed = calloc(1, sizeof(*feed));
	if (!feed)
		return NULL;
	feed->connection.fd = -1;
	feed->wake = -1;
	feed->timer = -1;
	feed->filling = (struct feed_filling){sizeof(feed->filling), -1, -1};
	pthread_mutex_init(&feed->lock, NULL);
	pthread_mutex_init(&feed->sending, NULL);
	return feed;
}

/* Copies a list of names into one block, which the caller frees; NULL if out of memory. */
static const char *const *copy_names(const char *const *names, uint32_t count)
{
	size_t size = count * sizeof(char *);
	for (uint32_t i = 0; i < count; i++)
		size += strlen(names[i]) + 1;
	char **copy = malloc(size);
	char *text = (char *)(copy + count);
	for (uint32_t i = 0; copy && i < count; i++) {
		copy[i] = text;
		text = stpcpy(text, names[i]) + 1;
	}
	return (const char *const *)copy;
}

/* Copies the options for reopening the feed, with owned strings. */
static int keep_options(struct feed *feed, const struct feed_options *options, char *error)
{
	char *dataset = NULL;
	int r = feed->order ? order_name(feed->order, &dataset, error)
			    : absolute_path(options->dataset, &dataset, error);
	if (r < 0)
		return r;
	feed->options = *options;
	feed->options.order = NULL; /* feed->order has it */
	feed->options.progress = feed->options.fetching = NULL;
	feed->options.filling = options->filling ? &feed->filling : NULL;
	feed->options.socket = feed->connection.socket;
	feed->options.fields = (const char *const *)feed->field_names;
	feed->options.dataset = dataset;
	feed->options.values = NULL;
	if (options->value_count > 0) {
		feed->options.values = copy_names(options->values, options->value_count);
		if (!feed->options.values)
			return error_set(error, -ENOMEM, "Out of memory.");
	}
	feed->options.pipeline = strdup(options->pipeline ? options->pipeline : "");
	feed->options.name = strdup(options->name ? options->name : "");
	if (!feed->options.pipeline || !feed->options.name)
		return error_set(error, -ENOMEM, "Out of memory.");
	return 0;
}

/* Duplicates the descriptors of files that are being filled, for reopening the feed. */
static int keep_filling(struct feed *feed, const struct feed_filling *filling, char *error)
{
	if (!filling)
		return 0;
	feed->filling.map = fcntl(filling->map, F_DUPFD_CLOEXEC, 0);
	feed->filling.page = fcntl(filling->page, F_DUPFD_CLOEXEC, 0);
	int r = feed->filling.map < 0 || feed->filling.page < 0 ? -errno : 0;
	return r < 0 ? error_set(error, r, "filling: cannot duplicate descriptors %d and %d: %s.",
				 filling->map, filling->page, strerror(-r))
		     : 0;
}

/* The dataset of a part, or the only one; it may be NULL. */
static const char *dataset_of(const struct feed *feed, const char *only, uint32_t part)
{
	return feed->order ? feed->order->parts[part].path : only;
}

static uint32_t dataset_count(const struct feed *feed)
{
	return feed->order ? feed->order->part_count : 1;
}

static int fetch_one(struct feed *feed, const char *address, uint32_t part,
		     const struct fetch_options *options, char *error)
{
	int r = fetch_open(address, options, &feed->fetched[part], error);
	if (r == 0 && feed->order)
		feed->order->messages[part]->filling = true;
	return r;
}

/* The page that the datasets share; -1 if there is none yet. */
static int find_page(const struct feed *feed)
{
	for (uint32_t p = 0; p < feed->fetched_count; p++)
		if (feed->fetched[p])
			return feed->fetched[p]->filling.page;
	return -1;
}

static int fetch_datasets(struct feed *feed, const struct feed_options *options, char *error)
{
	struct fetch_options fetch = {.timeout_ms = options->open_timeout_ms,
				      .progress = options->fetching,
				      .progress_user = options->progress_user};
	const uint32_t count = dataset_count(feed);
	for (uint32_t p = 0; p < count; p++) {
		const char *dataset = dataset_of(feed, options->dataset, p);
		fetch.datasets += dataset && text_is_address(dataset);
	}
	if (options->filling && count > 1)
		return error_set(error, -EINVAL,
				 "filling: a feed of several parts cannot tell whose files are "
				 "being filled; give one part.");
	if (fetch.datasets > FILLING_DATASETS)
		return error_set(error, -E2BIG,
				 "parts: %u are in stores, but a feed can read %d from there; "
				 "fetch some first, with packimg fetch.",
				 fetch.datasets, FILLING_DATASETS);
	if (fetch.datasets == 0)
		return 0;
	feed->fetched = calloc(count, sizeof(*feed->fetched));
	if (!feed->fetched)
		return error_set(error, -ENOMEM, "Out of memory.");
	feed->fetched_count = count;
	int r = 0;
	for (uint32_t p = 0; r == 0 && p < count; p++) {
		const char *dataset = dataset_of(feed, options->dataset, p);
		if (!dataset || !text_is_address(dataset))
			continue;
		fetch.page = find_page(feed);
		r = fetch_one(feed, dataset, p, &fetch, error);
		fetch.number++;
	}
	return r;
}

static int open_feed(struct feed *feed, const struct feed_options *options, char *error)
{
	int r = check_options(options, error);
	if (r == 0 && options->socket && options->reconnect != FEED_RECONNECT_NEVER)
		r = daemon_revive(options->socket, error);
	if (r == 0 && options->order)
		r = order_keep(options->order, &feed->order, error);
	r = r ?: keep_filling(feed, options->filling, error);
	r = r ?: fetch_datasets(feed, options, error);
	r = r ?: feed_subscribe(feed, options, error);
	r = r ?: keep_options(feed, options, error);
	if (r < 0)
		return r;
	if (options->wanted && wants_init(feed) < 0)
		return error_set(error, -ENOMEM, "Out of memory.");
	feed->wake = epoll_create1(EPOLL_CLOEXEC);
	r = feed->wake < 0 ? -errno : reopen_watch_socket(feed);
	for (uint32_t p = 0; r == 0 && p < feed->fetched_count; p++)
		if (feed->fetched[p])
			r = reopen_watch_fetcher(feed, feed->fetched[p]);
	return r < 0 ? error_set(error, r, "Cannot watch the connection: %s.", strerror(-r)) : 0;
}

static struct feed *feed_of(struct fork_guard *guard)
{
	return (struct feed *)((char *)guard - offsetof(struct feed, guard));
}

/*
 * Keeps the held batches intact in the child when their slots are reused. Holds the lock until the
 * fork is done, so that feed_close() works in the child.
 */
static void before_fork(struct fork_guard *guard)
{
	struct feed *feed = feed_of(guard);
	pthread_mutex_lock(&feed->lock);
	ring_keep_held(&feed->ring);
	for (const struct old_ring *old = feed->old; old; old = old->next)
		ring_keep_held(&old->ring);
}

static void after_fork(struct fork_guard *guard)
{
	pthread_mutex_unlock(&feed_of(guard)->lock);
}

int feed_open(const struct feed_options *callers, struct feed **ret_feed, char *error)
{
	struct feed_options options = {0};
	memcpy(&options, callers, feed_known_size(callers->size, OPTIONS_SIZE_0, sizeof(options)));
	if (callers->size <= FEED_OPTIONS_SIZE_1)
		options.cut_values = 1; /* programs built before cut_values rely on truncation */
	if (error)
		error[0] = '\0';
	struct feed *feed = feed_new();
	if (!feed)
		return error_set(error, -ENOMEM, "Out of memory.");
	feed->guard.before = before_fork;
	feed->guard.after = after_fork;
	int r = open_feed(feed, &options, error);
	if (r < 0) {
		feed_close(feed);
		return r;
	}
	*ret_feed = feed;
	return 0;
}

void feed_close(struct feed *feed)
{
	if (!feed)
		return;
	fork_guard_remove(&feed->guard);
	connection_close(&feed->connection);
	io_close(feed->wake);
	io_close(feed->timer);
	io_close(feed->filling.map);
	io_close(feed->filling.page);
	ring_consumer_deinit(&feed->ring);
	old_rings_free(feed);
	wants_deinit(feed);
	for (uint32_t i = 0; i < feed->field_count; i++)
		free(feed->field_names[i]);
	sections_deinit(feed);
	order_free(feed->order);
	for (uint32_t p = 0; p < feed->fetched_count; p++)
		fetch_close(feed->fetched[p]);
	free(feed->fetched);
	free(feed->parts);
	free(feed->bucket_samples);
	if (feed->options.value_count > 0)
		free((void *)feed->options.values);
	free((char *)feed->options.dataset);
	free((char *)feed->options.pipeline);
	free((char *)feed->options.name);
	free(feed);
}

void feed_disconnect(struct feed *feed)
{
	if (feed->connection.fd < 0)
		return;
	/* Keep the fd open: a concurrent feed_release() must not write to a reused fd number. */
	shutdown(feed->connection.fd, SHUT_RDWR);
	feed->failed = error_set(feed->error, -ENOTCONN, "The feed was disconnected by its owner.");
}

int feed_info(const struct feed *feed, struct feed_info *info)
{
	size_t callers = info->size;
	memcpy(info, &feed->info, feed_known_size(callers, INFO_SIZE_0, sizeof(*info)));
	info->size = callers;
	return 0;
}

int feed_opened_part(const struct feed *feed, uint32_t part, struct feed_opened_part *ret_part)
{
	size_t callers = ret_part->size;
	if (part >= feed->info.part_count)
		return -EINVAL;
	memcpy(ret_part, &feed->parts[part],
	       feed_known_size(callers, sizeof(*ret_part), sizeof(*ret_part)));
	ret_part->size = callers;
	return 0;
}

int feed_bucket_samples(const struct feed *feed, uint32_t bucket, uint64_t *ret_samples)
{
	if (!feed->order || bucket >= feed->order->bucket_count)
		return -EINVAL;
	*ret_samples = feed->bucket_samples[bucket];
	return 0;
}

void feed_set_position(struct feed *feed, uint64_t epoch, uint64_t batch, bool ended)
{
	ended |= batch != 0 && batch == feed->info.batches_per_epoch;
	feed->epoch = ended ? epoch + 1 : epoch;
	feed->batch = ended ? 0 : batch;
}

int feed_position(const struct feed *feed, uint64_t *ret_epoch, uint64_t *ret_batch)
{
	*ret_epoch = feed->epoch;
	*ret_batch = feed->batch;
	return 0;
}

const char *feed_error(const struct feed *feed)
{
	return feed->error;
}

int feed_fd(const struct feed *feed)
{
	return feed->connection.fd < 0 ? -1 : feed->wake;
}
