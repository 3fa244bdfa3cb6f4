/*
 * Measures size and decoding rate of a sample of images in several encodings, each stored as
 * packimg convert would store it. Variants are encoded first; then all runs are measured together
 * on one thread: interleaved rounds, thread CPU clock, medians, so that other load affects all
 * variants alike. Shared by `packimg advise` and `loaderbench --explain`. The caller owns the
 * variants; one thread calls.
 */
#pragma once

#include "format/augment/claim.h"
#include "format/packimg.h"
#include "tools/packimg/common/memory.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/image/unindexed.h"

#include <stdbool.h>

struct pipeline;

enum encoding_kind {
	ENCODING_STORED,    /* as stored in the dataset */
	ENCODING_VERBATIM,  /* JPEGs unchanged, with an index */
	ENCODING_UNINDEXED, /* JPEGs unchanged, without an index */
	ENCODING_JPEG,      /* re-encoded, with an index */
	ENCODING_RAW_ZSTD,
	ENCODING_RAW,
};

/* One image of the sample. */
struct encoding_input {
	const uint8_t *data; /* a JPEG, PNG or WebP file; 64 readable bytes follow */
	size_t size;
	const struct packimg_sample *stored; /* instead of a file, a sample of a dataset */
};

struct encoding_variant {
	enum encoding_kind kind;
	uint32_t short_side; /* maximum in pixels, 0 to keep the size */
	int quality;         /* for ENCODING_JPEG */
	/*
	 * for ENCODING_VERBATIM: losslessly transcode JPEGs that could not have an index otherwise
	 */
	bool transcode;

	/* Results of encoding_variant_encode(): */
	uint64_t images; /* images that could be encoded */
	uint64_t bytes;  /* of all images, indexes included */
	uint64_t index_bytes;
	struct unindexed_counts unindexed;
	/* of the first image that could not be encoded; empty if none */
	struct packimg_error first_fault;
	/* in the order of the images; index is the stored one, on which crops depend */
	struct packimg_sample *samples;
	uint8_t *memory;

	/* from encoding_bench_measure(): finished images on one core, the caller's */
	double images_per_s;
};

/*
 * Writes a name such as "originals, indexed" or "short side 256, quality 90" to the buffer and
 * returns it.
 */
const char *encoding_variant_name(struct text_buffer *buffer,
				  const struct encoding_variant *variant);
/* Writes the options of packimg convert for it, such as " --short-side 256 --raw". */
const char *encoding_variant_options(struct text_buffer *buffer,
				     const struct encoding_variant *variant);
/* Returns the mean of bytes, such as variant->bytes, over its images; 0 without images. */
double encoding_variant_mean(const struct encoding_variant *variant, uint64_t bytes);
/* True if a stored sample decodes. Leave out others, which would abort a measurement. */
bool encoding_bench_can_use(struct packimg_decoder *decoder, const struct packimg_sample *sample);
/*
 * Returns 0, -EINTR or -ENOMEM. Counts and leaves out images that cannot be used. stop (may be
 * NULL) returns true to end with -EINTR.
 */
int encoding_variant_encode(struct encoding_variant *variant, const struct encoding_input *images,
			    uint64_t count, unsigned jobs, bool (*stop)(void),
			    struct packimg_error *error);
void encoding_variant_deinit(struct encoding_variant *variant);

/* One measurement: samples and the pipeline they pass through. */
struct encoding_run {
	const struct packimg_sample *samples;
	uint64_t count; /* 0 to measure nothing */
	const struct pipeline *pipeline;
	double image_s; /* CPU time per image, from encoding_bench_measure() */
};

/*
 * Measures each run for at least that many seconds of CPU time, and at least five epochs. Claims
 * samples as a daemon's worker does on these terms, because that determines which samples are
 * decoded side by side. Returns 0, -EINTR, or the error of a sample that could not be decoded.
 */
int encoding_bench_measure(struct encoding_run *runs, uint32_t count,
			   const struct claim_options *claim, double seconds, bool (*stop)(void),
			   struct packimg_error *error);
