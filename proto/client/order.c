#include "proto/client/order.h"

#include "format/base/system/io.h"
#include "proto/client/feed_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PARTS_MAX = 1024, STAGES_MAX = 1024, BUCKETS_MAX = 256 };

/* Sizes of the structures in the first release, for callers that leave size at 0. */
enum {
	PART_SIZE_0 = sizeof(struct feed_part),
	ORDER_SIZE_0 = sizeof(struct feed_order),
};

static int out_of_memory(char *error)
{
	return error_set(error, -ENOMEM, "Out of memory.");
}

/* Copies a list to a memory file, which nobody can change. */
static int keep_list(const void *entries, uint64_t count, size_t element, const char *name,
		     int *ret_fd, char *error)
{
	enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL };
	if (!entries)
		return 0;
	if (count == 0)
		return error_set(error, -EINVAL, "%s: the list is empty.", name);
	int fd = memfd_create("loaderd-list", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return error_set(error, -errno, "%s: cannot create a memory file: %s.", name,
				 strerror(errno));
	const uint8_t *bytes = entries;
	uint64_t left = count * element;
	while (left > 0) {
		ssize_t n = write(fd, bytes, left < 1 << 30 ? left : 1 << 30);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			int r = n < 0 ? -errno : -EIO;
			close(fd);
			return error_set(error, r, "%s: cannot copy the list: %s.", name,
					 strerror(-r));
		}
		bytes += n;
		left -= (uint64_t)n;
	}
	if (fcntl(fd, F_ADD_SEALS, SEALS) < 0) {
		close(fd);
		return error_set(error, -EIO, "%s: cannot seal the list.", name);
	}
	*ret_fd = fd;
	return 0;
}

static int keep_lists(const struct feed_part *part, struct kept_part *kept, char *error)
{
	int r = keep_list(part->samples, part->sample_count, sizeof(*part->samples), "samples",
			  &kept->lists[LOADERD__PART_FILE__PART_LIST], error);
	r = r
		    ?: keep_list(part->weights, part->weight_count, sizeof(*part->weights),
				 "weights", &kept->lists[LOADERD__PART_FILE__PART_WEIGHTS], error);
	return r
		       ?: keep_list(part->class_weights, part->class_weight_count,
				    sizeof(*part->class_weights), "class_weights",
				    &kept->lists[LOADERD__PART_FILE__PART_CLASS_WEIGHTS], error);
}

/* The messages of a part, in one block, with its filter and dataset behind them, terminated. */
struct part_message {
	Loaderd__Part part;
	Loaderd__Choice choice;
	char texts[];
};

static int keep_message(const struct feed_part *part, const struct kept_part *kept,
			Loaderd__Part **ret_message)
{
	const char *where = part->where ? part->where : "";
	size_t where_size = strlen(where) + 1, shown = text_shown_length(kept->path);
	struct part_message *message = calloc(1, sizeof(*message) + where_size + shown + 1);
	if (!message)
		return -ENOMEM;
	memcpy(message->texts, where, where_size);
	memcpy(message->texts + where_size, kept->path, shown);
	loaderd__part__init(&message->part);
	loaderd__choice__init(&message->choice);
	message->part.dataset = message->texts + where_size;
	message->part.choice = &message->choice;
	message->choice.where = message->texts;
	message->choice.listed = part->samples != NULL;
	message->choice.weighted = part->weights != NULL;
	message->choice.class_weighted = part->class_weights != NULL;
	message->choice.balanced = part->balanced != 0;
	message->choice.classes_per_batch = part->classes_per_batch;
	*ret_message = &message->part;
	return 0;
}

static bool is_whole(const struct feed_part *part)
{
	return !part->samples && !part->weights && !part->class_weights && part->balanced == 0 &&
	       part->classes_per_batch == 0 && (!part->where || part->where[0] == '\0');
}

static int keep_part(const struct feed_part *callers, struct kept_order *order, char *error)
{
	struct feed_part part = {0};
	struct kept_part *kept = &order->parts[order->part_count];
	memcpy(&part, callers, feed_known_size(callers->size, PART_SIZE_0, sizeof(part)));
	for (int i = 0; i < ORDER_FILES; i++)
		kept->lists[i] = -1;
	Loaderd__Part **message = &order->messages[order->part_count++];
	if (!part.dataset)
		return error_set(error, -EINVAL, "parts: number %u has no dataset.",
				 order->part_count - 1);
	if (part.balanced > 1)
		return error_set(error, -EINVAL, "balanced: %u is neither 0 nor 1.", part.balanced);
	int r = absolute_path(part.dataset, &kept->path, error);
	r = r ?: keep_lists(&part, kept, error);
	if (r < 0)
		return r;
	if (keep_message(&part, kept, message) < 0)
		return out_of_memory(error);
	if (is_whole(&part))
		(*message)->choice = NULL;
	return 0;
}

/* The message of a stage, in one block, with its shares behind it. */
struct stage_message {
	Loaderd__Stage stage;
	uint32_t shares[];
};

static int keep_stage(const struct feed_stage *stage, uint32_t parts, struct kept_order *order)
{
	size_t size = stage->shares ? parts * sizeof(*stage->shares) : 0;
	struct stage_message *message = calloc(1, sizeof(*message) + size);
	if (!message)
		return -ENOMEM;
	loaderd__stage__init(&message->stage);
	message->stage.from = stage->from;
	message->stage.shares = message->shares;
	message->stage.n_shares = stage->shares ? parts : 0;
	if (size > 0)
		memcpy(message->shares, stage->shares, size);
	order->stages[order->stage_count++] = &message->stage;
	return 0;
}

static int keep_buckets(const struct feed_order *order, struct kept_order *kept)
{
	uint32_t count = order->bucket_count;
	if (count == 0)
		return 0;
	kept->buckets = malloc(count * (sizeof(Loaderd__Bucket *) + sizeof(Loaderd__Bucket)));
	if (!kept->buckets)
		return -ENOMEM;
	Loaderd__Bucket *messages = (Loaderd__Bucket *)(kept->buckets + count);
	for (uint32_t b = 0; b < count; b++) {
		loaderd__bucket__init(&messages[b]);
		messages[b].width = order->buckets[b].width;
		messages[b].height = order->buckets[b].height;
		messages[b].batch_size = order->buckets[b].batch_size;
		kept->buckets[b] = &messages[b];
	}
	kept->bucket_count = count;
	return 0;
}

static int keep_all(const struct feed_order *order, struct kept_order *kept, char *error)
{
	int r = 0;
	for (uint32_t p = 0; r == 0 && p < order->part_count; p++) {
		if (!order->parts[p])
			return error_set(error, -EINVAL, "parts: number %u is NULL.", p);
		r = keep_part(order->parts[p], kept, error);
	}
	if (r == 0 && keep_buckets(order, kept) < 0)
		r = out_of_memory(error);
	for (uint32_t s = 0; r == 0 && s < order->stage_count; s++)
		if (keep_stage(&order->stages[s], order->part_count, kept) < 0)
			r = out_of_memory(error);
	return r;
}

int order_keep(const struct feed_order *callers, struct kept_order **ret_kept, char *error)
{
	struct feed_order order = {0};
	memcpy(&order, callers, feed_known_size(callers->size, ORDER_SIZE_0, sizeof(order)));
	if (order.part_count == 0 || order.part_count > PARTS_MAX || !order.parts)
		return error_set(error, -EINVAL, "parts: %u, but a feed has 1 to %d.",
				 order.part_count, PARTS_MAX);
	if (order.stage_count > STAGES_MAX || (order.stage_count > 0 && !order.stages))
		return error_set(error, -EINVAL, "stages: %u, but a feed has at most %d.",
				 order.stage_count, STAGES_MAX);
	if (order.part_batches > 1)
		return error_set(error, -EINVAL, "part_batches: %u is neither 0 nor 1.",
				 order.part_batches);
	if (order.bucket_count > BUCKETS_MAX || (order.bucket_count > 0 && !order.buckets))
		return error_set(error, -EINVAL, "buckets: %u, but a feed has at most %d.",
				 order.bucket_count, BUCKETS_MAX);
	struct kept_order *kept = calloc(1, sizeof(*kept));
	if (!kept)
		return out_of_memory(error);
	kept->parts = calloc(order.part_count, sizeof(*kept->parts));
	kept->messages = calloc(order.part_count, sizeof(Loaderd__Part *));
	kept->stages = calloc(order.stage_count + 1, sizeof(Loaderd__Stage *));
	kept->epoch_samples = order.epoch_samples;
	kept->ends = order.ends;
	kept->part_batches = order.part_batches != 0;
	kept->block_samples = order.block_samples;
	kept->group_blocks = order.group_blocks;
	kept->batch_tokens = order.batch_tokens;
	kept->tokens_field = strdup(order.tokens_field ? order.tokens_field : "");
	int r = kept->parts && kept->messages && kept->stages && kept->tokens_field
			? keep_all(&order, kept, error)
			: out_of_memory(error);
	if (r < 0) {
		order_free(kept);
		return r;
	}
	*ret_kept = kept;
	return 0;
}

void order_fill(const struct kept_order *kept, Loaderd__OpenFeed *request)
{
	request->dataset = (char *)"";
	request->n_parts = kept->part_count;
	request->parts = kept->messages;
	request->n_stages = kept->stage_count;
	request->stages = kept->stages;
	request->ends = (Loaderd__Ends)kept->ends;
	request->epoch_samples = kept->epoch_samples;
	request->part_batches = kept->part_batches;
	request->n_buckets = kept->bucket_count;
	request->buckets = kept->buckets;
	request->block_samples = kept->block_samples;
	request->group_blocks = kept->group_blocks;
	request->batch_tokens = kept->batch_tokens;
	request->tokens_field = kept->tokens_field;
}

int order_name(const struct kept_order *kept, char **ret_name, char *error)
{
	int n = kept->part_count == 1 ? asprintf(ret_name, "%s", kept->parts[0].path)
				      : asprintf(ret_name, "%s and %u other parts",
						 kept->parts[0].path, kept->part_count - 1);
	return n < 0 ? out_of_memory(error) : 0;
}

void order_free(struct kept_order *kept)
{
	if (!kept)
		return;
	for (uint32_t p = 0; p < kept->part_count; p++) {
		free(kept->parts[p].path);
		free(kept->messages[p]);
		for (int i = 0; i < ORDER_FILES; i++)
			io_close(kept->parts[p].lists[i]);
	}
	for (uint32_t s = 0; s < kept->stage_count; s++)
		free(kept->stages[s]);
	free(kept->parts);
	free(kept->messages);
	free(kept->stages);
	free(kept->buckets);
	free(kept->tokens_field);
	free(kept);
}
