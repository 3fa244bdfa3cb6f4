/*
 * Turns the bytes of a source file into the bytes of a sample: kept as they are, or decoded,
 * resized and encoded. The result depends on the options and the source alone, never on threads or
 * order. One encoder per thread; it allocates only for an image larger than all before.
 */
#pragma once

#include "tools/packimg/image/image.h"
#include "tools/packimg/image/statistics.h"

struct resize;

struct sample_encoder_options {
	bool verbatim;     /* keep a JPEG's bytes when its size is within the limits */
	int quality;       /* 1..100, of JPEGs that are made */
	uint32_t max_side; /* pixels, 0: no limit */
	uint32_t short_side;
	double raw_fraction; /* of the samples that is stored raw: 0 .. 1 */
	bool raw_zstd;       /* raw is raw+zstd where that is smaller */
	int zstd_level;
	enum packimg_codec other; /* under verbatim, for sources that are not JPEGs */
	bool no_index;            /* beside each JPEG, into its scan */
	/* under verbatim, what can have no index as it is (struct unindexed) */
	bool transcode;
	uint64_t pixels_max; /* of an image; 0: any number */
	bool optimise;       /* Huffman tables of JPEGs that are made */
};

struct sample_encoder {
	struct sample_encoder_options options;
	struct image_reader reader;
	struct packimg_encoder *encoder;
	struct packimg_transcoder *transcoder;
	struct resize *resize;
	struct buffer pixels;
};

/* The result for one source: data_size bytes, then side_size bytes of side data. */
struct encoded_sample {
	size_t data_size, side_size;
	uint32_t width, height;
	enum packimg_codec codec;
	uint8_t channels;
	uint8_t orientation;
	bool verbatim, transcoded;
	enum image_kind kind;     /* of the source */
	enum unindexed unindexed; /* why a JPEG has no index, when one was wanted */
};

int sample_encoder_init(struct sample_encoder *sample_encoder,
			const struct sample_encoder_options *options);
void sample_encoder_deinit(struct sample_encoder *sample_encoder);
/*
 * Encodes the source file that bytes holds from offset to its end, and replaces it by the sample's
 * bytes: a verbatim image is not moved. IMAGE_PADDING bytes behind the buffer's size must be
 * allocated. name decides, by its hash, what --mix stores raw. statistics: where to add the pixels,
 * or NULL.
 */
int sample_encoder_encode(struct sample_encoder *sample_encoder, const char *name,
			  struct buffer *bytes, size_t offset, struct statistics *statistics,
			  struct encoded_sample *ret_encoded, struct packimg_error *error);
/*
 * Encodes a sample of a dataset, raw pixels as if they came from a PNG, and appends the result to
 * bytes.
 */
int sample_encoder_encode_stored(struct sample_encoder *sample_encoder,
				 const struct packimg_sample *sample, struct buffer *bytes,
				 struct encoded_sample *ret_encoded, struct packimg_error *error);
/* The image's size within the limits: never enlarged, at least 1 x 1. */
void sample_encoder_target_size(const struct sample_encoder_options *options, uint32_t width,
				uint32_t height, uint32_t *ret_width, uint32_t *ret_height);
