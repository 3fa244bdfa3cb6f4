#include "trial.h"

#include "augment/transform.h"
#include "command.h"
#include "render.h"
#include "text.h"
#include "workers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <xxhash.h>

enum {
	ALIGN = 64, /* of samples, as in a file */
	ROUNDS = 5, /* turns that each way has */
	TARGETS =
		64, /* finished samples before memory is written again: a batch, beyond the caches near the core */
	BYTES_UNDER_WAY = 256 << 20,
	ZSTD_LEVEL = 3,	    /* convert's own default */
	PLAIN_QUALITY = 95, /* likewise, of what is no JPEG under verbatim */
};

const char *trial_name(const struct trial_way *way, char *text, size_t size)
{
	static const char *const names[] = {
		[TRIAL_STORED] = "as stored",	      [TRIAL_VERBATIM] = "originals",
		[TRIAL_BARE] = "originals, no index", [TRIAL_JPEG] = "quality ",
		[TRIAL_RAW_ZSTD] = "raw+zstd",	      [TRIAL_RAW] = "raw",
	};
	int n = 0;

	if (way->short_side)
		n = snprintf(text, size, "short side %u, ", way->short_side);
	if (n < 0 || (size_t)n >= size)
		return text;
	if (way->kind == TRIAL_JPEG)
		snprintf(text + n, size - (size_t)n, "%s%d", names[way->kind], way->quality);
	else
		snprintf(text + n, size - (size_t)n, "%s", names[way->kind]);
	return text;
}

static struct render_options render_options(const struct trial_way *way)
{
	bool raw = way->kind == TRIAL_RAW || way->kind == TRIAL_RAW_ZSTD;

	return (struct render_options){
		.verbatim = way->kind == TRIAL_VERBATIM || way->kind == TRIAL_BARE,
		.quality = way->kind == TRIAL_JPEG ? way->quality : PLAIN_QUALITY,
		.short_side = way->short_side,
		.raw_fraction = raw ? 1 : 0,
		.raw_zstd = way->kind == TRIAL_RAW_ZSTD,
		.zstd_level = ZSTD_LEVEL,
		.other = PACKIMG_CODEC_JPEG,
		.index = way->kind != TRIAL_BARE,
		/* what does not decode must not end a measurement */
		.check = true,
	};
}

struct storing {
	const struct trial_way *way;
	const struct trial_image *images;
	struct render_options options;
};

struct outcome {
	int status;
	struct packimg_error error;
	struct rendered rendered;
	size_t offset;
};

static int worker_new(void *context, void **ret_worker)
{
	const struct storing *storing = context;
	struct renderer *renderer = calloc(1, sizeof(*renderer));
	int r = renderer ? renderer_init(renderer, &storing->options) : -ENOMEM;

	if (r)
		free(renderer);
	else
		*ret_worker = renderer;
	return r;
}

static void worker_free(void *worker)
{
	renderer_deinit(worker);
	free(worker);
}

static void run_block(void *context, void *worker, struct work_block *block)
{
	const struct storing *storing = context;
	struct buffer *bytes = &block->bytes;

	for (uint32_t i = 0; i < block->count; i++) {
		const struct trial_image *image = &storing->images[block->first + i];
		struct outcome *outcome = (struct outcome *)block->results + i;

		outcome->offset = bytes->size;
		outcome->status =
			buffer_append(bytes, image->data, image->size) ||
					buffer_reserve(bytes, bytes->size + IMAGE_PADDING)
				? text_error(&outcome->error, -ENOMEM, "out of memory")
				: renderer_render(worker, image->name, bytes, outcome->offset, NULL,
						  &outcome->rendered, &outcome->error);
		if (outcome->status)
			bytes->size = outcome->offset;
	}
}

/* Appends at an aligned place; the offset stands for the pointer until all is there. */
static int hold(struct buffer *held, const uint8_t *data, size_t size, size_t *ret_offset)
{
	static const uint8_t zeros[ALIGN];

	if (buffer_append(held, zeros, -held->size & (ALIGN - 1)))
		return -ENOMEM;
	*ret_offset = held->size;
	return buffer_append(held, data, size);
}

/* Takes one image's outcome in; pointers of samples are offsets for now. */
static int take(struct trial_way *way, struct buffer *held, const struct work_block *block,
		uint32_t number)
{
	const struct outcome *outcome = (const struct outcome *)block->results + number;
	const struct rendered *rendered = &outcome->rendered;
	const uint8_t *data = block->bytes.data + outcome->offset;
	size_t data_offset, side_offset = 0;

	if (outcome->status) {
		if (!way->first_fault.text[0])
			way->first_fault = outcome->error;
		return outcome->status == -ENOMEM ? -ENOMEM : 0;
	}
	if (hold(held, data, rendered->data_size, &data_offset) ||
	    (rendered->side_size &&
	     hold(held, data + rendered->data_size, rendered->side_size, &side_offset)))
		return -ENOMEM;
	way->samples[way->images] = (struct packimg_sample){
		.index = block->first + number,
		.data = (const uint8_t *)data_offset,
		.side = (const uint8_t *)side_offset, /* 0: none, as data come first */
		.data_size = (uint32_t)rendered->data_size,
		.side_size = (uint32_t)rendered->side_size,
		.side_xxh3 = XXH3_64bits(data + rendered->data_size, rendered->side_size),
		.width = rendered->width,
		.height = rendered->height,
		.label = PACKIMG_LABEL_NONE,
		.codec = (uint8_t)rendered->codec,
		.channels = rendered->channels,
		.orientation = rendered->orientation,
	};
	way->images++;
	way->bytes += rendered->data_size + rendered->side_size;
	way->index_bytes += rendered->side_size;
	way->unindexed.counts[rendered->unindexed]++;
	return 0;
}

/* Gives the samples memory of their own, aligned and with readable bytes behind it, and pointers into it. */
static int settle(struct trial_way *way, const struct buffer *held)
{
	way->memory = aligned_alloc(ALIGN, (held->size + 2 * ALIGN) & ~(size_t)(ALIGN - 1));
	if (!way->memory)
		return -ENOMEM;
	if (held->size)
		memcpy(way->memory, held->data, held->size);
	for (uint64_t i = 0; i < way->images; i++) {
		struct packimg_sample *sample = &way->samples[i];

		sample->data = way->memory + (uintptr_t)sample->data;
		sample->side = sample->side_size ? way->memory + (uintptr_t)sample->side : NULL;
	}
	return 0;
}

static int render_all(struct trial_way *way, const struct trial_image *images, uint64_t count,
		      unsigned jobs, struct buffer *held)
{
	struct storing storing = {.way = way, .images = images, .options = render_options(way)};
	const struct workers_setup setup = {
		.jobs = jobs,
		.total = count,
		.block = 2,
		.result_size = sizeof(struct outcome),
		.bytes_max = BYTES_UNDER_WAY,
		.context = &storing,
		.worker_new = worker_new,
		.worker_free = worker_free,
		.run = run_block,
	};
	struct workers *workers;
	struct work_block *block;
	int r = workers_new(&setup, &workers);

	if (r)
		return r;
	while (!r) {
		r = command_interrupted() ? -EINTR : workers_next(workers, 100, &block);
		if (r == WORKERS_WAIT) {
			r = 0;
			continue;
		}
		for (uint32_t i = 0; !r && i < block->count; i++)
			r = take(way, held, block, i);
	}
	workers_free(workers);
	return r == WORKERS_END ? 0 : r;
}

static void take_stored(struct trial_way *way, const struct trial_image *images, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		const struct packimg_sample *sample = images[i].stored;

		way->samples[way->images++] = *sample;
		way->bytes += sample->data_size + sample->side_size;
		way->index_bytes += sample->side_size;
	}
}

int trial_store(struct trial_way *way, const struct trial_image *images, uint64_t count,
		unsigned jobs, struct packimg_error *error)
{
	struct buffer held = {0};
	int r = 0;

	way->samples = calloc(count + 1, sizeof(*way->samples));
	if (!way->samples)
		return text_error(error, -ENOMEM, "out of memory");
	if (way->kind == TRIAL_STORED) {
		take_stored(way, images, count);
		return 0;
	}
	r = render_all(way, images, count, jobs, &held);
	if (!r)
		r = settle(way, &held);
	buffer_deinit(&held);
	if (r)
		trial_drop(way);
	return r && r != -EINTR ? text_error(error, r, "storing a sample: %s", strerror(-r)) : r;
}

void trial_drop(struct trial_way *way)
{
	free(way->samples);
	free(way->memory);
	way->samples = NULL;
	way->memory = NULL;
	way->images = 0;
}

static double cpu_now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

struct measurement {
	const struct transform *transform;
	struct transform_scratch *scratch;
	uint8_t *targets;
	size_t target_size;
};

/* Every image once, with the crops of that epoch. */
static int run_epoch(const struct measurement *m, const struct trial_way *way, uint64_t epoch,
		     struct packimg_error *error)
{
	for (uint64_t i = 0; i < way->images; i++) {
		int r = transform_apply(m->transform, m->scratch, &way->samples[i], 0, epoch,
					m->targets + i % TARGETS * m->target_size, NULL, error);
		if (r)
			return r;
	}
	return 0;
}

/* One turn of a way: at least so long, whole epochs. Epochs go on from turn to turn. */
static int run_turn(const struct measurement *m, const struct trial_way *way, double seconds,
		    uint64_t *epoch, double *ret_images_per_s, struct packimg_error *error)
{
	uint64_t images = 0;
	double start_s = cpu_now_s(), spent_s;

	do {
		int r = command_interrupted() ? -EINTR : run_epoch(m, way, (*epoch)++, error);

		if (r)
			return r;
		images += way->images;
		spent_s = cpu_now_s() - start_s;
	} while (spent_s < seconds);
	*ret_images_per_s = (double)images / spent_s;
	return 0;
}

static int compare_doubles(const void *a, const void *b)
{
	double p = *(const double *)a, q = *(const double *)b;

	return p < q ? -1 : p > q;
}

static int measure_rounds(const struct measurement *m, struct trial_way *ways, uint32_t count,
			  double seconds, struct packimg_error *error)
{
	double(*rates)[ROUNDS] = calloc(count, sizeof(*rates));
	int r = rates ? 0 : text_error(error, -ENOMEM, "out of memory");

	for (uint64_t round = 0; !r && round < ROUNDS; round++)
		for (uint32_t w = 0; !r && w < count; w++) {
			uint64_t epoch = round << 32;

			if (!ways[w].images)
				continue;
			if (round == 0) /* memory grows, caches and tables fill */
				r = run_epoch(m, &ways[w], 0, error);
			if (!r)
				r = run_turn(m, &ways[w], seconds / ROUNDS, &epoch,
					     &rates[w][round], error);
		}
	for (uint32_t w = 0; !r && w < count; w++) {
		qsort(rates[w], ROUNDS, sizeof(double), compare_doubles);
		ways[w].images_per_s = rates[w][ROUNDS / 2];
	}
	free(rates);
	return r;
}

int trial_measure(struct trial_way *ways, uint32_t count, const struct transform *transform,
		  double seconds, struct packimg_error *error)
{
	struct measurement m = {.transform = transform,
				.target_size = transform_sample_size_max(transform)};
	int r;

	m.target_size = (m.target_size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
	m.targets = aligned_alloc(ALIGN, m.target_size * TARGETS);
	r = m.targets ? transform_scratch_new(&m.scratch) : -ENOMEM;
	if (r)
		text_error(error, r, "%s", strerror(-r));
	else
		r = measure_rounds(&m, ways, count, seconds, error);
	if (m.scratch)
		transform_scratch_free(m.scratch);
	free(m.targets);
	return r;
}
