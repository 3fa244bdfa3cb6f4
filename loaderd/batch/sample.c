#include "loaderd/batch/sample.h"

#include "format/base/random.h"
#include "format/base/system/ticks.h"
#include "format/join.h"
#include "loaderd/batch/counters.h"
#include "loaderd/batch/joining.h"
#include "loaderd/batch/mixing.h"
#include "loaderd/batch/pasting.h"
#include "loaderd/crash_marker.h"
#include "loaderd/order/sampler.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static uint64_t view_seed(const struct batcher *batcher, uint32_t copy, uint32_t view)
{
	return order_copy_seed(batcher->options.order.seed,
			       copy * batcher->options.values.view_count + view);
}

/*
 * Returns the seed of the steps before the views. No copy has it: with the seed of one, its own
 * steps would repeat the draws of those before.
 */
static uint64_t shared_seed(const struct batcher *batcher, uint32_t copy)
{
	return order_copy_seed(batcher->options.order.seed, UINT32_MAX - copy);
}

/* Returns a sample that the feed may deliver in place of, or beside, another, by random bits. */
static uint64_t other_sample(const struct batcher *batcher, uint64_t index, uint64_t bits)
{
	const struct sampler *sampler = batcher->options.order.sampler;
	return sampler ? sampler_other(sampler, index, bits)
		       : bits % batcher->options.dataset->count;
}

/*
 * Returns a sample to deliver in place of sample i of a batch, by random bits; `index` itself if
 * the one that they choose does not fit the place.
 */
static uint64_t substitute_for(const struct batcher *batcher, const struct batcher_work *work,
			       uint32_t i, uint64_t index, uint64_t bits)
{
	if (!batcher->packed)
		return other_sample(batcher, index, bits);
	struct pack_draw draw = order_slice_other(&work->slice, i, bits);
	bool fits = !work->starts || draw.patches <= work->starts[i + 1] - work->starts[i];
	return fits ? draw.sample : index;
}

/* Decodes what several views need of a sample. Without views, forgets those of other samples. */
static void share_decode(struct batcher *batcher, struct batcher_thread *thread,
			 struct batcher_work *work, const struct packimg_sample *sample,
			 uint32_t copy, struct sample_times *times)
{
	const struct value_table *values = &batcher->options.values;
	struct pipeline_view_call calls[PIPELINE_VIEWS_MAX];
	uint32_t count = values->view_count > 1 ? values->view_count : 0;
	for (uint32_t v = 0; v < count; v++)
		calls[v] = (struct pipeline_view_call){values->views[v].made.pipeline,
						       view_seed(batcher, copy, v),
						       values->views[v].image_named};
	pipeline_share_decode(thread->scratch, sample, calls, count, work->epoch, &times->stages);
}

/* Where the stored bytes of a sample are. */
struct sample_bytes {
	const struct packimg_sample *read; /* from io_get(), or NULL to use the mapping */
	uint64_t unit;                     /* as for io_get_image() */
	uint8_t turn;                      /* of begin_sample() */
};

/* What is made in a guard of its own. */
struct sample_part {
	uint64_t index; /* of the stored sample */
	const struct sample_bytes *bytes;
	struct value_join *join; /* of which it is a part, or: */
	struct pasting *pasting; /* both NULL for a whole sample */
	uint32_t number;         /* of the sample in its mosaic or pasting */
	bool finish;             /* the last part, for which nothing more is read */
};

/* Discards the samples that sample_batched_decode() announced. */
static void forget_ahead(struct batcher_thread *thread)
{
	if (thread->ahead)
		pipeline_batched_decode(NULL, thread->scratch, NULL, 0, 0, 0);
	thread->ahead = false;
}

/* Notes the sample's turn before it is decoded ahead or copied. Returns false if it is not there.
 */
static bool note_turn(struct batcher *batcher, struct batcher_thread *thread, uint64_t index)
{
	uint8_t turn = filling_turn(batcher->filling, index);
	if (!(turn & FILLING_PRESENT))
		return false;
	thread->early_samples[thread->early_count] = index;
	thread->early_turns[thread->early_count++] = turn;
	return true;
}

/* Discards what was decoded ahead or copied if the sample has had another turn then. */
static void drop_early(struct batcher_thread *thread, uint64_t index, uint8_t turn)
{
	for (uint32_t i = 0; i < thread->early_count; i++) {
		if (thread->early_samples[i] != index || thread->early_turns[i] == turn)
			continue;
		forget_ahead(thread);
		thread->kept_count = 0;
		thread->early_count = 0;
	}
}

/* Call it before the sample's stored bytes are read: of files that are being filled,
 * filling_look().
 */
static int begin_sample(struct batcher *batcher, struct batcher_thread *thread, uint64_t index,
			uint8_t *ret_turn, struct packimg_error *error)
{
	if (!batcher->filling)
		return 0;
	int r = filling_look(batcher->filling, &thread->units, index, ret_turn, error);
	if (r == 0)
		drop_early(thread, index, *ret_turn);
	return r;
}

/* Call it with the result when they have been used: of files that are being filled,
 * filling_check().
 */
static int end_sample(struct batcher *batcher, struct batcher_thread *thread, uint64_t index,
		      uint8_t turn, int r, struct packimg_error *error)
{
	if (!batcher->filling)
		return r;
	return filling_check(batcher->filling, &thread->units, index, turn, r, error);
}

static int find_stored(struct batcher *batcher, const struct sample_part *part,
		       struct sample_times *times, struct packimg_sample *ret_sample,
		       struct packimg_error *error)
{
	struct dataset *dataset = batcher->options.dataset;
	const struct sample_bytes *bytes = part->bytes;
	struct packimg_sample sample;
	uint64_t start = ticks_now();
	if (part->finish) {
		*ret_sample = part->join->first;
		return 0;
	}
	int r = bytes->read
			? dataset_known(dataset, part->index, error)
			: dataset_sample(dataset, part->index, !batcher->filling, &sample, error);
	if (r == 0 && bytes->read)
		sample = *bytes->read;
	if (r == 0 && batcher->filling)
		r = filling_verify(batcher->filling, &sample, bytes->turn, error);
	else if (r == 0 && bytes->read)
		r = dataset_verify(dataset, &sample, error);
	times->read += ticks_since(start);
	if (r == 0)
		*ret_sample = sample;
	return r;
}

/* Adds a sample to a mosaic, or finishes the mosaic. origin: of that sample, or of sample 0. */
static int make_joined(struct batcher *batcher, struct batcher_work *work, uint32_t i,
		       const struct sample_part *part, struct value_origin *origin, uint8_t *flags,
		       struct packimg_error *error)
{
	const struct value_table *values = &batcher->options.values;
	const struct ring_geometry *layout = &batcher->ring.layout;
	if (part->finish) {
		origin->join = part->join;
		return joining_finish(values, origin, layout, work->slot, i, flags, error);
	}
	uint8_t first_flags = part->join->flags;
	int r = joining_add(values, part->number, origin, layout, work->slot, i, part->join, error);
	if (part->number == 0)
		part->join->first = *origin->sample;
	else
		part->join->flags = first_flags;
	return r;
}

/* Makes a view of a sample, or its part of one. */
static int make_view(struct batcher *batcher, struct batcher_work *work, uint32_t i,
		     const struct sample_part *part, struct value_origin *origin, uint8_t *flags,
		     struct packimg_error *error)
{
	const struct value_table *values = &batcher->options.values;
	if (part->join)
		return make_joined(batcher, work, i, part, origin, flags, error);
	if (part->pasting && part->number == PASTING_ABOVE)
		return pasting_put_above(values, origin, part->pasting, error);
	if (part->pasting)
		return pasting_put_below(values, origin, part->pasting, flags, error);
	return values_put(values, origin, &batcher->ring.layout, work->slot, i, flags, error);
}

/* Returns true if the part says nothing of the finished sample itself. */
static bool is_other(const struct sample_part *part)
{
	return (part->join && !part->finish) || (part->pasting && part->number == PASTING_ABOVE);
}

/* Runs inside the guard. */
static int make_guarded(struct batcher *batcher, struct batcher_thread *thread,
			struct batcher_work *work, uint32_t i, const struct sample_part *part,
			struct sample_times *times, struct packimg_error *error)
{
	struct dataset *dataset = batcher->options.dataset;
	const uint32_t copy = thread->copy;
	struct packimg_sample sample;
	int r = find_stored(batcher, part, times, &sample, error);
	if (r < 0)
		return r;
	struct value_origin origin = {
		.dataset = dataset,
		.sample = &sample,
		.io = batcher->io,
		.decider = part->join ? part->join->index : sample.index,
		.unit = part->bytes->unit,
		.epoch = work->epoch,
		.scratch = thread->scratch,
		.times = &times->stages,
		.bytes = &thread->value_bytes,
		.image_bytes = &thread->image_bytes,
		.box_bytes = &thread->box_bytes,
		.crop_bytes = &thread->crop_bytes,
	};
	const struct value_table *values = &batcher->options.values;
	uint8_t flags = 0;
	if (work->starts) {
		origin.patch_first = work->starts[i];
		origin.patch_room = work->starts[i + 1] - work->starts[i];
	}
	pipeline_scratch_shared_seed(thread->scratch, shared_seed(batcher, copy));
	pipeline_scratch_bucket(thread->scratch, work->bucket);
	share_decode(batcher, thread, work, &sample, copy, times);
	for (uint32_t v = 0; r == 0 && v < values->view_count; v++) {
		origin.view = v;
		origin.pipeline = values->views[v].made.pipeline;
		origin.shape = &work->shapes[v];
		origin.seed = view_seed(batcher, copy, v);
		r = make_view(batcher, work, i, part, &origin, &flags, error);
	}
	if (is_other(part))
		return r;
	thread->label = sample.label;
	r = r ?: mixing_check_label(batcher, &sample, error);
	if (r == 0)
		work->flags[i] = flags;
	return r;
}

static int make_part(struct batcher *batcher, struct batcher_thread *thread,
		     struct batcher_work *work, uint32_t i, const struct sample_part *part,
		     struct sample_times *times, struct packimg_error *error)
{
	struct dataset *dataset = batcher->options.dataset;
	uint64_t number, index = part->index;
	const struct packimg *image =
		packimg_part(dataset->image, packimg_part_of(dataset->image, index, &number));
	for (;;) {
		uint64_t faults = atomic_load(&dataset->guard.faults);
		/*
		 * A fault means that decoded-ahead samples may come from a zero page: discard them.
		 */
		if (thread->ahead && thread->ahead_faults != faults) {
			atomic_store(&dataset->suspect, true);
			forget_ahead(thread);
		}
		error->text[0] = '\0';
		sigbus_guard_enter(&dataset->guard);
		crash_marker_begin(packimg_uuid(image), number);
		int r = make_guarded(batcher, thread, work, i, part, times, error);
		crash_marker_end();
		if (sigbus_guard_leave()) {
			atomic_store(&dataset->suspect, true);
			dataset_condemn(dataset, index);
			snprintf(error->text, sizeof(error->text),
				 "sample %llu: the file ends before it or cannot be read",
				 (unsigned long long)number);
			return -EBADMSG;
		}
		if (atomic_load(&dataset->guard.faults) == faults)
			return r;
		/*
		 * Another thread faulted meanwhile, perhaps on a page of this sample: make it
		 * again. This ends, because each page faults at most once.
		 */
		atomic_store(&dataset->suspect, true);
	}
}

/* Makes a part of a sample that is another one. part: its index is set, and its bytes are not. */
static int make_other_part(struct batcher *batcher, struct batcher_thread *thread,
			   struct batcher_work *work, uint32_t i, struct sample_part part,
			   struct sample_times *times, struct packimg_error *error)
{
	struct packimg_sample read;
	uint8_t turn = 0;
	int r = begin_sample(batcher, thread, part.index, &turn, error);
	if (r != 0)
		return r;
	uint64_t start = ticks_now();
	r = io_get_other(batcher->io, part.index, &thread->sample_bytes, &read, error);
	times->read += ticks_since(start);
	if (r >= 0) {
		const struct sample_bytes bytes = {r == IO_READ ? &read : NULL, IO_NO_UNIT, turn};
		part.bytes = &bytes;
		r = make_part(batcher, thread, work, i, &part, times, error);
	}
	return end_sample(batcher, thread, part.index, turn, r, error);
}

/* Counts another sample that could not be made. Returns -EINVAL if the feed ends at bad samples. */
static int leave_out_other(struct batcher *batcher, struct batcher_thread *thread,
			   struct batcher_work *work, uint64_t other,
			   const struct packimg_error *error)
{
	batcher->options.report(batcher->options.report_user, batcher->options.dataset, other,
				error->text);
	counters_add(&batcher->counters[thread->index].bad, 1);
	atomic_fetch_add_explicit(&work->bad, 1, memory_order_relaxed);
	return batcher->options.bad == BATCHER_FAIL ? -EINVAL : 0;
}

/* Adds sample `number` of a mosaic, one of the others, by the bits that choose it. */
static int join_other(struct batcher *batcher, struct batcher_thread *thread,
		      struct batcher_work *work, uint32_t i, uint64_t index, uint32_t number,
		      struct value_join *join, struct sample_times *times,
		      struct packimg_error *error)
{
	const struct sample_part part = {
		.index = other_sample(batcher, index, join->mosaic.others[number - 1]),
		.join = join,
		.number = number};
	join->tile = (struct mosaic_tile){0};
	int r = make_other_part(batcher, thread, work, i, part, times, error);
	if (r == 0)
		joining_keep(join);
	if (r == 0 || r == -EINVAL || r == -EAGAIN)
		return r;
	joining_leave_out(&batcher->options.values, join);
	return leave_out_other(batcher, thread, work, part.index, error);
}

/* Joins a sample and others. Nothing of it is read after the first part. */
static int make_mosaic(struct batcher *batcher, struct batcher_thread *thread,
		       struct batcher_work *work, uint32_t i, uint64_t index,
		       const struct sample_bytes *bytes, struct sample_times *times,
		       struct packimg_error *error)
{
	struct value_join join;
	struct sample_part part = {.index = index, .bytes = bytes, .join = &join};
	const uint32_t copy = thread->copy;
	int r = joining_begin(&batcher->options.values, view_seed(batcher, copy, 0), work->epoch,
			      index, &thread->joined_bytes, &join);
	if (r < 0) {
		snprintf(error->text, sizeof(error->text), "sample %llu: no memory for its mosaic",
			 (unsigned long long)index);
		return r;
	}
	r = make_part(batcher, thread, work, i, &part, times, error);
	if (r == 0)
		joining_keep(&join);
	for (uint32_t number = 1; r == 0 && number < join.mosaic.count; number++)
		r = join_other(batcher, thread, work, i, index, number, &join, times, error);
	part.finish = true;
	return r ?: make_part(batcher, thread, work, i, &part, times, error);
}

/* Makes a sample over which objects of another one are pasted, by the draw of `pasting`. */
static int make_pasted(struct batcher *batcher, struct batcher_thread *thread,
		       struct batcher_work *work, uint32_t i, uint64_t index,
		       const struct sample_bytes *bytes, struct pasting *pasting,
		       struct sample_times *times, struct packimg_error *error)
{
	const struct sample_part below = {.index = index, .bytes = bytes, .pasting = pasting};
	const struct sample_part above = {.index =
						  other_sample(batcher, index, pasting->draw.other),
					  .pasting = pasting,
					  .number = PASTING_ABOVE};
	int r = make_part(batcher, thread, work, i, &below, times, error);
	if (r < 0)
		return r;
	r = make_other_part(batcher, thread, work, i, above, times, error);
	if (r == -EINVAL || r == -EAGAIN)
		return r;
	if (r < 0) {
		pasting_leave_out(pasting);
		r = leave_out_other(batcher, thread, work, above.index, error);
	}
	uint64_t start = ticks_now();
	if (r == 0)
		pasting_finish(&batcher->options.values, pasting, &work->shapes[0],
			       &batcher->ring.layout, work->slot, i);
	times->stages.augment += ticks_since(start);
	return r;
}

static int make_sample(struct batcher *batcher, struct batcher_thread *thread,
		       struct batcher_work *work, uint32_t i, uint64_t index,
		       const struct sample_bytes *bytes, struct sample_times *times,
		       struct packimg_error *error)
{
	const struct value_table *values = &batcher->options.values;
	const struct sample_part part = {.index = index, .bytes = bytes};
	if (pipeline_joins(values->views[0].made.pipeline))
		return make_mosaic(batcher, thread, work, i, index, bytes, times, error);
	if (values->paste.boxes == 0)
		return make_part(batcher, thread, work, i, &part, times, error);
	struct pasting pasting;
	int r = pasting_begin(values, &batcher->single, view_seed(batcher, thread->copy, 0),
			      work->epoch, index, &thread->joined_bytes, &thread->paste_bytes,
			      &pasting);
	if (r < 0)
		snprintf(error->text, sizeof(error->text),
			 "sample %llu: no memory for its copy_paste", (unsigned long long)index);
	if (r < 0)
		return r;
	if (!pasting.draw.on)
		return make_part(batcher, thread, work, i, &part, times, error);
	return make_pasted(batcher, thread, work, i, index, bytes, &pasting, times, error);
}

void batcher_forget_buffers(struct batcher_thread *thread)
{
	io_buffer_deinit(&thread->sample_bytes);
	io_buffer_deinit(&thread->value_bytes);
	io_buffer_deinit(&thread->image_bytes);
	io_buffer_deinit(&thread->box_bytes);
	io_buffer_deinit(&thread->crop_bytes);
	io_buffer_deinit(&thread->joined_bytes);
	io_buffer_deinit(&thread->paste_bytes);
	for (uint32_t i = 0; i < PACKIMG_AHEAD_MAX; i++)
		io_buffer_deinit(&thread->kept_bytes[i]);
	thread->kept_count = 0;
}

/*
 * Copies the sample to the next kept buffer if decoding it together with others is faster: a JPEG
 * without an index, and not unusually large.
 */
static bool sample_keep(struct batcher *batcher, struct batcher_thread *thread, uint64_t index)
{
	enum { KEPT_BYTES_MAX = 1 << 20 };
	struct io_buffer *buffer = &thread->kept_bytes[thread->kept_count];
	struct packimg_sample *sample = &thread->kept[thread->kept_count];
	struct packimg_error error;
	if (dataset_sample(batcher->options.dataset, index, false, sample, &error) < 0 ||
	    sample->codec != PACKIMG_CODEC_JPEG || sample->side)
		return false;
	buffer->limit = KEPT_BYTES_MAX;
	if (io_get_other(batcher->io, index, buffer, sample, &error) != IO_READ)
		return false;
	thread->kept_count++;
	return true;
}

uint32_t sample_batched_decode(struct batcher *batcher, struct batcher_thread *thread,
			       struct batcher_work *work, uint64_t unit, uint32_t count,
			       struct sample_times *times)
{
	struct packimg_sample samples[PACKIMG_AHEAD_MAX];
	struct dataset *dataset = batcher->options.dataset;
	uint64_t start = ticks_now();
	struct packimg_error error;
	uint32_t found = 0, gain, copy = 0;

	forget_ahead(thread);
	thread->kept_unit = unit;
	thread->kept_count = 0;
	thread->early_count = 0;
	/*
	 * IO_URING delivers bytes only when io_get() asks for them. Further images, other views of
	 * the same one, and other samples of a mosaic or for copy_paste are decoded between those
	 * that would be decoded ahead.
	 */
	if (io_mode_of(batcher->io) != IO_MMAP || batcher->options.values.pictures ||
	    batcher->options.values.view_count > 1 || batcher->options.values.paste.boxes > 0 ||
	    pipeline_joins(batcher->options.values.views[0].made.pipeline))
		return 0;
	thread->ahead_faults = atomic_load(&dataset->guard.faults);
	sigbus_guard_enter(&dataset->guard);
	for (uint32_t i = 0; i < count && found < PACKIMG_AHEAD_MAX; i++) {
		uint32_t position = (uint32_t)(unit % batcher->unit_span) + i;
		struct order_item item = order_slice_at(&work->slice, position);
		uint64_t index = item.sample;

		/* Stop at the next copy: pipeline_batched_decode() takes one seed. */
		if (i == 0)
			copy = item.copy;
		else if (item.copy != copy)
			break;
		if (batcher->filling && !note_turn(batcher, thread, index))
			break;
		if (dataset->mapped)
			found +=
				dataset_sample(dataset, index, false, &samples[found], &error) == 0;
		else if (sample_keep(batcher, thread, index))
			samples[found++] = thread->kept[thread->kept_count - 1];
		else
			break;
	}
	if (!dataset->mapped) {
		times->read += ticks_since(start);
		start = ticks_now();
	}
	pipeline_scratch_value(thread->scratch, batcher->options.values.values[RING_IMAGES].named);
	pipeline_scratch_shared_seed(thread->scratch, shared_seed(batcher, copy));
	pipeline_scratch_bucket(thread->scratch, work->bucket);
	gain = pipeline_batched_decode(batcher->options.values.views[0].made.pipeline,
				       thread->scratch, samples, found, view_seed(batcher, copy, 0),
				       work->epoch);
	thread->ahead = gain > 1;
	if (sigbus_guard_leave())
		atomic_store(&dataset->suspect, true);
	times->stages.decode += ticks_since(start);
	return gain;
}

static int make_unit(struct batcher *batcher, struct batcher_thread *thread,
		     struct batcher_work *work, uint64_t unit, uint64_t index, uint8_t turn,
		     struct sample_times *times, struct packimg_error *error)
{
	struct packimg_sample read;
	struct sample_bytes bytes = {NULL, IO_NO_UNIT, turn};
	uint32_t i = (uint32_t)(unit % batcher->unit_span);
	bool waits = io_mode_of(batcher->io) == IO_URING;
	if (!waits && batcher->options.dataset->mapped)
		return make_sample(batcher, thread, work, i, index, &bytes, times, error);
	/* A draw by class reads the file again, which may have changed since the copy was made. */
	const bool has_kept = unit - thread->kept_unit < thread->kept_count;
	const struct packimg_sample *kept =
		has_kept ? &thread->kept[unit - thread->kept_unit] : NULL;
	if (kept && kept->index == index) {
		bytes.read = kept;
		return make_sample(batcher, thread, work, i, index, &bytes, times, error);
	}
	uint64_t start = ticks_now();
	int r = io_get(batcher->io, unit, index, &thread->sample_bytes, &read, error);
	*(waits ? &times->wait : &times->read) += ticks_since(start);
	if (r == -ECANCELED)
		return r;
	if (r >= 0) {
		bytes = (struct sample_bytes){r == IO_READ ? &read : NULL, unit, turn};
		r = make_sample(batcher, thread, work, i, index, &bytes, times, error);
	}
	io_done(batcher->io, unit);
	return r;
}

int sample_make_unit(struct batcher *batcher, struct batcher_thread *thread,
		     struct batcher_work *work, uint64_t unit, uint64_t index,
		     struct sample_times *times, struct packimg_error *error)
{
	uint8_t turn = 0;
	int r = begin_sample(batcher, thread, index, &turn, error);
	if (r < 0)
		return r;
	r = make_unit(batcher, thread, work, unit, index, turn, times, error);
	return end_sample(batcher, thread, index, turn, r, error);
}

/* Makes a sample that is not the one of a claimed unit: a replacement. */
static int make_other(struct batcher *batcher, struct batcher_thread *thread,
		      struct batcher_work *work, uint32_t i, uint64_t index,
		      struct sample_times *times, struct packimg_error *error)
{
	struct packimg_sample read;
	uint8_t turn = 0;
	int r = begin_sample(batcher, thread, index, &turn, error);
	if (r < 0)
		return r;
	r = io_get_other(batcher->io, index, &thread->sample_bytes, &read, error);
	if (r >= 0) {
		const struct sample_bytes bytes = {r == IO_READ ? &read : NULL, IO_NO_UNIT, turn};
		r = make_sample(batcher, thread, work, i, index, &bytes, times, error);
	}
	return end_sample(batcher, thread, index, turn, r, error);
}

int sample_substitute(struct batcher *batcher, struct batcher_thread *thread,
		      struct batcher_work *work, uint32_t i, uint64_t index,
		      struct sample_times *times, struct packimg_error *error)
{
	struct random_stream stream;
	random_init(&stream, batcher->options.order.seed, work->epoch, index, RANDOM_SUBSTITUTE);
	uint64_t number;
	unsigned made = 0;
	int r = -EBADMSG;
	for (unsigned tries = 0; tries < BATCHER_SUBSTITUTES_MAX; tries++) {
		uint64_t draw = (uint64_t)random_u32(&stream) << 32;
		draw |= random_u32(&stream);
		uint64_t other = substitute_for(batcher, work, i, index, draw);
		if (other == index)
			continue;
		made++;
		r = make_other(batcher, thread, work, i, other, times, error);
		if (r == 0) {
			work->flags[i] |= RING_SAMPLE_SUBSTITUTED;
			return 0;
		}
		if (r == -EINVAL || r == -EAGAIN)
			return r;
		batcher->options.report(batcher->options.report_user, batcher->options.dataset,
					other, error->text);
	}
	const char *path = dataset_locate(batcher->options.dataset, index, &number);
	if (made == 0 && work->starts)
		snprintf(error->text, sizeof(error->text),
			 "sample %llu cannot be delivered, and none that has as few patches, %u, "
			 "can take its place; leave it out with a filter, or skip bad samples",
			 (unsigned long long)number, work->starts[i + 1] - work->starts[i]);
	else
		snprintf(error->text, sizeof(error->text),
			 "sample %llu and its %d replacements could not be decoded; run packimg "
			 "verify on %.300s",
			 (unsigned long long)number, BATCHER_SUBSTITUTES_MAX, path);
	return r;
}
