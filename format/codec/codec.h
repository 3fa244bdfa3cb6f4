/*
 * What a codec is to the decoder: it turns stored bytes into RGB pixels of a region, in stored
 * orientation. One state per decoder, hence per thread; its memory is scratch of the decoder's
 * budget. decode.c chooses the codec, maps regions through the orientation and turns the result
 * upright.
 */
#pragma once

#include "format/codec/scratch.h"
#include "format/packimg.h"

struct codec_request {
	const struct packimg_sample *sample;
	uint32_t width, height;       /* pixels of the stored image */
	struct packimg_region region; /* in stored coordinates, inside the image */
	uint32_t
		/* 1, 2, 4 or 8: the smallest scale that is still large enough is 1/denominator */
		denominator;
	bool by_rows; /* rows() will be called for all of them */
};

struct codec {
	/* The budget outlives the state. */
	int (*state_new)(struct scratch_budget *budget, void **ret_state);
	void (*state_free)(void *state); /* accepts NULL */
	/*
	 * As packimg_decode(), in stored coordinates. The error text says what is wrong with the
	 * data; the caller says where.
	 */
	int (*decode)(void *state, const struct codec_request *request,
		      struct packimg_pixels *ret_pixels, struct packimg_error *error);
	/* As packimg_decode_begin_planes(); NULL: this codec has no planes. */
	int (*planes)(void *state, const struct codec_request *request,
		      struct packimg_planes *ret_planes, struct packimg_error *error);
	/*
	 * As packimg_decode_rows(), after a decode by rows that made a ring. NULL: there is none
	 * such.
	 */
	int (*rows)(void *state, uint32_t end, uint32_t *ret_ready, struct packimg_error *error);
	/* As packimg_decode_ahead(), for requests of this codec alone. NULL: it gains nothing. */
	void (*ahead)(void *state, const struct codec_request *requests, uint32_t count);
};

extern const struct codec codec_jpeg;
extern const struct codec codec_raw;
extern const struct codec codec_raw_zstd;

/*
 * packimg_index_jpeg() with the state of codec_jpeg. like: the content of another index to take the
 * columns from, NULL: none.
 */
int codec_jpeg_index(void *state, const uint8_t *data, size_t size, uint32_t width, uint32_t height,
		     uint32_t components, const uint8_t *like, size_t like_size,
		     const uint8_t **ret_index, size_t *ret_size);

/*
 * packimg_index_jpeg() with the columns of an index (content of its item) that there is already;
 * -EBADMSG when that does not fit.
 */
int decoder_index_like(struct packimg_decoder *decoder, const uint8_t *data, size_t size,
		       const struct packimg_jpeg_info *info, const uint8_t *like, size_t like_size,
		       const uint8_t **ret_side, size_t *ret_size);
