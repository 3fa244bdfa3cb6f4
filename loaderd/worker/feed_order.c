#include "loaderd/worker/feed_order.h"

#include "format/base/system/io.h"
#include "format/join.h"
#include "format/where.h"
#include "loaderd/order/sizes.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xxhash.h>

enum { CHUNK_BYTES = 1 << 20 };

/* What is known while the choice of one part is set up. */
struct choosing {
	const Loaderd__Choice *choice;
	uint32_t number; /* of the part */
	uint32_t stages;
	struct fd_transfer *files;
	struct dataset *dataset;
	const struct packimg *image; /* of the part */
	const struct config *config;
	struct sampler_part *part;
	struct opening_progress *progress;
	struct refusal *refusal;
	uint64_t entries; /* of the list, or samples of the dataset, before filtering */
	uint64_t *kept;   /* owned; bit i: the filter holds for entry i; NULL without filter */
};

/* Prefixes the text with the part's name if there are several. */
static int refuse_part(const struct choosing *at, int code, const char *field, const char *text)
{
	struct packimg_shard shard = {.path = ""};
	bool several = packimg_part_count(at->dataset->image) > 1;
	if (several)
		packimg_shard(at->image, 0, &shard);
	return refuse_request(at->refusal, code, field, "%.300s%s%s", shard.path,
			      several ? ": " : "", text);
}

static int refuse_shrunk(const struct choosing *at)
{
	struct packimg_shard shard = {.path = ""};
	packimg_shard(at->image, 0, &shard);
	return refuse_request(at->refusal, EBADMSG, "dataset",
			      "%.300s: a file of the dataset became shorter while it was read, or "
			      "cannot be read",
			      shard.path);
}

static bool is_stopped(const struct choosing *at)
{
	return atomic_load_explicit(&at->progress->cancelled, memory_order_relaxed);
}

static bool wants_stop(const void *context)
{
	return is_stopped(context);
}

/* Nobody reads it: the client has gone. */
static int refuse_stopped(const struct choosing *at)
{
	return refuse_request(at->refusal, ECANCELED, NULL, "the client has hung up");
}

static int refuse_memory(const struct choosing *at, int r)
{
	return r == -ENOMEM
		       ? refuse_request(at->refusal, ENOMEM, NULL, "the daemon is out of memory")
		       : r;
}

static int refuse_sampler(const struct choosing *at, int r, const struct sampler_error *error)
{
	return r == -EINVAL ? refuse_part(at, EINVAL, error->field, error->text)
			    : refuse_memory(at, r);
}

static int refuse_bytes(struct refusal *refusal, uint64_t bytes, uint64_t limit)
{
	return refuse_request(
		refusal, EDQUOT, "parts",
		"lists, weights, filters, buckets and packs of the feed take %llu bytes, but the "
		"daemon's limit is %llu ([limits] order_bytes)",
		(unsigned long long)bytes, (unsigned long long)limit);
}

/* A list of the client, in a memory file that it may change or cut at any time. */
struct list {
	int fd;
	uint64_t count;
	size_t element; /* bytes of an entry */
	const char *field;
};

static int list_open(const struct choosing *at, Loaderd__PartFile file, const char *field,
		     size_t element, struct list *ret_list)
{
	const struct fd_group *group = fd_transfer_find(at->files, at->number, file);
	struct stat status;
	int fd = group->fds[0];
	/* Only memory files have seals. Reading other files may block for ever. */
	if (fcntl(fd, F_GET_SEALS) < 0 || syscall(SYS_fstat, fd, &status) < 0)
		return refuse_part(at, EINVAL, field,
				   "the list is not a memory file (memfd_create)");
	uint64_t size = (uint64_t)status.st_size;
	if (size == 0 || size % element != 0)
		return refuse_part(at, EINVAL, field, "the list is empty, or not of whole entries");
	if (size > at->config->order_bytes)
		return refuse_request(at->refusal, EDQUOT, field,
				      "the list has %llu bytes, but the daemon's limit is %llu "
				      "([limits] order_bytes)",
				      (unsigned long long)size,
				      (unsigned long long)at->config->order_bytes);
	*ret_list = (struct list){fd, size / element, element, field};
	return 0;
}

/* Reads entries first .. first + count - 1, once. */
static int list_read(const struct choosing *at, const struct list *list, uint64_t first,
		     uint64_t count, void *entries)
{
	size_t size = count * list->element;
	if (io_read_at(list->fd, entries, size, first * list->element) == (int64_t)size)
		return 0;
	return refuse_part(at, EINVAL, list->field, "the list became shorter, or cannot be read");
}

static int choose_listed(struct choosing *at)
{
	struct selection *selection = &at->part->selection;
	struct list list = {0};
	int r = list_open(at, LOADERD__PART_FILE__PART_LIST, "samples", sizeof(uint64_t), &list);
	if (r < 0)
		return r;
	uint64_t *chunk = malloc(CHUNK_BYTES), step = CHUNK_BYTES / sizeof(*chunk);
	r = chunk ? selection_init_list(selection, packimg_count(at->image), list.count) : -ENOMEM;
	r = refuse_memory(at, r);
	for (uint64_t i = 0; r == 0 && i < list.count; i += step) {
		uint64_t count = list.count - i < step ? list.count - i : step;
		r = list_read(at, &list, i, count, chunk);
		for (uint64_t k = 0; r == 0 && k < count; k++) {
			if (selection_set(selection, i + k, chunk[k]) == 0)
				continue;
			char text[128];
			snprintf(text, sizeof(text),
				 "entry %llu is sample %llu, but the dataset has %llu",
				 (unsigned long long)(i + k), (unsigned long long)chunk[k],
				 (unsigned long long)packimg_count(at->image));
			r = refuse_part(at, EINVAL, "samples", text);
		}
	}
	free(chunk);
	at->entries = list.count;
	return r;
}

static int choose_all(struct choosing *at)
{
	at->entries = packimg_count(at->image);
	selection_init_all(&at->part->selection, at->entries);
	return 0;
}

/*
 * Sets at->kept. Keeps a sample that is too damaged to tell: it comes as a bad sample. Returns
 * -EBADMSG if the dataset's file has shrunk, -ECANCELED if the client is gone.
 */
static int evaluate(struct choosing *at, const struct where *where)
{
	enum { STEP = 1 << 10 };
	struct opening_progress *progress = at->progress;
	atomic_fetch_add_explicit(&progress->total, at->entries, memory_order_relaxed);
	sigbus_guard_enter(&at->dataset->guard);
	for (uint64_t i = 0; i < at->entries && !is_stopped(at); i++) {
		uint64_t sample = selection_at(&at->part->selection, i);
		if (where_match_until(where, at->image, sample, wants_stop, at) != 0)
			at->kept[i / 64] |= UINT64_C(1) << i % 64;
		if (i % STEP == STEP - 1)
			atomic_fetch_add_explicit(&progress->done, STEP, memory_order_relaxed);
	}
	bool faulted = sigbus_guard_leave();
	return faulted ? -EBADMSG : is_stopped(at) ? -ECANCELED : 0;
}

/* Drops the entries of a list that are not kept. */
static void compact_list(const struct choosing *at, uint64_t *ret_count)
{
	struct selection *selection = &at->part->selection;
	uint64_t count = 0;
	for (uint64_t i = 0; i < at->entries; i++)
		if (at->kept[i / 64] >> i % 64 & 1)
			selection_set(selection, count++, selection_at(selection, i));
	*ret_count = count;
}

/* Restricts the selection to the samples for which the filter holds. */
static int choose_where(struct choosing *at)
{
	struct where_error error = {.position = -1};
	struct where *where;
	int r = where_parse(at->choice->where, at->image, &where, &error);
	if (r == -ENOMEM)
		return refuse_memory(at, r);
	if (r < 0) {
		char text[sizeof(error.text) + 32];
		snprintf(text, sizeof(text), "at byte %d: %s", error.position, error.text);
		refuse_part(at, -r, "where", text);
		at->refusal->position = error.position;
		return r;
	}
	at->kept = calloc(at->entries / 64 + 1, sizeof(*at->kept));
	r = at->kept ? evaluate(at, where) : -ENOMEM;
	where_free(where);
	if (r == -ECANCELED)
		return refuse_stopped(at);
	if (r == -EBADMSG)
		return refuse_shrunk(at);
	return refuse_memory(at, r);
}

static int copy_bits(const struct choosing *at)
{
	size_t size = (at->entries / 64 + 1) * sizeof(uint64_t);
	uint64_t *bits = malloc(size);
	if (!bits)
		return -ENOMEM;
	memcpy(bits, at->kept, size);
	int r = selection_init_bits(&at->part->selection, at->entries, bits);
	if (r < 0)
		free(bits);
	return r;
}

static int choose_samples(struct choosing *at)
{
	bool filtered = at->choice && at->choice->where[0] != '\0';
	bool listed = at->choice && at->choice->listed;
	int r = listed ? choose_listed(at) : choose_all(at);
	if (r == 0 && filtered)
		r = choose_where(at);
	if (r < 0)
		return r;
	uint64_t count = at->entries;
	if (listed && filtered)
		compact_list(at, &count);
	if (listed)
		r = selection_finish_list(&at->part->selection, count);
	else if (filtered)
		r = copy_bits(at);
	if (r == 0 && at->part->selection.count == 0)
		return refuse_part(at, EINVAL, filtered ? "where" : "dataset",
				   filtered ? "the filter holds for none of the samples"
					    : "the dataset holds no samples");
	return refuse_memory(at, r);
}

/* Opens a list of weights: `count` for each stage or `count` for all. */
static int open_weights(const struct choosing *at, Loaderd__PartFile file, const char *field,
			uint64_t count, const char *what, struct list *ret_list, uint32_t *ret_rows)
{
	char text[160];
	int r = list_open(at, file, field, sizeof(float), ret_list);
	if (r < 0)
		return r;
	if (ret_list->count != count && ret_list->count != count * at->stages) {
		snprintf(text, sizeof(text),
			 "there are %llu weights for %llu %s; give one for each%s",
			 (unsigned long long)ret_list->count, (unsigned long long)count, what,
			 at->stages > 1 ? ", or as many for each stage" : "");
		return refuse_part(at, EINVAL, field, text);
	}
	*ret_rows = (uint32_t)(ret_list->count / count);
	return 0;
}

/* Reads the weights of the classes. The caller frees them. */
static int read_class_weights(const struct choosing *at, float **ret_weights, uint32_t *ret_rows)
{
	struct list list = {0};
	int r = open_weights(at, LOADERD__PART_FILE__PART_CLASS_WEIGHTS, "class_weights",
			     packimg_class_count(at->image), "classes", &list, ret_rows);
	if (r < 0)
		return r;
	float *weights = malloc(list.count * sizeof(*weights));
	if (!weights)
		return refuse_memory(at, -ENOMEM);
	r = list_read(at, &list, 0, list.count, weights);
	if (r < 0) {
		free(weights);
		return r;
	}
	*ret_weights = weights;
	return 0;
}

/* Adds a weight if its entry is kept. `number`: in the client's list, which has all stages. */
static int add_weight(struct choosing *at, uint64_t number, float weight)
{
	uint64_t entry = number % at->entries;
	char text[128];
	if (!isfinite(weight) || weight < 0) {
		snprintf(text, sizeof(text),
			 "weight %llu is %g: weights are finite and not negative",
			 (unsigned long long)number, (double)weight);
		return refuse_part(at, EINVAL, "weights", text);
	}
	if (!at->kept || at->kept[entry / 64] >> entry % 64 & 1)
		weight_sums_add(&at->part->sums[number / at->entries], weight);
	return 0;
}

static int choose_weights(struct choosing *at)
{
	struct list list = {0};
	uint32_t rows = 0;
	int r = open_weights(at, LOADERD__PART_FILE__PART_WEIGHTS, "weights", at->entries,
			     at->choice->listed ? "entries of the list" : "samples", &list, &rows);
	if (r < 0)
		return r;
	uint64_t bytes = rows * at->part->selection.count * sizeof(double);
	if (bytes > at->config->order_bytes)
		return refuse_bytes(at->refusal, bytes, at->config->order_bytes);
	float *chunk = malloc(CHUNK_BYTES);
	uint64_t step = CHUNK_BYTES / sizeof(*chunk);
	r = refuse_memory(at, chunk ? sampler_set_weights(at->part, rows) : -ENOMEM);
	for (uint64_t i = 0; r == 0 && i < list.count; i += step) {
		uint64_t count = list.count - i < step ? list.count - i : step;
		r = list_read(at, &list, i, count, chunk);
		for (uint64_t k = 0; r == 0 && k < count; k++)
			r = add_weight(at, i + k, chunk[k]);
	}
	free(chunk);
	return r;
}

static int choose_classes(struct choosing *at)
{
	struct sampler_error error = {.field = "class_weights"};
	uint32_t rows = 1;
	float *weights = NULL;
	int r = 0;
	if (at->choice->class_weighted && packimg_class_count(at->image) > 0)
		r = read_class_weights(at, &weights, &rows);
	if (r < 0)
		return r;
	sigbus_guard_enter(&at->dataset->guard);
	r = at->choice->classes_per_batch > 0
		    ? sampler_set_class_batches(at->part, at->image, at->choice->classes_per_batch,
						&error)
		    : sampler_set_class_weights(at->part, at->image, weights, rows, &error);
	bool faulted = sigbus_guard_leave();
	free(weights);
	if (faulted)
		return refuse_shrunk(at);
	return refuse_sampler(at, r, &error);
}

/* A part is drawn from in one way. */
static int check_choice(const struct choosing *at)
{
	const Loaderd__Choice *choice = at->choice;
	const struct {
		const char *field;
		bool set;
	} ways[] = {
		{"weights", choice->weighted},
		{"class_weights", choice->class_weighted || choice->balanced},
		{"classes_per_batch", choice->classes_per_batch > 0},
	};
	const char *first = NULL;
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		if (ways[i].set && first)
			return refuse_request(at->refusal, EINVAL, ways[i].field,
					      "%s and %s exclude each other", first, ways[i].field);
		first = ways[i].set ? ways[i].field : first;
	}
	if (choice->class_weighted && choice->balanced)
		return refuse_request(at->refusal, EINVAL, "class_weights",
				      "balanced classes have no weights");
	return 0;
}

static struct bucket_size bucket_of(const Loaderd__OpenFeed *request, const Loaderd__Bucket *bucket)
{
	uint32_t size = bucket->batch_size == 0 ? request->batch_size : bucket->batch_size;
	uint32_t world = request->world == 0 ? 1 : request->world;
	uint32_t repeats = request->repeats == 0 ? 1 : request->repeats;
	return (struct bucket_size){bucket->width, bucket->height,
				    (uint64_t)size * world / repeats};
}

/* Assigns the chosen samples to the buckets. */
static int choose_buckets(struct choosing *at, const Loaderd__OpenFeed *request)
{
	struct bucket_size sizes[BUCKETS_MAX];
	struct sampler_error error;
	if (request->n_buckets == 0)
		return 0;
	for (size_t i = 0; i < request->n_buckets; i++)
		sizes[i] = bucket_of(request, request->buckets[i]);
	sigbus_guard_enter(&at->dataset->guard);
	int r = sampler_set_buckets(at->part, at->image, sizes, (uint32_t)request->n_buckets,
				    &error);
	if (sigbus_guard_leave())
		return refuse_shrunk(at);
	return refuse_sampler(at, r, &error);
}

/* What says how many tokens each sample has. */
struct token_reader {
	struct size_reader sizes;
	const struct pipeline *pipeline;
	uint32_t patches_max;
	bool has_field;
	uint32_t field; /* number of the column */
	uint32_t tokens_max;
};

/* Finds the column whose values are tokens. */
static int find_tokens_field(const struct choosing *at, const char *name,
			     struct token_reader *reader)
{
	const struct schema *schema = packimg_schema(at->image);
	struct packimg_field field;
	char text[256];
	if (name[0] == '\0')
		return 0;
	int found = schema_find(schema, name);
	if (found < 0 || schema->values[found].store != SCHEMA_IN_COLUMN ||
	    packimg_field(at->image, schema->values[found].number, &field) < 0 ||
	    field.type != PACKIMG_FIELD_INT64) {
		snprintf(
			text, sizeof(text),
			"\"%.100s\" is no column of integers of the dataset; name one that has the "
			"tokens of each sample",
			name);
		return refuse_part(at, EINVAL, "tokens_field", text);
	}
	reader->has_field = true;
	reader->field = schema->values[found].number;
	return 0;
}

/*
 * Sets the patches and the further tokens of a sample. One with a damaged record counts as the
 * largest, so that any other may take its place.
 */
static void read_tokens(struct token_reader *reader, uint64_t index, uint32_t *ret_patches,
			int64_t *ret_further)
{
	struct packimg_value value = {0};
	*ret_patches = 0;
	*ret_further = 0;
	if (reader->patches_max > 0) {
		struct image_size size = sizes_at(&reader->sizes, index);
		struct pipeline_grid grid =
			pipeline_patch_grid(reader->pipeline, size.width, size.height);
		*ret_patches = grid.rows * grid.columns;
		if (*ret_patches == 0)
			*ret_patches = reader->patches_max < reader->tokens_max
					       ? reader->patches_max
					       : reader->tokens_max;
	}
	if (reader->has_field &&
	    packimg_value(reader->sizes.dataset, index, reader->field, &value) == 0 &&
	    value.present)
		*ret_further = value.int64;
}

static int refuse_tokens(const struct choosing *at, const Loaderd__OpenFeed *request,
			 uint64_t index, uint32_t patches, int64_t further)
{
	char text[512], also[160] = "";
	if (request->tokens_field[0] != '\0')
		snprintf(also, sizeof(also), " and %lld of \"%.100s\"", (long long)further,
			 request->tokens_field);
	if (further < 0)
		snprintf(text, sizeof(text),
			 "sample %llu has %lld tokens of \"%.100s\": a number of tokens is not "
			 "negative",
			 (unsigned long long)index, (long long)further, request->tokens_field);
	else
		snprintf(text, sizeof(text),
			 "sample %llu has %u patches%s, more than the %u tokens of a batch: raise "
			 "batch_tokens, lower max_tokens, or leave such samples out with a filter",
			 (unsigned long long)index, patches, also, request->batch_tokens);
	return refuse_part(at, EINVAL, further < 0 ? "tokens_field" : "batch_tokens", text);
}

/* Adds the tokens of the chosen samples. -EBADMSG if the dataset's file has shrunk. */
static int add_tokens(const struct choosing *at, const Loaderd__OpenFeed *request,
		      struct token_reader *reader, struct pack_tokens *tokens)
{
	enum { STEP = 1 << 10 };
	const struct selection *selection = &at->part->selection;
	struct opening_progress *progress = at->progress;
	uint64_t index = 0, i;
	uint32_t patches = 0;
	int64_t further = 0;
	int r = 0;
	atomic_fetch_add_explicit(&progress->total, selection->count, memory_order_relaxed);
	sigbus_guard_enter(&at->dataset->guard);
	for (i = 0; r == 0 && i < selection->count && !is_stopped(at); i++) {
		index = selection_at(selection, i);
		read_tokens(reader, index, &patches, &further);
		bool fits = further >= 0 && patches <= reader->tokens_max &&
			    further <= (int64_t)(reader->tokens_max - patches);
		r = fits ? pack_tokens_add(tokens, patches + (uint32_t)further, patches) : -ERANGE;
		if (i % STEP == STEP - 1)
			atomic_fetch_add_explicit(&progress->done, STEP, memory_order_relaxed);
	}
	if (sigbus_guard_leave())
		return refuse_shrunk(at);
	if (r == -ERANGE)
		return refuse_tokens(at, request, index, patches, further);
	if (r == -E2BIG)
		return refuse_part(at, EINVAL, "tokens_field",
				   "the samples have too many different numbers of tokens and "
				   "patches to be packed, more than 1,048,576: name a column of "
				   "numbers of tokens");
	return is_stopped(at) ? refuse_stopped(at) : refuse_memory(at, r);
}

/* Packs the chosen samples by their tokens. */
static int choose_packs(struct choosing *at, const Loaderd__OpenFeed *request,
			const struct pipeline *pipeline)
{
	struct token_reader reader = {.pipeline = pipeline,
				      .patches_max = pipeline_patches_max(pipeline),
				      .tokens_max = request->batch_tokens};
	const uint64_t count = at->part->selection.count;
	struct sampler_error error;
	if (request->batch_tokens == 0)
		return 0;
	int r = find_tokens_field(at, request->tokens_field, &reader);
	if (r < 0)
		return r;
	if (reader.patches_max == 0 && !reader.has_field)
		return refuse_part(at, EINVAL, "batch_tokens",
				   "nothing says how many tokens a sample has: add patch_resize to "
				   "the pipeline, or name a tokens_field");
	if (count > at->config->order_bytes / sizeof(uint32_t))
		return refuse_bytes(at->refusal, count * sizeof(uint32_t), at->config->order_bytes);
	struct pack_tokens *tokens = pack_tokens_new(count);
	if (!tokens)
		return refuse_memory(at, -ENOMEM);
	sizes_init(&reader.sizes, at->image);
	r = add_tokens(at, request, &reader, tokens);
	if (r == 0)
		r = refuse_sampler(at,
				   sampler_set_packs(at->part, tokens, request->seed,
						     request->batch_tokens, request->batch_size,
						     at->config->order_bytes, &error),
				   &error);
	if (r == -EDQUOT)
		r = refuse_request(at->refusal, EDQUOT, "batch_tokens",
				   "the packs of %llu samples take more than the daemon's limit of "
				   "%llu bytes ([limits] order_bytes)",
				   (unsigned long long)count,
				   (unsigned long long)at->config->order_bytes);
	pack_tokens_free(tokens);
	return r;
}

static int choose(struct choosing *at)
{
	const Loaderd__Choice *choice = at->choice;
	int r = choice ? check_choice(at) : 0;
	r = r ?: choose_samples(at);
	if (r < 0 || !choice)
		return r;
	if (choice->weighted)
		r = choose_weights(at);
	else if (choice->class_weighted || choice->balanced || choice->classes_per_batch > 0)
		r = choose_classes(at);
	return r;
}

/* Sets the stages: their first batches, and the shares of all parts in a table. */
static int set_stages(const Loaderd__OpenFeed *request, struct sampler *sampler,
		      uint32_t **ret_shares, struct refusal *refusal)
{
	uint32_t parts = sampler->part_count;
	bool shared = parts > 1;
	if (request->n_stages > MIXTURE_STAGES_MAX)
		return refuse_request(refusal, EINVAL, "stages", "%zu stages: there may be %d",
				      request->n_stages, MIXTURE_STAGES_MAX);
	if (shared && request->n_stages == 0)
		return refuse_request(refusal, EINVAL, "stages",
				      "several parts need shares, which a stage has");
	sampler->stage_count = request->n_stages > 0 ? (uint32_t)request->n_stages : 1;
	sampler->froms = calloc(sampler->stage_count, sizeof(*sampler->froms));
	uint32_t *shares = calloc((size_t)sampler->stage_count * parts, sizeof(*shares));
	*ret_shares = shares;
	if (!sampler->froms || !shares)
		return refuse_request(refusal, ENOMEM, NULL, "the daemon is out of memory");
	for (uint32_t s = 0; s < request->n_stages; s++) {
		const Loaderd__Stage *stage = request->stages[s];
		sampler->froms[s] = stage->from;
		if (stage->n_shares != (shared ? parts : 0))
			return refuse_request(
				refusal, EINVAL, "stages", "stage %u has %zu shares for %u part%s",
				s, stage->n_shares, parts, shared ? "s" : ", which needs none");
		if (shared)
			memcpy(shares + (size_t)s * parts, stage->shares, parts * sizeof(*shares));
	}
	return 0;
}

static int check_memory(const struct sampler *sampler, const struct config *config,
			struct refusal *refusal)
{
	uint64_t bytes = sampler_bytes(sampler);
	return bytes <= config->order_bytes ? 0 : refuse_bytes(refusal, bytes, config->order_bytes);
}

static int fill(const Loaderd__OpenFeed *request, const struct pipeline *pipeline,
		struct fd_transfer *files, struct dataset *dataset, const struct config *config,
		struct opening_progress *progress, struct sampler *sampler, uint32_t **ret_shares,
		struct refusal *refusal)
{
	int r = set_stages(request, sampler, ret_shares, refusal);
	for (uint32_t p = 0; r == 0 && p < sampler->part_count; p++) {
		struct choosing at = {
			.choice = request->parts[p]->choice,
			.number = p,
			.stages = sampler->stage_count,
			.files = files,
			.dataset = dataset,
			.image = packimg_part(dataset->image, p),
			.config = config,
			.part = &sampler->parts[p],
			.progress = progress,
			.refusal = refusal,
		};
		sampler->parts[p].first = packimg_part_first(dataset->image, p);
		r = is_stopped(&at) ? refuse_stopped(&at) : choose(&at);
		r = r ?: choose_buckets(&at, request);
		r = r ?: choose_packs(&at, request, pipeline);
		free(at.kept);
		r = r ?: check_memory(sampler, config, refusal);
	}
	return r;
}

static int finish(const Loaderd__OpenFeed *request, struct dataset *dataset,
		  struct sampler *sampler, const uint32_t *shares, struct refusal *refusal)
{
	struct sampler_error error = {0};
	int r = sampler_finish(sampler, shares, (enum sampler_ends)request->ends,
			       request->epoch_samples, &error);
	if (r == -EINVAL && error.part == SAMPLER_NO_PART)
		return refuse_request(refusal, EINVAL, error.field, "%s", error.text);
	if (r < 0) {
		const struct choosing at = {
			.dataset = dataset,
			.image = r == -EINVAL ? packimg_part(dataset->image, error.part) : NULL,
			.refusal = refusal,
		};
		return refuse_sampler(&at, r, &error);
	}
	/* Draws are numbered through all epochs, with their copies. */
	uint32_t repeats = request->repeats == 0 ? 1 : request->repeats;
	uint64_t epochs = UINT64_MAX / repeats / sampler->epoch_samples;
	if (epochs < 2)
		return refuse_request(
			refusal, EINVAL, "epoch_samples",
			"an epoch of %llu samples, with repeats %u, is longer than can "
			"be numbered",
			(unsigned long long)sampler->epoch_samples, repeats);
	if (request->epoch >= epochs - 1)
		return refuse_request(refusal, EINVAL, "epoch",
				      "epoch %llu is beyond the last that can be numbered",
				      (unsigned long long)request->epoch);
	return 0;
}

int feed_order_make(const Loaderd__OpenFeed *request, const struct pipeline *pipeline,
		    struct fd_transfer *files, struct dataset *dataset, const struct config *config,
		    struct opening_progress *progress, struct sampler *ret_sampler,
		    struct refusal *refusal)
{
	uint32_t repeats = request->repeats == 0 ? 1 : request->repeats;
	uint32_t world = request->world == 0 ? 1 : request->world;
	struct sampler sampler = {
		.seed = request->seed,
		.shuffle = request->shuffle,
		.blocks = {request->block_samples, request->group_blocks},
		.global = (uint64_t)request->batch_size * world / repeats,
		.by_batch = request->part_batches,
		.part_count = (uint32_t)request->n_parts,
		.parts = calloc(request->n_parts, sizeof(*sampler.parts)),
	};
	uint32_t *shares = NULL;
	if (!sampler.parts)
		return refuse_request(refusal, ENOMEM, NULL, "the daemon is out of memory");
	int r = fill(request, pipeline, files, dataset, config, progress, &sampler, &shares,
		     refusal);
	r = r ?: finish(request, dataset, &sampler, shares, refusal);
	r = r ?: check_memory(&sampler, config, refusal);
	free(shares);
	if (r < 0) {
		sampler_deinit(&sampler);
		return r;
	}
	*ret_sampler = sampler;
	return 0;
}

static void hash_part(XXH3_state_t *state, const struct sampler_part *part)
{
	const struct selection *selection = &part->selection;
	const uint64_t numbers[] = {part->kind, selection->count, part->weight_stages,
				    part->classes_per_batch};
	XXH3_64bits_update(state, numbers, sizeof(numbers));
	for (uint64_t i = 0; selection->bits && i < (selection->samples + 63) / 64; i++)
		XXH3_64bits_update(state, &selection->bits[i], sizeof(selection->bits[i]));
	if (selection->short_list || selection->list)
		for (uint64_t i = 0; i < selection->count; i++) {
			const uint64_t sample = selection_at(selection, i);
			XXH3_64bits_update(state, &sample, sizeof(sample));
		}
	/* Which samples are in which bucket follows from their sizes, which are content. */
	for (uint32_t b = 0; b < part->buckets.count; b++)
		XXH3_64bits_update(state, &part->buckets.sizes[b], sizeof(*part->buckets.sizes));
	const struct packs *packs = &part->packs;
	if (packs->count > 0) {
		const uint32_t limits[] = {packs->tokens_max, packs->batch_size};
		const struct pack_template *end = &packs->templates[packs->template_count];
		XXH3_64bits_update(state, limits, sizeof(limits));
		for (uint64_t s = 0; s < end->slot; s++)
			XXH3_64bits_update(state, &packs->slots[s], sizeof(*packs->slots));
		for (uint64_t i = 0; i < packs->members.count; i++) {
			const uint64_t sample = selection_at(&packs->members, i);
			XXH3_64bits_update(state, &sample, sizeof(sample));
		}
	}
	for (uint32_t s = 0; s < part->weight_stages; s++) {
		if (part->sums)
			XXH3_64bits_update(state, part->sums[s].sums,
					   part->sums[s].count * sizeof(double));
		if (!part->aliases)
			continue;
		const struct weight_alias *alias = &part->aliases[s];
		XXH3_64bits_update(state, alias->keep, alias->count * sizeof(*alias->keep));
		XXH3_64bits_update(state, alias->other, alias->count * sizeof(*alias->other));
	}
}

uint64_t feed_order_hash(const struct sampler *sampler)
{
	XXH3_state_t *state = XXH3_createState();
	if (!state)
		return 0;
	XXH3_64bits_reset(state);
	const uint64_t numbers[] = {sampler->part_count, sampler->stage_count,
				    sampler->epoch_samples, sampler->by_batch, sampler->continues};
	XXH3_64bits_update(state, numbers, sizeof(numbers));
	/* Without blocks the hash is that of versions which did not know them. */
	if (sampler->blocks.samples > 0)
		XXH3_64bits_update(state, &sampler->blocks, sizeof(sampler->blocks));
	for (uint32_t s = 0; s < sampler->stage_count; s++) {
		XXH3_64bits_update(state, &sampler->froms[s], sizeof(sampler->froms[s]));
		for (uint32_t p = 0; p < sampler->part_count && sampler->part_count > 1; p++) {
			const uint32_t share = mixture_share(&sampler->mixture, s, p);
			XXH3_64bits_update(state, &share, sizeof(share));
		}
	}
	for (uint32_t p = 0; p < sampler->part_count; p++)
		hash_part(state, &sampler->parts[p]);
	uint64_t hash = XXH3_64bits_digest(state);
	XXH3_freeState(state);
	/* 0 stands for a feed without parts. */
	return hash != 0 ? hash : 1;
}
