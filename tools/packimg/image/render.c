#include "tools/packimg/image/render.h"

#include "loaderd/augment/resize.h"
#include "tools/packimg/common/shuffle.h"
#include "tools/packimg/common/text.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

enum {
	RAW_SEED = 0x726177,      /* of the hash that --mix draws by */
	STATISTICS_ROWS = 64,     /* rows of an image that statistics look at, about */
	PIXELS_LARGE = 1 << 26,   /* of images that threads take turns at */
	FILE_LARGE = 32 << 20,    /* bytes of a file whose copies are not kept */
	STATISTICS_STEP_MAX = 16, /* but never fewer than one row in so many */
};

int renderer_init(struct renderer *renderer, const struct render_options *options)
{
	*renderer = (struct renderer){.options = *options};
	int r = image_reader_init(&renderer->reader);
	if (!r)
		r = packimg_encoder_new(&renderer->encoder);
	if (!r && options->transcode)
		r = packimg_transcoder_new(&renderer->transcoder);
	if (!r)
		r = resize_new(&renderer->resize);
	if (r)
		renderer_deinit(renderer);
	return r;
}

void renderer_deinit(struct renderer *renderer)
{
	image_reader_deinit(&renderer->reader);
	packimg_encoder_free(renderer->encoder);
	packimg_transcoder_free(renderer->transcoder);
	resize_free(renderer->resize);
	buffer_deinit(&renderer->pixels);
	*renderer = (struct renderer){0};
}

void render_target_size(const struct render_options *options, uint32_t width, uint32_t height,
			uint32_t *ret_width, uint32_t *ret_height)
{
	uint32_t shorter = width < height ? width : height,
		 longer = width < height ? height : width;
	double scale = 1;

	if (options->short_side && shorter > options->short_side)
		scale = (double)options->short_side / shorter;
	if (options->max_side && longer > options->max_side &&
	    (double)options->max_side / longer < scale)
		scale = (double)options->max_side / longer;
	double to_width = round(width * scale);
	double to_height = round(height * scale);
	*ret_width = to_width < 1 ? 1 : (uint32_t)to_width;
	*ret_height = to_height < 1 ? 1 : (uint32_t)to_height;
}

/* Appends what decoders may look beyond. */
static int append_padded(struct buffer *bytes, const void *data, size_t size,
			 struct packimg_error *error)
{
	if (buffer_append(bytes, data, size) ||
	    buffer_make_room(bytes, bytes->size + IMAGE_PADDING))
		return packimg_fail(error, -ENOMEM, "out of memory");
	return 0;
}

static enum packimg_codec choose_codec(const struct render_options *options, const char *name,
				       const struct image_info *info)
{
	enum packimg_codec raw = options->raw_zstd ? PACKIMG_CODEC_RAW_ZSTD : PACKIMG_CODEC_RAW;

	if (options->raw_fraction >= 1 ||
	    (options->raw_fraction > 0 &&
	     shuffle_fraction(name, strlen(name), RAW_SEED) < options->raw_fraction))
		return raw;
	return options->verbatim && info->kind != IMAGE_JPEG ? options->other : PACKIMG_CODEC_JPEG;
}

static void add_statistics(struct statistics *statistics, const struct resize_picture *pixels)
{
	uint32_t step = pixels->height / STATISTICS_ROWS;

	if (!statistics)
		return;
	statistics_add_pixels(statistics, pixels,
			      step < 1                     ? 1
			      : step > STATISTICS_STEP_MAX ? STATISTICS_STEP_MAX
							   : step);
}

/*
 * Puts the index of the JPEG that is bytes from offset to the end behind it; without one it is
 * checked, too.
 */
static int add_index(struct renderer *renderer, struct buffer *bytes, size_t offset,
		     const struct image_info *info, struct rendered *rendered,
		     struct packimg_error *error)
{
	struct image_side side;

	rendered->data_size = bytes->size - offset;
	if (renderer->options.no_index)
		return image_check(&renderer->reader, bytes->data + offset, rendered->data_size,
				   info, error);
	int r = image_index(&renderer->reader, bytes->data + offset, rendered->data_size, info,
			    &side, &rendered->unindexed, error);
	if (r)
		return r;
	rendered->side_size = side.size;
	return side.size ? append_padded(bytes, side.data, side.size, error) : 0;
}

/*
 * Puts a baseline JPEG of the same coefficients in the place of one that can have no index; others
 * stay, too large ones among them.
 */
static int transcode(struct renderer *renderer, struct buffer *bytes, size_t offset,
		     struct image_info *info, bool *ret_transcoded, struct packimg_error *error)
{
	const uint8_t *data;
	size_t size;

	*ret_transcoded = false;
	if (!renderer->options.transcode || !unindexed_can_transcode(unindexed_reason(&info->jpeg)))
		return 0;
	int r = packimg_transcode_jpeg(renderer->transcoder, bytes->data + offset,
				       bytes->size - offset, &data, &size, error);
	if (r)
		return r == -ENOTSUP ? 0 : r;
	bytes->size = offset;
	r = append_padded(bytes, data, size, error);
	*ret_transcoded = true;
	return r ? r : image_probe(bytes->data + offset, size, info, error);
}

static int keep_verbatim(struct renderer *renderer, struct buffer *bytes, size_t offset,
			 struct image_info *info, struct statistics *statistics,
			 struct rendered *ret_rendered, struct packimg_error *error)
{
	struct rendered rendered = {
		.codec = PACKIMG_CODEC_JPEG,
		.channels = info->channels,
		.orientation = info->orientation,
		.kind = info->kind,
	};
	struct resize_picture pixels;

	image_upright_size(info, &rendered.width, &rendered.height);
	int r = transcode(renderer, bytes, offset, info, &rendered.transcoded, error);
	if (!r)
		r = add_index(renderer, bytes, offset, info, &rendered, error);
	if (r)
		return r;
	rendered.verbatim = !rendered.transcoded;
	if (statistics) {
		const uint8_t *data = bytes->data + offset;
		const struct image_side side = {data + rendered.data_size, rendered.side_size};

		/* What is skipped must not depend on which images statistics happen to look at. */
		if (!image_read(&renderer->reader, data, rendered.data_size, info,
				side.size ? &side : NULL, 0, 0, &pixels, error))
			add_statistics(statistics, &pixels);
	}
	*ret_rendered = rendered;
	return 0;
}

/* Brings pixels to exactly width x height; what is that already stays where it is. */
static int resize_pixels(struct renderer *renderer, struct resize_picture *pixels, uint32_t width,
			 uint32_t height, struct packimg_error *error)
{
	size_t stride = (size_t)width * pixels->channels;

	if (pixels->width == width && pixels->height == height)
		return 0;
	if (buffer_make_room(&renderer->pixels, height * stride))
		return packimg_fail(error, -ENOMEM, "out of memory");
	int r = resize_image(renderer->resize, pixels, width, height, renderer->pixels.data,
			     stride);
	if (r)
		return packimg_fail(error, r, "resizing to %ux%u: %s", width, height, strerror(-r));
	*pixels = (struct resize_picture){
		.data = renderer->pixels.data,
		.stride = stride,
		.width = width,
		.height = height,
		.channels = pixels->channels,
		.extent_width = width,
		.extent_height = height,
	};
	return 0;
}

/* Without row padding, in the renderer's memory if need be. */
static int pack_rows(struct renderer *renderer, struct resize_picture *pixels)
{
	size_t row = (size_t)pixels->width * pixels->channels;

	if (pixels->stride == row)
		return 0;
	if (buffer_make_room(&renderer->pixels, row * pixels->height))
		return -ENOMEM;
	for (uint32_t y = 0; y < pixels->height; y++)
		memcpy(renderer->pixels.data + y * row, pixels->data + y * pixels->stride, row);
	pixels->data = renderer->pixels.data;
	pixels->stride = row;
	return 0;
}

/*
 * Encodes pixels; the bytes stay the encoder's or the pixels' own. codec may turn from raw+zstd to
 * raw.
 */
static int encode(struct renderer *renderer, struct resize_picture *pixels,
		  enum packimg_codec *codec, const uint8_t **ret_data, size_t *ret_size,
		  struct packimg_error *error)
{
	const struct render_options *options = &renderer->options;
	size_t bytes = (size_t)pixels->width * pixels->height * pixels->channels;
	int r;

	if (*codec == PACKIMG_CODEC_JPEG) {
		r = packimg_encode_jpeg(renderer->encoder, pixels->data, pixels->stride,
					pixels->width, pixels->height, pixels->channels,
					options->quality, options->optimise, ret_data, ret_size);
		return r ? packimg_fail(error, r, "JPEG encoder: %s", strerror(-r)) : 0;
	}
	if (bytes > UINT32_MAX || pack_rows(renderer, pixels))
		return packimg_fail(error, -ENOMEM, "%ux%u pixels are too large to be stored raw",
				    pixels->width, pixels->height);
	if (*codec == PACKIMG_CODEC_RAW_ZSTD) {
		r = packimg_encode_zstd(renderer->encoder, pixels->data, bytes, options->zstd_level,
					ret_data, ret_size);
		if (r)
			return packimg_fail(error, r, "zstd encoder: %s", strerror(-r));
		if (*ret_size < bytes)
			return 0;
		*codec = PACKIMG_CODEC_RAW;
	}
	*ret_data = pixels->data;
	*ret_size = bytes;
	return 0;
}

/* Brings pixels to the size and codec that rendered says, and leaves them encoded at offset. */
static int store_pixels(struct renderer *renderer, struct resize_picture *pixels,
			struct buffer *bytes, size_t offset, struct statistics *statistics,
			struct rendered *rendered, struct packimg_error *error)
{
	struct image_info made;
	const uint8_t *data;

	int r = resize_pixels(renderer, pixels, rendered->width, rendered->height, error);
	if (r)
		return r;
	add_statistics(statistics, pixels);
	r = encode(renderer, pixels, &rendered->codec, &data, &rendered->data_size, error);
	if (r)
		return r;
	bytes->size = offset;
	r = append_padded(bytes, data, rendered->data_size, error);
	if (r)
		return r;
	rendered->channels = (uint8_t)pixels->channels;
	rendered->orientation = 1;
	if (rendered->codec != PACKIMG_CODEC_JPEG)
		return 0;
	r = image_probe(bytes->data + offset, rendered->data_size, &made, error);
	return r ? r : add_index(renderer, bytes, offset, &made, rendered, error);
}

static int render_probed(struct renderer *renderer, const char *name, struct buffer *bytes,
			 size_t offset, struct image_info *info, struct statistics *statistics,
			 struct rendered *ret_rendered, struct packimg_error *error)
{
	const struct render_options *options = &renderer->options;
	uint32_t width, height;
	struct rendered rendered = {.codec = choose_codec(options, name, info), .kind = info->kind};
	struct resize_picture pixels;

	image_upright_size(info, &width, &height);
	render_target_size(options, width, height, &rendered.width, &rendered.height);
	bool shrink = width != rendered.width || height != rendered.height;
	if (rendered.codec == PACKIMG_CODEC_JPEG && options->verbatim && info->kind == IMAGE_JPEG &&
	    !shrink)
		return keep_verbatim(renderer, bytes, offset, info, statistics, ret_rendered,
				     error);
	int r = image_read(&renderer->reader, bytes->data + offset, bytes->size - offset, info,
			   NULL, shrink ? rendered.width : 0, shrink ? rendered.height : 0, &pixels,
			   error);
	if (!r)
		r = store_pixels(renderer, &pixels, bytes, offset, statistics, &rendered, error);
	if (!r)
		*ret_rendered = rendered;
	return r;
}

/* Gives back the memory that a very large image or file took, once the new state is there. */
static void renderer_shrink(struct renderer *renderer)
{
	struct renderer fresh;

	if (renderer_init(&fresh, &renderer->options))
		return;
	renderer_deinit(renderer);
	*renderer = fresh;
}

int renderer_render(struct renderer *renderer, const char *name, struct buffer *bytes,
		    size_t offset, struct statistics *statistics, struct rendered *ret_rendered,
		    struct packimg_error *error)
{
	static pthread_mutex_t large_turn = PTHREAD_MUTEX_INITIALIZER;
	struct image_info info;
	int r = image_probe(bytes->data + offset, bytes->size - offset, &info, error);

	if (r)
		return r;
	uint64_t pixels = (uint64_t)info.width * info.height;
	if (renderer->options.pixels_max && pixels > renderer->options.pixels_max)
		return packimg_fail(error, -EFBIG,
				    "%ux%u pixels are more than --max-pixels allows (%" PRIu64 ")",
				    info.width, info.height, renderer->options.pixels_max);
	bool large_file = bytes->size - offset > FILE_LARGE;
	if (pixels <= PIXELS_LARGE) {
		r = render_probed(renderer, name, bytes, offset, &info, statistics, ret_rendered,
				  error);
		/* the decoder copies a JPEG, and would keep that room for the next */
		if (large_file)
			renderer_shrink(renderer);
		return r;
	}
	/*
	 * A few bytes can be a very large image: as many threads as there are must not each hold
	 * one.
	 */
	pthread_mutex_lock(&large_turn);
	r = render_probed(renderer, name, bytes, offset, &info, statistics, ret_rendered, error);
	renderer_shrink(renderer);
	pthread_mutex_unlock(&large_turn);
	return r;
}

static int render_stored_jpeg(struct renderer *renderer, const struct packimg_sample *sample,
			      struct buffer *bytes, struct rendered *ret_rendered,
			      struct packimg_error *error)
{
	size_t offset = bytes->size;
	struct image_info info;

	int r = append_padded(bytes, sample->data, sample->data_size, error);
	if (r)
		return r;
	r = image_probe(bytes->data + offset, sample->data_size, &info, error);
	/* SPEC.md, "Orientation": in a dataset a JPEG's own does not count */
	info.orientation = sample->orientation;
	return r ? r : render_probed(renderer, "", bytes, offset, &info, NULL, ret_rendered, error);
}

int renderer_render_stored(struct renderer *renderer, const struct packimg_sample *sample,
			   struct buffer *bytes, struct rendered *ret_rendered,
			   struct packimg_error *error)
{
	const struct image_info info = {.kind = IMAGE_PNG}; /* pixels as from one */
	struct rendered rendered = {.codec = choose_codec(&renderer->options, "", &info),
				    .kind = info.kind};
	struct resize_picture pixels;

	if (sample->codec == PACKIMG_CODEC_JPEG)
		return render_stored_jpeg(renderer, sample, bytes, ret_rendered, error);
	int r = image_read_sample(&renderer->reader, sample, 0, 0, &pixels, error);
	render_target_size(&renderer->options, sample->width, sample->height, &rendered.width,
			   &rendered.height);
	if (!r)
		r = store_pixels(renderer, &pixels, bytes, bytes->size, NULL, &rendered, error);
	if (!r)
		*ret_rendered = rendered;
	return r;
}
