/*
 * Bytes and decoding rate of a sample of images in several encodings, each as packimg convert would
 * store it. Variants are encoded first; then their runs are measured together: one thread,
 * interleaved rounds, the thread's CPU clock, medians, so that other load disturbs all variants
 * alike. Shared by `packimg advise` and `loaderbench --explain`. The caller owns the variants; one
 * thread calls.
 */
#pragma once

#include "format/packimg.h"
#include "loaderd/augment/claim.h"
#include "tools/packimg/common/memory.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/image/unindexed.h"

#include <stdbool.h>

struct transform;

enum encoding_kind {
	ENCODING_STORED,    /* as the dataset holds it */
	ENCODING_VERBATIM,  /* JPEGs as they are, with an index */
	ENCODING_UNINDEXED, /* JPEGs as they are, without an index */
	ENCODING_JPEG,      /* encoded again, with an index */
	ENCODING_RAW_ZSTD,
	ENCODING_RAW,
};

/* One image of the sample. */
struct encoding_input {
	const uint8_t *data; /* a JPEG, PNG or WebP file; 64 readable bytes follow */
	size_t size;
	const struct packimg_sample *stored; /* instead of a file, what a dataset holds */
};

struct encoding_variant {
	enum encoding_kind kind;
	uint32_t short_side; /* pixels at most; 0: as it is */
	int quality;         /* of ENCODING_JPEG */
	/* of ENCODING_VERBATIM: losslessly transcode JPEGs that could have no index otherwise */
	bool transcode;

	/* After encoding_variant_encode(). */
	uint64_t images; /* that could be encoded */
	uint64_t bytes;  /* of all, indexes included */
	uint64_t index_bytes;
	struct unindexed_counts unindexed;
	struct packimg_error first_fault; /* of an image that could not; empty: none */
	/* in the images' order, index as stored, which crops depend on */
	struct packimg_sample *samples;
	uint8_t *memory;

	double images_per_s; /* finished, by one core: the caller's, from encoding_bench_measure()
			      */
};

/* "originals, indexed", "short side 256, quality 90": into the buffer, whose text is returned. */
const char *encoding_variant_name(struct text_buffer *buffer,
				  const struct encoding_variant *variant);
/* Whether a stored sample decodes: one that does not must not end a measurement. */
bool encoding_bench_can_use(struct packimg_decoder *decoder, const struct packimg_sample *sample);
/*
 * 0, -EINTR, -ENOMEM. Images that cannot be used are left out and counted. stop: asked whether to
 * end with -EINTR; may be NULL.
 */
int encoding_variant_encode(struct encoding_variant *variant, const struct encoding_input *images,
			    uint64_t count, unsigned jobs, bool (*stop)(void),
			    struct packimg_error *error);
void encoding_variant_deinit(struct encoding_variant *variant);

/* One measurement: these samples through this pipeline. */
struct encoding_run {
	const struct packimg_sample *samples;
	uint64_t count; /* 0: nothing is measured */
	const struct transform *transform;
	double image_s; /* CPU time per image, after encoding_bench_measure() */
};

/*
 * Measures runs for at least so many seconds of CPU time each, and five epochs. Samples are taken
 * as a worker of a daemon claims them on these terms, since that decides which are decoded side by
 * side. 0, -EINTR, or the fault of a sample that could not be decoded.
 */
int encoding_bench_measure(struct encoding_run *runs, uint32_t count,
			   const struct claim_terms *terms, double seconds, bool (*stop)(void),
			   struct packimg_error *error);
