/*
 * Pasting of objects of another sample, by copy_paste. Both samples are made in memory of the
 * thread, which no client sees, the other one without what is not pasted: first its rows and what
 * tells the pixels of its objects, then of its pictures the part that the chosen objects cover. A
 * sample that cannot be made pastes nothing. One thread makes all of a sample, each stored sample
 * in a guard of its own. See loaderd(1), PIPELINES.
 */
#pragma once

#include "loaderd/batch/values.h"

enum { PASTING_BELOW, PASTING_ABOVE, PASTING_SAMPLES };

/* Two samples, of which the second is pasted over the first. */
struct pasting {
	struct paste draw;
	const struct ring_geometry *layout; /* of one sample */
	struct ring_slot *slots[PASTING_SAMPLES];
	struct io_buffer *work_bytes;
	/* Set by pasting_put_above(), which may run again; cover NULL: nothing is pasted. */
	struct paste_objects objects[PASTING_SAMPLES];
	struct pipeline_window window;
	uint8_t *cover, *chosen, *keep;
	struct paste_area *areas[PASTING_SAMPLES], *visible; /* `visible` of the sample below */
	int32_t *numbers;                                    /* of pasted objects */
};

/*
 * Draws for sample `index`. Sets ret_pasting->draw.on to false if it is made as others are. buffer:
 * for both samples; work: for what is computed of them. layout: of a slot of one sample. Returns
 * -ENOMEM.
 */
int pasting_begin(const struct value_table *values, const struct ring_geometry *layout,
		  uint64_t seed, uint64_t epoch, uint64_t index, struct io_buffer *buffer,
		  struct io_buffer *work, struct pasting *ret_pasting);
/* Makes the sample below, whose origin this is. Errors as of values_put(). */
int pasting_put_below(const struct value_table *values, const struct value_origin *origin,
		      struct pasting *pasting, uint8_t *flags, struct packimg_error *error);
/* Makes what is pasted of the sample above. Call it after the one below. Errors as of values_put().
 */
int pasting_put_above(const struct value_table *values, const struct value_origin *origin,
		      struct pasting *pasting, struct packimg_error *error);
/* Pastes nothing: after an error of pasting_put_above(), or without it. */
void pasting_leave_out(struct pasting *pasting);
/* Writes the finished sample at index i of a slot. shape: of its image. */
void pasting_finish(const struct value_table *values, struct pasting *pasting,
		    const struct pipeline_shape *shape, const struct ring_geometry *layout,
		    struct ring_slot *slot, uint32_t i);
