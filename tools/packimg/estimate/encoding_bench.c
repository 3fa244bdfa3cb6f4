#include "tools/packimg/estimate/encoding_bench.h"

#include "format/augment/pipeline.h"
#include "format/base/median.h"
#include "format/base/system/clock.h"
#include "tools/packimg/common/parallel_map.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/image/sample_encoder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <xxhash.h>

enum {
	ALIGN = 64, /* alignment of samples, as in a file */
	ROUNDS = 5, /* number of turns per run */
	TARGETS =
		/*
		 * number of finished samples before their memory is reused: a batch, which exceeds
		 * the inner caches
		 */
	64,
	BYTES_IN_FLIGHT = 256 << 20,
	ZSTD_LEVEL = 3, /* the default of packimg convert */
	/* also the default of packimg convert, for sources other than JPEG under verbatim */
	PLAIN_QUALITY = 95,
};

const char *encoding_variant_name(struct text_buffer *buffer,
				  const struct encoding_variant *variant)
{
	static const char *const names[] = {
		[ENCODING_STORED] = "as stored",
		[ENCODING_VERBATIM] = "originals",
		[ENCODING_UNINDEXED] = "originals, no index",
		[ENCODING_JPEG] = "quality ",
		[ENCODING_RAW_ZSTD] = "raw+zstd",
		[ENCODING_RAW] = "raw",
	};
	char side[32] = "", quality[16] = "";

	if (variant->short_side)
		snprintf(side, sizeof(side), "short side %u, ", variant->short_side);
	if (variant->kind == ENCODING_JPEG)
		snprintf(quality, sizeof(quality), "%d", variant->quality);
	snprintf(buffer->text, sizeof(buffer->text), "%s%s%s", side, names[variant->kind], quality);
	return buffer->text;
}

const char *encoding_variant_options(struct text_buffer *buffer,
				     const struct encoding_variant *variant)
{
	char side[32] = "";

	if (variant->short_side)
		snprintf(side, sizeof(side), " --short-side %u", variant->short_side);
	if (variant->kind == ENCODING_JPEG)
		snprintf(buffer->text, sizeof(buffer->text), "%s --jpeg quality=%d", side,
			 variant->quality);
	else
		snprintf(buffer->text, sizeof(buffer->text), "%s%s", side,
			 variant->transcode                   ? " --progressive transcode"
			 : variant->kind == ENCODING_RAW_ZSTD ? " --raw-zstd"
			 : variant->kind == ENCODING_RAW      ? " --raw"
							      : "");
	return buffer->text;
}

double encoding_variant_mean(const struct encoding_variant *variant, uint64_t bytes)
{
	return variant->images ? (double)bytes / (double)variant->images : 0;
}

static struct sample_encoder_options encoder_options(const struct encoding_variant *variant)
{
	bool raw = variant->kind == ENCODING_RAW || variant->kind == ENCODING_RAW_ZSTD;

	return (struct sample_encoder_options){
		.verbatim =
			variant->kind == ENCODING_VERBATIM || variant->kind == ENCODING_UNINDEXED,
		.quality = variant->kind == ENCODING_JPEG ? variant->quality : PLAIN_QUALITY,
		.short_side = variant->short_side,
		.raw_fraction = raw ? 1 : 0,
		.raw_zstd = variant->kind == ENCODING_RAW_ZSTD,
		.zstd_level = ZSTD_LEVEL,
		.other = PACKIMG_CODEC_JPEG,
		.no_index = variant->kind == ENCODING_UNINDEXED,
		.transcode = variant->transcode,
		/* a sample that cannot be decoded must not abort a measurement */
	};
}

struct encode_job {
	struct encoding_variant *variant;
	const struct encoding_input *images;
	struct buffer *held;
	struct sample_encoder_options options;
};

struct outcome {
	int status;
	struct packimg_error error;
	struct encoded_sample encoded;
	size_t offset;
};

static int worker_init(void *context, void *worker)
{
	return sample_encoder_init(worker, &((const struct encode_job *)context)->options);
}

static void worker_deinit(void *worker)
{
	sample_encoder_deinit(worker);
}

/* Encodes an image as stored and appends it. */
static int encode_image(struct sample_encoder *sample_encoder, const struct encoding_input *image,
			struct buffer *bytes, struct outcome *outcome)
{
	size_t offset = bytes->size;

	if (image->stored)
		return sample_encoder_encode_stored(sample_encoder, image->stored, bytes, NULL,
						    &outcome->encoded, &outcome->error);
	if (buffer_append(bytes, image->data, image->size) ||
	    buffer_reserve(bytes, bytes->size + IMAGE_PADDING))
		return packimg_fail(&outcome->error, -ENOMEM, "out of memory");
	return sample_encoder_encode(sample_encoder, "", bytes, offset, NULL, &outcome->encoded,
				     &outcome->error);
}

static void encode_one(void *context, void *worker, struct work_block *block, uint32_t number)
{
	const struct encode_job *encode_job = context;
	struct outcome *outcome = (struct outcome *)block->results + number;

	outcome->offset = block->bytes.size;
	outcome->status = encode_image(worker, &encode_job->images[block->first + number],
				       &block->bytes, outcome);
	if (outcome->status)
		block->bytes.size = outcome->offset;
}

/*
 * Appends at an aligned offset. Samples store the offset instead of a pointer until all data is
 * collected.
 */
static int append_aligned(struct buffer *held, const uint8_t *data, size_t size, size_t *ret_offset)
{
	static const uint8_t zeros[ALIGN];

	if (buffer_append(held, zeros, -held->size & (ALIGN - 1)))
		return -ENOMEM;
	*ret_offset = held->size;
	return buffer_append(held, data, size);
}

/*
 * Collects the result of one image. The sample's pointers are offsets until variant_move_samples().
 */
static int variant_take_image(void *context, const struct work_block *block, uint32_t number)
{
	const struct encode_job *encode_job = context;
	struct encoding_variant *variant = encode_job->variant;
	struct buffer *held = encode_job->held;
	const struct packimg_sample *stored = encode_job->images[block->first + number].stored;
	const struct outcome *outcome = (const struct outcome *)block->results + number;
	const struct encoded_sample *encoded = &outcome->encoded;
	const uint8_t *data = block->bytes.data + outcome->offset;
	size_t data_offset, side_offset = 0;

	if (outcome->status) {
		if (!variant->first_fault.text[0])
			variant->first_fault = outcome->error;
		return outcome->status == -ENOMEM ? -ENOMEM : 0;
	}
	if (append_aligned(held, data, encoded->data_size, &data_offset) ||
	    (encoded->side_size &&
	     append_aligned(held, data + encoded->data_size, encoded->side_size, &side_offset)))
		return -ENOMEM;
	variant->samples[variant->images] = (struct packimg_sample){
		.index = stored ? stored->index : block->first + number,
		.data = (const uint8_t *)data_offset,
		.side = (const uint8_t *)
			side_offset, /* offset 0 means none, because data comes first */
		.data_size = (uint32_t)encoded->data_size,
		.side_size = (uint32_t)encoded->side_size,
		.side_xxh3 = XXH3_64bits(data + encoded->data_size, encoded->side_size),
		.width = encoded->width,
		.height = encoded->height,
		.label = PACKIMG_LABEL_NONE,
		.codec = (uint8_t)encoded->codec,
		.channels = encoded->channels,
		.orientation = encoded->orientation,
	};
	variant->images++;
	variant->bytes += encoded->data_size + encoded->side_size;
	variant->index_bytes += encoded->side_size;
	variant->unindexed.counts[encoded->unindexed]++;
	return 0;
}

/*
 * Moves the samples to memory of their own, aligned and followed by readable bytes, and converts
 * offsets to pointers.
 */
static int variant_move_samples(struct encoding_variant *variant, const struct buffer *held)
{
	variant->memory = aligned_alloc(ALIGN, (held->size + 2 * ALIGN) & ~(size_t)(ALIGN - 1));
	if (!variant->memory)
		return -ENOMEM;
	if (held->size)
		memcpy(variant->memory, held->data, held->size);
	for (uint64_t i = 0; i < variant->images; i++) {
		struct packimg_sample *sample = &variant->samples[i];

		sample->data = variant->memory + (uintptr_t)sample->data;
		sample->side = sample->side_size ? variant->memory + (uintptr_t)sample->side : NULL;
	}
	return 0;
}

static int encode_all(struct encoding_variant *variant, const struct encoding_input *images,
		      uint64_t count, unsigned jobs, bool (*stop)(void), struct buffer *held)
{
	struct encode_job encode_job = {.variant = variant,
					.images = images,
					.held = held,
					.options = encoder_options(variant)};
	const struct parallel_map_options setup = {
		.jobs = jobs,
		.total = count,
		.block = 2,
		.result_size = sizeof(struct outcome),
		.bytes_max = BYTES_IN_FLIGHT,
		.context = &encode_job,
		.worker_size = sizeof(struct sample_encoder),
		.worker_init = worker_init,
		.worker_deinit = worker_deinit,
		.run = encode_one,
		.take = variant_take_image,
		.stopped = stop,
	};
	int fault;

	return parallel_map(&setup, &fault);
}

static void variant_take_stored(struct encoding_variant *variant,
				const struct encoding_input *images, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		const struct packimg_sample *sample = images[i].stored;

		variant->samples[variant->images++] = *sample;
		variant->bytes += sample->data_size + sample->side_size;
		variant->index_bytes += sample->side_size;
	}
}

bool encoding_bench_can_use(struct packimg_decoder *decoder, const struct packimg_sample *sample)
{
	const struct packimg_region region = {.width = sample->width, .height = sample->height};
	struct packimg_pixels pixels;

	return !packimg_sample_check(sample) &&
	       !packimg_decode(decoder, sample, &region, 0, 0, &pixels, NULL);
}

int encoding_variant_encode(struct encoding_variant *variant, const struct encoding_input *images,
			    uint64_t count, unsigned jobs, bool (*stop)(void),
			    struct packimg_error *error)
{
	struct buffer held = {0};
	int r = 0;

	variant->samples = calloc(count + 1, sizeof(*variant->samples));
	if (!variant->samples)
		return packimg_fail(error, -ENOMEM, "out of memory");
	if (variant->kind == ENCODING_STORED) {
		variant_take_stored(variant, images, count);
		return 0;
	}
	r = encode_all(variant, images, count, jobs, stop, &held);
	if (!r)
		r = variant_move_samples(variant, &held);
	buffer_deinit(&held);
	if (r)
		encoding_variant_deinit(variant);
	return r && r != -EINTR ? packimg_fail(error, r, "storing a sample: %s", strerror(-r)) : r;
}

void encoding_variant_deinit(struct encoding_variant *variant)
{
	free(variant->samples);
	free(variant->memory);
	variant->samples = NULL;
	variant->memory = NULL;
	variant->images = 0;
}

struct measurement {
	struct pipeline_scratch *scratch;
	uint8_t *targets;
	size_t target_size;
	const struct claim_options *claim;
	double seconds; /* duration of a turn */
	bool (*stop)(void);
};

/* State of a run being measured. */
struct run_state {
	const struct encoding_run *run;
	uint64_t cost_ns; /* cost per image in the run's last turn, which determines the size of
			     claims */
	bool together;
	double turns[ROUNDS]; /* CPU time per image in seconds, by turn */
};

/* Decodes the samples [first, end) as one claim. */
static int bench_run_claim(const struct measurement *m, struct run_state *run_state, uint64_t first,
			   uint64_t end, uint64_t epoch, struct packimg_error *error)
{
	const struct encoding_run *run = run_state->run;
	int r = 0;

	for (uint64_t i = first; i < end && !r; i++) {
		if ((i - first) % PACKIMG_AHEAD_MAX == 0) {
			uint64_t left = end - i;
			uint32_t count =
				left < PACKIMG_AHEAD_MAX ? (uint32_t)left : PACKIMG_AHEAD_MAX;
			uint32_t gain = pipeline_batched_decode(run->pipeline, m->scratch,
								&run->samples[i], count, 0, epoch);

			run_state->together = claim_together(gain, count);
		}
		r = pipeline_apply(run->pipeline, m->scratch, &run->samples[i], 0, epoch,
				   m->targets + i % TARGETS * m->target_size, NULL, error);
	}
	return r;
}

/* Decodes every image once, with the crops of this epoch. */
static int bench_run_epoch(const struct measurement *m, struct run_state *run_state, uint64_t epoch,
			   struct packimg_error *error)
{
	uint64_t batch_size = m->claim->batch_size, count = run_state->run->count, end;
	int r = 0;

	for (uint64_t i = 0; i < count && !r; i = end) {
		uint64_t batch_end = i - i % batch_size + batch_size;

		end = i + claim_size(m->claim, run_state->cost_ns, run_state->together);
		end = end < batch_end ? end : batch_end;
		end = end < count ? end : count;
		r = bench_run_claim(m, run_state, i, end, epoch, error);
	}
	return r;
}

/* Runs one turn: as many whole epochs as at least the given time takes. */
static int bench_run_turn(const struct measurement *m, struct run_state *run_state, uint64_t epoch,
			  double *ret_image_s, struct packimg_error *error)
{
	uint64_t images = 0;
	double start_s = clock_s(CLOCK_THREAD_CPUTIME_ID), spent_s;

	do {
		int r = m->stop && m->stop() ? -EINTR
					     : bench_run_epoch(m, run_state, epoch++, error);

		if (r)
			return r;
		images += run_state->run->count;
		spent_s = clock_s(CLOCK_THREAD_CPUTIME_ID) - start_s;
	} while (spent_s < m->seconds);
	*ret_image_s = spent_s / (double)images;
	run_state->cost_ns = (uint64_t)(*ret_image_s * 1e9);
	return 0;
}

static int bench_measure_rounds(const struct measurement *m, struct encoding_run *runs,
				uint32_t count, struct packimg_error *error)
{
	struct run_state *states = calloc(count, sizeof(*states));
	struct measurement warm_up = *m;
	int r = states ? 0 : packimg_fail(error, -ENOMEM, "out of memory");

	warm_up.seconds = 0; /* warm-up round: fills buffers, caches and tables */
	for (uint64_t round = 0; !r && round <= ROUNDS; round++)
		for (uint32_t i = 0; !r && i < count; i++) {
			struct run_state *run_state = &states[i];
			double *turn = &run_state->turns[round ? round - 1 : 0];

			run_state->run = &runs[i];
			if (runs[i].count)
				r = bench_run_turn(round ? m : &warm_up, run_state, round << 32,
						   turn, error);
		}
	for (uint32_t i = 0; !r && i < count; i++)
		runs[i].image_s = median_sort(states[i].turns, ROUNDS);
	free(states);
	return r;
}

int encoding_bench_measure(struct encoding_run *runs, uint32_t count,
			   const struct claim_options *claim, double seconds, bool (*stop)(void),
			   struct packimg_error *error)
{
	struct measurement m = {.claim = claim, .seconds = seconds / ROUNDS, .stop = stop};

	for (uint32_t i = 0; i < count; i++) {
		size_t size = pipeline_sample_size_max(runs[i].pipeline);

		size = (size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
		m.target_size = size > m.target_size ? size : m.target_size;
	}
	m.targets = aligned_alloc(ALIGN, m.target_size * TARGETS);
	int r = m.targets ? pipeline_scratch_new(&m.scratch) : -ENOMEM;
	if (r)
		packimg_say(error, "%s", strerror(-r));
	else
		r = bench_measure_rounds(&m, runs, count, error);
	if (m.scratch)
		pipeline_scratch_free(m.scratch);
	free(m.targets);
	return r;
}
