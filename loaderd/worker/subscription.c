#include "loaderd/worker/subscription.h"

#include "format/base/system/memory.h"
#include "format/join.h"
#include "loaderd/worker/delivery.h"
#include "loaderd/worker/feed_order.h"
#include "loaderd/worker/filling_files.h"
#include "loaderd/worker/server_internal.h"
#include "proto/framing.h"

#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	/*
	 * Number of slots if the client leaves it to the daemon: enough batches to cover a slow
	 * one, without using gigabytes for large ones.
	 */
	SLOTS_MIN = 3,
	SLOTS_MAX = 8,
	SLOTS_BYTES = 512 << 20,
	REPEATS_MAX = 256,
};

int refuse_request(struct refusal *refusal, int code, const char *field, const char *format, ...)
{
	refusal->code = code;
	refusal->field = field;
	refusal->position = -1;
	refusal->left = 0;
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(refusal->text, sizeof(refusal->text), format, arguments);
	va_end(arguments);
	return -code;
}

/* Refuses a pipeline with an error of pipeline.h. */
static int refuse_pipeline(struct refusal *refusal, int code, const struct pipeline_error *error)
{
	refuse_request(refusal, -code, "pipeline", "%s", error->text);
	refusal->position = error->position;
	return code;
}

static int check_limit(const char *field, uint32_t value, uint64_t limit, struct refusal *refusal)
{
	if (value <= limit)
		return 0;
	return refuse_request(refusal, EDQUOT, field,
			      "%s %u exceeds the daemon's limit of %llu ([limits] %s)", field,
			      value, (unsigned long long)limit, field);
}

/* A wanted feed has no order of its own. */
static int check_wanted(const Loaderd__OpenFeed *request, struct refusal *refusal)
{
	const struct {
		const char *field;
		bool set;
	} fields[] = {
		{"shuffle", request->shuffle},
		{"epoch", request->epoch != 0},
		{"batch", request->batch != 0},
		{"epoch_end", request->epoch_end != 0},
		{"rank", request->rank != 0},
		{"world", request->world > 1},
		{"last", request->last != LOADERD__LAST_BATCH__LAST_DROP},
		{"repeats", request->repeats > 1},
		{"stages", request->n_stages > 0},
		{"epoch_samples", request->epoch_samples != 0},
		{"part_batches", request->part_batches},
		{"buckets", request->n_buckets > 0},
		{"block_samples", request->block_samples > 0 || request->group_blocks > 0},
		{"batch_tokens", request->batch_tokens > 0},
	};
	if (!request->wanted)
		return 0;
	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
		if (fields[i].set)
			return refuse_request(refusal, EINVAL, fields[i].field,
					      "%s does not apply to a wanted feed, whose client "
					      "lists the samples of each batch; leave it unset",
					      fields[i].field);
	for (size_t p = 0; p < request->n_parts; p++)
		if (request->parts[p]->choice)
			return refuse_request(refusal, EINVAL, "parts",
					      "a wanted feed has no choice of samples: its client "
					      "lists the samples of each batch");
	if (request->batch_size > WANTS_BATCH_MAX)
		return refuse_request(refusal, EINVAL, "batch_size",
				      "batch_size %u: a batch of a wanted feed has at most %d "
				      "samples",
				      request->batch_size, WANTS_BATCH_MAX);
	return 0;
}

static int check_buckets(const Loaderd__OpenFeed *request, const struct config *config,
			 struct refusal *refusal)
{
	uint32_t world = request->world == 0 ? 1 : request->world;
	if (request->n_buckets > BUCKETS_MAX)
		return refuse_request(refusal, EINVAL, "buckets", "%zu buckets: a feed may have %d",
				      request->n_buckets, BUCKETS_MAX);
	for (size_t i = 0; i < request->n_buckets; i++) {
		uint32_t width = request->buckets[i]->width, height = request->buckets[i]->height;
		if (width == 0 || height == 0)
			return refuse_request(refusal, EINVAL, "buckets",
					      "bucket %zu is %u x %u pixels: a side is at least 1",
					      i, width, height);
		if (width > config->image_side || height > config->image_side)
			return refuse_request(
				refusal, EDQUOT, "buckets",
				"bucket %zu is %u x %u pixels, but the daemon's limit "
				"is %llu pixels per side ([limits] image_side)",
				i, width, height, (unsigned long long)config->image_side);
		uint32_t batch_size = request->buckets[i]->batch_size;
		if (batch_size > request->batch_size)
			return refuse_request(refusal, EINVAL, "buckets",
					      "bucket %zu has a batch_size of %u, above that of "
					      "the feed, %u, which is the largest",
					      i, batch_size, request->batch_size);
		if (batch_size > 0 && request->repeats > 1 &&
		    (uint64_t)batch_size * world % request->repeats != 0)
			return refuse_request(refusal, EINVAL, "buckets",
					      "bucket %zu has a batch_size of %u: repeats %u does "
					      "not divide it times world %u",
					      i, batch_size, request->repeats, world);
	}
	if (request->n_buckets > 0 && request->n_parts == 0)
		return refuse_request(refusal, EINVAL, "parts",
				      "buckets need a part: give the dataset as the only one");
	return 0;
}

static int refuse_blocks(const char *text, struct refusal *refusal)
{
	return refuse_request(refusal, EINVAL, "block_samples", "%s", text);
}

/* Whether samples of the part are drawn one by one, and not each once. */
static bool draws_singly(const Loaderd__Part *part)
{
	const Loaderd__Choice *choice = part->choice;
	return choice && (choice->weighted || choice->class_weighted || choice->balanced ||
			  choice->classes_per_batch > 0);
}

/* Blocks permute the chosen samples of each part, each of which comes once. */
static int check_blocks(const Loaderd__OpenFeed *request, struct refusal *refusal)
{
	if (request->block_samples == 0 && request->group_blocks == 0)
		return 0;
	if (request->block_samples == 0 || request->group_blocks == 0)
		return refuse_request(refusal, EINVAL, "block_samples",
				      "block_samples %u and group_blocks %u: give both, at least "
				      "1, or neither",
				      request->block_samples, request->group_blocks);
	if (request->n_parts == 0)
		return refuse_request(refusal, EINVAL, "parts",
				      "blocks need a part: give the dataset as the only one");
	if (!request->shuffle)
		return refuse_blocks("blocks are shuffled: set shuffle, or omit them", refusal);
	if (request->n_buckets > 0)
		return refuse_blocks("a feed has either blocks or buckets", refusal);
	if (request->batch_tokens > 0)
		return refuse_blocks("a feed has either blocks or batch_tokens", refusal);
	for (size_t p = 0; p < request->n_parts; p++)
		if (draws_singly(request->parts[p]))
			return refuse_blocks("weights and batches of classes draw samples one by "
					     "one: omit them, or the blocks",
					     refusal);
	return 0;
}

static int check_tokens(const Loaderd__OpenFeed *request, struct refusal *refusal)
{
	if (request->batch_tokens == 0 && request->tokens_field[0] != '\0')
		return refuse_request(refusal, EINVAL, "tokens_field",
				      "tokens_field is for feeds with batch_tokens: set these, or "
				      "leave it unset");
	if (request->batch_tokens == 0)
		return 0;
	if (request->batch_tokens > PACKS_TOKENS_MAX)
		return refuse_request(refusal, EINVAL, "batch_tokens",
				      "batch_tokens %u: a batch has at most %d",
				      request->batch_tokens, PACKS_TOKENS_MAX);
	if (request->repeats > 1)
		return refuse_request(refusal, EINVAL, "repeats",
				      "repeats %u: with batch_tokens each sample comes once; leave "
				      "one of them unset",
				      request->repeats);
	if (request->n_parts == 0 && !request->wanted)
		return refuse_request(refusal, EINVAL, "parts",
				      "batch_tokens need a part: give the dataset as the only one");
	return 0;
}

/* An order of its own needs parts, which replace the dataset. */
static int check_parts(const Loaderd__OpenFeed *request, struct refusal *refusal)
{
	if (request->n_parts > 0 && request->dataset[0] != '\0')
		return refuse_request(refusal, EINVAL, "dataset",
				      "a feed of parts has no dataset beside them");
	if (request->n_parts == 0 &&
	    (request->n_stages > 0 || request->epoch_samples != 0 || request->part_batches))
		return refuse_request(refusal, EINVAL, "parts",
				      "stages, epoch_samples and part_batches need parts");
	if (request->ends != LOADERD__ENDS__ENDS_FIRST && request->ends != LOADERD__ENDS__ENDS_LAST)
		return refuse_request(refusal, EINVAL, "ends",
				      "ends = %d is not known; it is %d (ENDS_FIRST) or %d "
				      "(ENDS_LAST)",
				      (int)request->ends, LOADERD__ENDS__ENDS_FIRST,
				      LOADERD__ENDS__ENDS_LAST);
	return 0;
}

static int check_request(const Loaderd__OpenFeed *request, const struct config *config,
			 struct refusal *refusal)
{
	uint32_t world = request->world == 0 ? 1 : request->world;
	if (request->batch_size == 0)
		return refuse_request(refusal, EINVAL, "batch_size",
				      "batch_size must be at least 1");
	int r = check_limit("batch_size", request->batch_size, config->batch_size, refusal);
	if (r < 0)
		return r;
	if (request->rank >= world)
		return refuse_request(refusal, EINVAL, "rank",
				      "rank %u must be below world, which is %u", request->rank,
				      world);
	if (request->repeats > REPEATS_MAX)
		return refuse_request(refusal, EINVAL, "repeats",
				      "repeats %u: a batch can contain a sample at most %d times",
				      request->repeats, REPEATS_MAX);
	if (request->repeats > 1 && (uint64_t)request->batch_size * world % request->repeats != 0)
		return refuse_request(refusal, EINVAL, "repeats",
				      "repeats %u does not divide batch_size %u times world %llu: "
				      "all copies of a sample are in one batch",
				      request->repeats, request->batch_size,
				      (unsigned long long)world);
	if (request->slots == 1)
		return refuse_request(refusal, EINVAL, "slots",
				      "slots must be 0 (the daemon chooses) or at least 2");
	r = check_limit("slots", request->slots, config->slots, refusal);
	if (r < 0)
		return r;
	if (strlen(request->pipeline) > config->pipeline_length)
		return refuse_request(refusal, EDQUOT, "pipeline",
				      "the pipeline has %zu bytes, but the daemon's limit is %llu "
				      "([limits] pipeline_length)",
				      strlen(request->pipeline),
				      (unsigned long long)config->pipeline_length);
	if (request->last != LOADERD__LAST_BATCH__LAST_DROP &&
	    request->last != LOADERD__LAST_BATCH__LAST_SHORT)
		return refuse_request(refusal, EINVAL, "last",
				      "last = %d is not known; it is %d (LAST_DROP) or %d "
				      "(LAST_SHORT)",
				      (int)request->last, LOADERD__LAST_BATCH__LAST_DROP,
				      LOADERD__LAST_BATCH__LAST_SHORT);
	if ((unsigned)request->bad > BATCHER_FAIL)
		return refuse_request(refusal, EINVAL, "bad",
				      "bad = %d is not known; it is %d (BAD_SUBSTITUTE), %d "
				      "(BAD_SKIP) or %d (BAD_FAIL)",
				      (int)request->bad, BATCHER_SUBSTITUTE, BATCHER_SKIP,
				      BATCHER_FAIL);
	r = check_parts(request, refusal);
	r = r ?: check_buckets(request, config, refusal);
	r = r ?: check_blocks(request, refusal);
	r = r ?: check_tokens(request, refusal);
	return r ?: check_wanted(request, refusal);
}

static int check_writable(const Loaderd__OpenFeed *request, const struct config *config,
			  struct refusal *refusal)
{
	if (!request->writable || config->writable_rings)
		return 0;
	return refuse_request(refusal, EPERM, "writable",
			      "the daemon does not allow writable rings; do without one, or set "
			      "writable_rings = yes in the [access] section of loaderd.conf");
}

/* The name of a part's dataset, for texts; of a feed without parts, of its dataset. */
static const char *part_path(const Loaderd__OpenFeed *request, uint32_t part)
{
	return request->n_parts > 0 ? request->parts[part]->dataset : request->dataset;
}

static int open_dataset(struct subscription *subscription, const Loaderd__OpenFeed *request,
			struct fd_transfer *files, struct refusal *refusal)
{
	struct packimg_error error = {{0}};
	uint32_t count = request->n_parts > 0 ? (uint32_t)request->n_parts : 1;
	struct dataset_files *parts = calloc(count, sizeof(*parts));
	if (!parts)
		return refuse_request(refusal, ENOMEM, NULL, "the daemon is out of memory");
	for (uint32_t p = 0; p < count; p++) {
		const struct fd_group *group =
			fd_transfer_find(files, p, LOADERD__PART_FILE__PART_DATASET);
		parts[p] = (struct dataset_files){part_path(request, p), group->fds, group->count};
	}
	int r = registry_acquire(&subscription->session->server->registry, parts, count,
				 request->filling != 0, &subscription->dataset, &error);
	free(parts);
	if (r < 0)
		return refuse_request(refusal, -r, request->n_parts > 0 ? "parts" : "dataset",
				      "%s%s", error.text[0] != '\0' ? error.text : strerror(-r),
				      request->filling != 0 && r == -EBADMSG ? FILLING_NEEDS : "");
	if (subscription->dataset->count == 0)
		return refuse_request(refusal, EINVAL, "dataset", "%s: holds no samples",
				      subscription->dataset->path);
	return request->filling != 0 ? filling_files_check(request, subscription->dataset, refusal)
				     : 0;
}

/* Sets the order's samples, and its sampler if the feed asks for parts. */
static int set_sampler(struct subscription *subscription, const Loaderd__OpenFeed *request,
		       struct fd_transfer *files, const struct config *config,
		       struct opening_progress *progress, struct refusal *refusal)
{
	struct order *order = &subscription->options.order;
	order->samples = subscription->dataset->count;
	if (request->n_parts == 0 || request->wanted)
		return 0;
	subscription->ordered = true;
	if (order_choices_keep(request, &subscription->choices) < 0)
		return refuse_request(refusal, ENOMEM, NULL, "the daemon is out of memory");
	int r = feed_order_make(request, subscription->options.pipeline, files,
				subscription->dataset, config, progress, &subscription->sampler,
				refusal);
	if (r < 0)
		return r;
	subscription->order_hash = feed_order_hash(&subscription->sampler);
	order->sampler = &subscription->sampler;
	order->samples = subscription->sampler.epoch_samples;
	return 0;
}

static int set_order(struct batcher_options *options, const Loaderd__OpenFeed *request,
		     struct refusal *refusal)
{
	struct order *order = &options->order;
	*order = (struct order){
		.sampler = order->sampler,
		.samples = order->samples,
		.seed = request->seed,
		.batch_size = request->batch_size,
		.rank = request->rank,
		.world = request->world == 0 ? 1 : request->world,
		.repeats = request->repeats == 0 ? 1 : request->repeats,
		.shuffle = request->shuffle,
		.last_short = request->last == LOADERD__LAST_BATCH__LAST_SHORT || request->wanted,
	};
	options->wanted = request->wanted;
	if (order_init(order) < 0)
		return refuse_request(refusal, EINVAL, NULL,
				      "samples cannot be ordered with batch_size %u, rank %u, "
				      "world %u and repeats %u",
				      order->batch_size, order->rank, order->world, order->repeats);
	if (order->batches == 0 && request->n_buckets > 0)
		return refuse_request(refusal, EINVAL, "batch_size",
				      "rank %u would never get a batch: no bucket has enough of "
				      "the %llu samples for batch_size %u times world %u; ask for "
				      "smaller batches, fewer buckets, or short last ones",
				      order->rank, (unsigned long long)order->samples,
				      order->batch_size, order->world);
	if (order->batches == 0 && request->batch_tokens > 0)
		return refuse_request(
			refusal, EINVAL, "batch_tokens",
			"rank %u would never get a batch: the %llu samples make fewer "
			"batches of %u tokens than there are ranks, %u; ask for smaller "
			"batches, or for short last ones",
			order->rank, (unsigned long long)order->samples, request->batch_tokens,
			order->world);
	if (order->batches == 0)
		return refuse_request(refusal, EINVAL, "batch_size",
				      "rank %u would never get a batch: %llu samples are fewer "
				      "than batch_size %u times world %u; "
				      "ask for smaller batches or for a short last one",
				      order->rank,
				      (unsigned long long)(order->samples * order->repeats),
				      order->batch_size, order->world);
	if (request->batch > order->batches)
		return refuse_request(refusal, EINVAL, "batch",
				      "batch %llu is past the end of the epoch, which has %llu "
				      "batches for this rank",
				      (unsigned long long)request->batch,
				      (unsigned long long)order->batches);
	options->epoch = request->epoch;
	options->batch = request->batch;
	/* The position after the last batch of an epoch is the first of the next. */
	if (options->batch == order->batches) {
		options->epoch++;
		options->batch = 0;
	}
	options->epoch_end = request->epoch_end;
	return 0;
}

/*
 * Fixes the sample size of a pipeline that does not set one: the size of the first sample. Each
 * sample is checked against it when it is decoded.
 */
static int fix_size(struct pipeline *pipeline, struct dataset *dataset, struct refusal *refusal)
{
	struct packimg_sample sample = {0};
	sigbus_guard_enter(&dataset->guard);
	int r = packimg_sample(dataset->image, 0, &sample);
	if (sigbus_guard_leave() || r < 0)
		return refuse_request(refusal, EBADMSG, "dataset",
				      "%s: the first index record is damaged", dataset->path);
	struct pipeline_error error = {.position = -1};
	r = pipeline_fix_size(pipeline, sample.width, sample.height, &error);
	return r < 0 ? refuse_pipeline(refusal, r, &error) : 0;
}

/* Passes the statistics that packimg recorded to normalize(dataset). */
static int fix_statistics(struct pipeline *pipeline, const struct dataset *dataset,
			  struct refusal *refusal)
{
	double mean[3], std[3];
	if (packimg_statistics(dataset->image, mean, std) < 0)
		return refuse_request(refusal, EINVAL, "pipeline",
				      "normalize(dataset): %s records no statistics; pack it with "
				      "them, or give mean= and std=",
				      dataset->path);
	struct pipeline_error error = {.position = -1};
	int r = pipeline_fix_statistics(pipeline, mean, std, &error);
	return r < 0 ? refuse_pipeline(refusal, r, &error) : 0;
}

/*
 * Checks the side limit. The size may change with the epoch. For later epochs, only the largest
 * sample size is known; it passes if it fits a square of the limit.
 */
static int check_side(const struct pipeline *pipeline, uint64_t epoch, uint64_t limit,
		      struct refusal *refusal)
{
	struct pipeline_shape shape;
	pipeline_shape(pipeline, epoch, &shape);
	uint64_t pixel_size = shape.sample_size / ((uint64_t)shape.width * shape.height);
	if (shape.width <= limit && shape.height <= limit &&
	    pipeline_sample_size_max(pipeline) <= limit * limit * pixel_size)
		return 0;
	return refuse_request(refusal, EDQUOT, "pipeline",
			      "the pipeline produces samples larger than the daemon's limit of "
			      "%llu pixels per side ([limits] image_side)",
			      (unsigned long long)limit);
}

static int fix_buckets(struct pipeline *pipeline, const Loaderd__OpenFeed *request,
		       struct refusal *refusal)
{
	struct pipeline_size sizes[BUCKETS_MAX];
	struct pipeline_error error = {.position = -1};
	if (request->n_buckets == 0)
		return 0;
	for (size_t i = 0; i < request->n_buckets; i++)
		sizes[i] = (struct pipeline_size){request->buckets[i]->width,
						  request->buckets[i]->height};
	int r = pipeline_fix_buckets(pipeline, sizes, (unsigned)request->n_buckets, &error);
	return r < 0 ? refuse_pipeline(refusal, r, &error) : 0;
}

static int set_transform(struct batcher_options *options, const Loaderd__OpenFeed *request,
			 const struct config *config, struct refusal *refusal)
{
	struct pipeline_error error = {.position = -1};
	int r = pipeline_parse_views(request->pipeline, &options->pipeline, &error);
	if (r < 0)
		return refuse_pipeline(refusal, r, &error);
	r = fix_buckets(options->pipeline, request, refusal);
	if (r < 0)
		return r;
	if (!pipeline_has_size(options->pipeline)) {
		r = fix_size(options->pipeline, options->dataset, refusal);
		if (r < 0)
			return r;
	}
	if (pipeline_needs_statistics(options->pipeline)) {
		r = fix_statistics(options->pipeline, options->dataset, refusal);
		if (r < 0)
			return r;
	}
	if (delivery_defers(request)) {
		r = pipeline_defer(options->pipeline, &error);
		if (r < 0)
			return refuse_pipeline(refusal, r, &error);
	}
	for (unsigned i = 0; i < pipeline_view_count(options->pipeline); i++) {
		r = check_side(pipeline_view(options->pipeline, i).pipeline, request->epoch,
			       config->image_side, refusal);
		if (r < 0)
			return r;
	}
	return 0;
}

static void choose_slots(struct batcher_options *options, uint32_t asked, uint64_t most)
{
	options->slots = asked;
	if (asked != 0)
		return;
	struct ring_geometry geometry;
	options->slots = 1;
	uint64_t bytes = batcher_geometry(options, &geometry) < 0 ? 0 : ring_size(&geometry);
	uint64_t slots = bytes == 0 ? SLOTS_MIN : SLOTS_BYTES / bytes;
	slots = slots < SLOTS_MIN ? SLOTS_MIN : slots > SLOTS_MAX ? SLOTS_MAX : slots;
	options->slots = (uint32_t)(slots > most ? most : slots);
}

static enum io_mode choose_io(const struct config *config, const struct dataset *dataset)
{
	if (config->io == CONFIG_IO_AUTO)
		return io_choose(dataset->bytes, memory_available());
	return config->io == CONFIG_IO_URING && io_can_uring() ? IO_URING : IO_MMAP;
}

static void subscription_report(void *user, struct dataset *dataset, uint64_t index,
				const char *text)
{
	registry_report(user, dataset, index, text);
}

/* Feeds of files that are being filled read them by mmap() or pread(), never by io_uring. */
static int subscription_fill(struct subscription *subscription, const Loaderd__OpenFeed *request,
			     struct fd_transfer *files, const struct config *config,
			     struct refusal *refusal)
{
	struct batcher_options *options = &subscription->options;
	struct filling_options filling = {.dataset = subscription->dataset,
					  .epoch = options->epoch,
					  .batch = options->batch,
					  .timeout_ms = config->remote_timeout_ms,
					  .thread_indices = options->thread_indices};
	int r = filling_files_open(request, files, &filling, &subscription->filling, refusal);
	options->io.mode = IO_MMAP;
	options->io.filling = subscription->filling;
	return r;
}

static int subscription_prepare(struct subscription *subscription, const Loaderd__OpenFeed *request,
				struct fd_transfer *files, struct opening_progress *progress,
				struct refusal *refusal)
{
	struct batcher_options *options = &subscription->options;
	const struct pool *pool = subscription->session->server->pool;
	struct config copy;
	server_copy_config(subscription->session->server, &copy);
	const struct config *config = &copy;
	int r = check_request(request, config, refusal);
	if (r < 0)
		return r;
	r = check_writable(request, config, refusal);
	if (r < 0)
		return r;
	r = open_dataset(subscription, request, files, refusal);
	if (r < 0)
		return r;
	options->dataset = subscription->dataset;
	options->bad = (enum batcher_bad)request->bad;
	options->threads = pool_threads(pool);
	options->thread_indices = pool_thread_indices(pool);
	subscription->writable = request->writable;
	r = set_transform(options, request, config, refusal);
	if (r < 0)
		return r;
	r = set_sampler(subscription, request, files, config, progress, refusal);
	if (r < 0)
		return r;
	r = set_order(options, request, refusal);
	if (r < 0)
		return r;
	r = delivery_choose(request, config, options, refusal);
	if (r < 0)
		return r;
	options->io = (struct io_options){.mode = choose_io(config, subscription->dataset),
					  .bytes = config->readahead_bytes,
					  .queue_depth = (unsigned)config->queue_depth};
	if (request->filling != 0)
		r = subscription_fill(subscription, request, files, config, refusal);
	if (r < 0)
		return r;
	choose_slots(options, request->slots, config->slots);
	return 0;
}

int subscription_new(const Loaderd__OpenFeed *request, struct session *session, uint64_t feed_id,
		     struct fd_transfer *files, struct opening_progress *progress,
		     struct subscription **ret_subscription, struct refusal *refusal)
{
	struct subscription *subscription = calloc(1, sizeof(*subscription));
	if (!subscription)
		return refuse_request(refusal, ENOMEM, NULL, "the daemon is out of memory");
	*subscription = (struct subscription){
		.id = feed_id,
		.session = session,
		.batch_size = request->batch_size,
		.name = strdup(request->name),
		.pipeline = strdup(request->pipeline),
		.options = {.report = subscription_report,
			    .report_user = &session->server->registry,
			    .doorbell = session_send_doorbell,
			    .doorbell_user = session,
			    .ready = session_units_ready},
	};
	int r = !subscription->name || !subscription->pipeline
			? refuse_request(refusal, ENOMEM, NULL, "the daemon is out of memory")
			: subscription_prepare(subscription, request, files, progress, refusal);
	if (r < 0) {
		subscription_free(subscription);
		return r;
	}
	*ret_subscription = subscription;
	return 0;
}

int subscription_ask_direct(const struct subscription *subscription, struct fd_transfer *files)
{
	const struct packimg *image = subscription->dataset->image;
	uint32_t left = IO_DIRECT_MAX;
	int r = 0;
	if (subscription->options.io.mode != IO_URING)
		return 0;
	for (uint32_t p = 0; r == 0 && left > 0 && p < packimg_part_count(image); p++) {
		uint32_t count = packimg_shard_count(packimg_part(image, p));
		count = count < left ? count : left;
		left -= count;
		r = fd_transfer_add(files, p, LOADERD__PART_FILE__PART_DATASET, count, true);
	}
	return r;
}

/*
 * Keeps the O_DIRECT fds if they refer to the dataset's files; otherwise reads go through the page
 * cache.
 */
static int keep_direct(struct subscription *subscription, struct fd_transfer *direct,
		       struct refusal *refusal)
{
	uint32_t count = 0;
	for (uint32_t g = 0; g < direct->group_count; g++)
		count += direct->groups[g].count;
	if (count == 0)
		return 0;
	int *fds = malloc(count * sizeof(*fds));
	if (!fds)
		return refuse_request(refusal, ENOMEM, NULL, "the daemon is out of memory");
	count = 0;
	for (uint32_t g = 0; g < direct->group_count; g++)
		for (uint32_t i = 0; i < direct->groups[g].count; i++)
			fds[count++] = direct->groups[g].fds[i];
	if (!registry_same_files(&subscription->session->server->registry, subscription->dataset,
				 fds, count)) {
		free(fds);
		return 0;
	}
	for (uint32_t g = 0; g < direct->group_count; g++)
		for (uint32_t i = 0; i < direct->groups[g].count; i++)
			direct->groups[g].fds[i] = -1;
	subscription->direct = fds;
	subscription->options.io.direct = fds;
	subscription->options.io.direct_count = count;
	return 0;
}

/* Returns the bytes of all finished images of a sample. */
static size_t images_size(const struct pipeline *pipeline)
{
	size_t size = 0;
	for (unsigned i = 0; i < pipeline_view_count(pipeline); i++)
		size += pipeline_sample_size_max(pipeline_view(pipeline, i).pipeline);
	return size;
}

static int subscription_take_ring(struct subscription *subscription, struct refusal *refusal)
{
	struct batcher_options *options = &subscription->options;
	struct ring_geometry geometry;
	uint64_t bytes = batcher_geometry(options, &geometry) < 0 ? 0 : ring_size(&geometry);
	uint64_t other_bytes = options->io.mode == IO_URING ? options->io.bytes : 0;
	if (subscription->filling)
		other_bytes += filling_bytes(options->dataset->count, options->thread_indices);
	if (options->wanted)
		other_bytes += wants_bytes(options->slots, options->order.batch_size);
	if (options->order.sampler)
		other_bytes += sampler_bytes(options->order.sampler);
	if (bytes == 0) {
		int refused = refuse_request(
			refusal, EDQUOT, "batch_size",
			"%u slots of %u samples of %zu bytes are more than a ring can hold",
			options->slots, options->order.batch_size, images_size(options->pipeline));
		delivery_explain_size(options, UINT64_MAX - 1, refusal);
		return refused;
	}
	int r = ring_allocator_take(&subscription->session->server->ring_allocator,
				    subscription->id, bytes, other_bytes, subscription->writable,
				    &options->ring_fd, &options->ack_fd, refusal);
	if (r == -EDQUOT && refusal->left > other_bytes)
		delivery_explain_size(options, refusal->left - other_bytes, refusal);
	if (r < 0)
		return r;
	subscription->bytes = bytes + other_bytes;
	return 0;
}

int subscription_start(struct subscription *subscription, struct fd_transfer *direct,
		       struct refusal *refusal)
{
	int r = keep_direct(subscription, direct, refusal);
	if (r == 0)
		r = subscription_take_ring(subscription, refusal);
	if (r < 0)
		return r;
	r = batcher_new(&subscription->options, &subscription->batcher);
	if (r < 0)
		return refuse_request(refusal, -r, "slots", "no shared memory for the feed: %s",
				      strerror(-r));
	subscription->options.pipeline = NULL; /* owned by the batcher now */
	return ring_allocator_send(&subscription->session->server->ring_allocator, subscription->id,
				   subscription->session->client, refusal);
}

int subscription_mapped(struct subscription *subscription, struct refusal *refusal)
{
	int r = ring_producer_start(&subscription->batcher->ring);
	if (r == -ENODATA)
		return refuse_request(
			refusal, EINVAL, NULL,
			"RingMapped came before all pages of the ring and the ack page existed, "
			"%llu bytes; the client must map both, read every page first "
			"(MADV_POPULATE_READ), so that the memory is charged to it, and keep them "
			"mapped",
			(unsigned long long)subscription->batcher->ring.size);
	if (r < 0)
		return refuse_request(refusal, -r, NULL, "the ring cannot be sealed: %s",
				      strerror(-r));
	return 0;
}

void subscription_free(struct subscription *subscription)
{
	if (!subscription)
		return;
	batcher_free(subscription->batcher);
	filling_free(subscription->filling);
	sampler_deinit(&subscription->sampler);
	/* glibc would keep the memory of lists of up to 32 MiB, which counts as given back. */
	if (subscription->ordered)
		malloc_trim(0);
	pipeline_free(subscription->options.pipeline);
	if (subscription->dataset)
		registry_release(&subscription->session->server->registry, subscription->dataset);
	for (uint32_t i = 0; i < subscription->options.io.direct_count; i++)
		close(subscription->direct[i]);
	free(subscription->direct);
	if (subscription->bytes > 0)
		ring_allocator_give_back(&subscription->session->server->ring_allocator,
					 subscription->id, subscription->bytes);
	order_choices_free(&subscription->choices);
	free(subscription->name);
	free(subscription->pipeline);
	free(subscription);
}
