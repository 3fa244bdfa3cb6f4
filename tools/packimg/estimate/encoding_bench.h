/*
 * Measures size and decoding rate of a sample of images in several encodings, each stored as
 * packimg convert would store it. First all variants are encoded. Then all runs are measured
 * together on one thread: interleaved rounds, the thread's CPU clock, and medians, so that other
 * load affects all variants equally. Shared by `packimg advise` and `loaderbench --explain`. The
 * caller owns the variants. One thread.
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

/* One image of the sample, as a file or as a sample of a dataset. */
struct encoding_input {
	const uint8_t *data; /* bytes of a JPEG, PNG or WebP file, followed by 64 readable bytes */
	size_t size;
	const struct packimg_sample *stored; /* a sample of a dataset, used instead of a file */
};

struct encoding_variant {
	enum encoding_kind kind;
	uint32_t short_side; /* maximum in pixels; 0 keeps the size */
	int quality;         /* JPEG quality, for ENCODING_JPEG */
	/* for ENCODING_VERBATIM: losslessly transcode JPEGs that otherwise cannot have an index */
	bool transcode;

	/* Results of encoding_variant_encode(): */
	uint64_t images; /* number of images that could be encoded */
	uint64_t bytes;  /* total size of these images, including their indexes */
	uint64_t index_bytes;
	struct unindexed_counts unindexed;
	/* error of the first image that could not be encoded; its text is empty if there is none */
	struct packimg_error first_fault;
	/*
	 * in the order of the images. `index` is the image's index in the dataset, on which its
	 * crops depend.
	 */
	struct packimg_sample *samples;
	uint8_t *memory;

	/*
	 * set by the caller from encoding_bench_measure(): finished images per second on one core
	 */
	double images_per_s;
};

/*
 * Writes the variant's name, such as "originals, indexed" or "short side 256, quality 90", to the
 * buffer and returns it.
 */
const char *encoding_variant_name(struct text_buffer *buffer,
				  const struct encoding_variant *variant);
/*
 * Writes the options of packimg convert that give this variant, such as " --short-side 256 --raw".
 */
const char *encoding_variant_options(struct text_buffer *buffer,
				     const struct encoding_variant *variant);
/* Returns the mean per image of a total, such as variant->bytes; 0 without images. */
double encoding_variant_mean(const struct encoding_variant *variant, uint64_t bytes);
/*
 * Returns true if a stored sample can be decoded. Leave out other samples, which would abort a
 * measurement.
 */
bool encoding_bench_can_use(struct packimg_decoder *decoder, const struct packimg_sample *sample);
/*
 * Encodes the images. Counts and leaves out those that cannot be used. stop (may be NULL) returns
 * true to end with -EINTR. Returns 0, -EINTR or -ENOMEM.
 */
int encoding_variant_encode(struct encoding_variant *variant, const struct encoding_input *images,
			    uint64_t count, unsigned jobs, bool (*stop)(void),
			    struct packimg_error *error);
void encoding_variant_deinit(struct encoding_variant *variant);

/* One measurement: samples, and the pipeline that processes them. */
struct encoding_run {
	const struct packimg_sample *samples;
	uint64_t count; /* number of samples; 0 measures nothing */
	const struct pipeline *pipeline;
	double image_s; /* CPU time per image, set by encoding_bench_measure() */
};

/*
 * Measures each run for at least `seconds` of CPU time, and for at least five epochs. Claims
 * samples on these terms like a daemon's worker, because claims determine which samples are decoded
 * side by side. Returns 0, -EINTR, or the error of a sample that could not be decoded.
 */
int encoding_bench_measure(struct encoding_run *runs, uint32_t count,
			   const struct claim_options *claim, double seconds, bool (*stop)(void),
			   struct packimg_error *error);
