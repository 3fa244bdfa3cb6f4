/*
 * chroma=fast on real JPEGs, compared with planes from libjpeg that are resized one by one and
 * converted in double precision. Every instruction set must give the same bytes, with and without
 * an index. If there are no planes, the result must equal that of the exact mode.
 */
#include "format/augment/apply/geometry.h"
#include "format/augment/pipeline.h"
#include "format/base/system/cpu.h"
#include "tests/test.h"
#include "tests/unit/format/images.h"

#include <math.h>
#include <sys/wait.h>

#include <jpeglib.h>
#include <xxhash.h>

enum { SEEDS = 6, SIDE = 4096 };

/* A component as decoded by libjpeg, padded to whole MCUs. */
struct component {
	uint8_t *samples;
	uint32_t width, height; /* size without padding */
	size_t stride;
	double x_factor, y_factor;
};

static void read_components(const uint8_t *data, size_t size, struct component components[3])
{
	struct jpeg_decompress_struct cinfo;
	struct jpeg_error_mgr error;
	JSAMPROW rows[3][16];
	JSAMPARRAY planes[3] = {rows[0], rows[1], rows[2]};

	cinfo.err = jpeg_std_error(&error);
	jpeg_create_decompress(&cinfo);
	jpeg_mem_src(&cinfo, data, size);
	jpeg_read_header(&cinfo, TRUE);
	cinfo.raw_data_out = TRUE;
	cinfo.do_fancy_upsampling = FALSE;
	jpeg_start_decompress(&cinfo);
	for (int i = 0; i < 3; i++) {
		const jpeg_component_info *info = &cinfo.comp_info[i];

		components[i] = (struct component){
			.samples = malloc((size_t)info->width_in_blocks * 8 * 1024),
			.width = info->downsampled_width,
			.height = info->downsampled_height,
			.stride = (size_t)info->width_in_blocks * 8,
			.x_factor = (double)cinfo.max_h_samp_factor / info->h_samp_factor,
			.y_factor = (double)cinfo.max_v_samp_factor / info->v_samp_factor,
		};
		assert_non_null(components[i].samples);
	}
	for (uint32_t mcu = 0; cinfo.output_scanline < cinfo.output_height; mcu++) {
		for (int i = 0; i < 3; i++) {
			uint32_t high = 8 * (uint32_t)cinfo.comp_info[i].v_samp_factor;

			for (uint32_t j = 0; j < high; j++)
				rows[i][j] = components[i].samples +
					     (mcu * high + j) * components[i].stride;
		}
		jpeg_read_raw_data(&cinfo, planes, 8 * (JDIMENSION)cinfo.max_v_samp_factor);
	}
	jpeg_finish_decompress(&cinfo);
	jpeg_destroy_decompress(&cinfo);
}

/*
 * Computes the weights of the triangle filter for output pixel i on one axis of a component.
 * Returns the first sample with a weight.
 */
static int weigh(const struct geometry_axis *axis, uint32_t i, double factor, uint32_t size,
		 double weights[SIDE], int *ret_count)
{
	double step = (double)(axis->high - axis->low) / axis->grid;
	double grid = (double)axis->offset + (axis->reverse ? axis->count - 1 - i : i);
	double centre = (axis->low + (grid + 0.5) * step) / factor;
	double support = fmax(step / factor, 1), total = 0;
	int low = (int)floor(axis->low / factor), high = (int)ceil(axis->high / factor);

	high = high < (int)size ? high : (int)size;
	for (int k = low; k < high; k++) {
		double distance = fabs(k + 0.5 - centre) / support;

		weights[k - low] = distance < 1 ? 1 - distance : 0;
		total += weights[k - low];
	}
	for (int k = low; k < high; k++)
		weights[k - low] /= total;
	*ret_count = high - low;
	return low;
}

static double reference_sample(const struct component *component,
			       const struct geometry_stage *stage, uint32_t x, uint32_t y)
{
	static double wx[SIDE], wy[SIDE];
	int nx, ny, x0, y0;
	double sum = 0;

	x0 = weigh(&stage->x, x, component->x_factor, component->width, wx, &nx);
	y0 = weigh(&stage->y, y, component->y_factor, component->height, wy, &ny);
	for (int j = 0; j < ny; j++)
		for (int i = 0; wy[j] > 0 && i < nx; i++)
			sum += wx[i] * wy[j] *
			       component->samples[(size_t)(y0 + j) * component->stride +
						  (size_t)(x0 + i)];
	return sum;
}

static double clamp(double value)
{
	return fmin(fmax(value, 0), 255);
}

static struct pipeline *parse(const char *text)
{
	struct pipeline_error error;
	struct pipeline *pipeline;

	if (pipeline_parse(text, &pipeline, &error) < 0)
		fail_msg("%s: %s", text, error.text);
	return pipeline;
}

static struct packimg_sample sample_of(const uint8_t *data, size_t size, uint32_t width,
				       uint32_t height, const struct jpeg_kind *kind)
{
	return (struct packimg_sample){
		.data = data,
		.data_size = size,
		.width = width,
		.height = height,
		.codec = PACKIMG_CODEC_JPEG,
		.channels = (uint8_t)kind->components,
		.orientation = (uint8_t)(kind->orientation ? kind->orientation : 1)};
}

/* Returns the finished sample. The caller frees it. */
static uint8_t *apply(const char *text, const struct packimg_sample *sample, uint64_t seed,
		      size_t *ret_size)
{
	struct pipeline *pipeline = parse(text);
	struct pipeline_scratch *scratch;
	struct packimg_error error;
	size_t size = pipeline_sample_size_max(pipeline);
	uint8_t *output = malloc(size);

	assert_non_null(output);
	assert_int_equal(pipeline_scratch_new(&scratch), 0);
	if (pipeline_apply(pipeline, scratch, sample, seed, 0, output, NULL, &error) < 0)
		fail_msg("%s: %s", text, error.text);
	pipeline_scratch_free(scratch);
	pipeline_free(pipeline);
	*ret_size = size;
	return output;
}

static const struct jpeg_kind kinds[] = {
	{.components = 3, .h = 1, .v = 1}, {.components = 3, .h = 2, .v = 2},
	{.components = 3, .h = 2, .v = 1}, {.components = 3, .h = 1, .v = 2},
	{.components = 3, .h = 4, .v = 1}, {.components = 3, .h = 4, .v = 2},
};

static const char *const pipelines[] = {
	"random_resized_crop(48x41, chroma=fast) hflip vflip",
	"random_resized_crop(97, scale=0.08:0.3, chroma=fast) hflip",
	"random_resized_crop(70, scale=0.6:1, chroma=fast)",
	"resize(90, chroma=fast) center_crop(40) hflip",
	"resize(50x30, chroma=fast) channels(4)",
};

enum { KINDS = sizeof(kinds) / sizeof(*kinds), PIPELINES = sizeof(pipelines) / sizeof(*pipelines) };

static void compare(const struct component components[3], const struct geometry_stage *stage,
		    const struct pipeline_shape *shape, const uint8_t *output)
{
	for (uint32_t y = 0; y < shape->height; y++)
		for (uint32_t x = 0; x < shape->width; x++, output += shape->channels) {
			double luma = reference_sample(&components[0], stage, x, y);
			double blue = reference_sample(&components[1], stage, x, y) - 128;
			double red = reference_sample(&components[2], stage, x, y) - 128;
			const double rgb[3] = {luma + 1.402 * red,
					       luma - 0.344136 * blue - 0.714136 * red,
					       luma + 1.772 * blue};

			/* The final rounding contributes half a step, earlier ones the rest. */
			for (int c = 0; c < 3; c++)
				if (fabs(output[c] - clamp(rgb[c])) > 0.6)
					fail_msg("pixel %u,%u channel %d is %u, not %.2f", x, y, c,
						 output[c], clamp(rgb[c]));
			if (shape->channels == 4)
				assert_int_equal(output[3], 0);
		}
}

TEST(equals_reference)
{
	for (unsigned k = 0; k < KINDS; k++) {
		uint32_t width = 131 + 7 * k, height = 117 + 5 * k;
		struct component components[3];
		size_t size, output_size;
		uint8_t *data = image_jpeg(width, height, &kinds[k], k, &size);
		struct packimg_sample sample = sample_of(data, size, width, height, &kinds[k]);

		read_components(data, size, components);
		for (unsigned p = 0; p < PIPELINES; p++) {
			struct pipeline *pipeline = parse(pipelines[p]);
			struct pipeline_shape shape;
			struct geometry geometry;

			pipeline_shape(pipeline, 0, &shape);
			for (uint64_t seed = 0; seed < SEEDS; seed++) {
				uint8_t *output = apply(pipelines[p], &sample, seed, &output_size);

				assert_int_equal(geometry_make(pipeline, width, height, seed, 0, 0,
							       NULL, &geometry, NULL),
						 0);
				assert_int_equal(geometry.stage_count, 1);
				compare(components, &geometry.stages[0], &shape, output);
				free(output);
			}
			pipeline_free(pipeline);
		}
		for (int i = 0; i < 3; i++)
			free(components[i].samples);
		free(data);
	}
}

static uint64_t mix(uint64_t hash, const uint8_t *data, size_t size)
{
	for (size_t i = 0; i < size; i++)
		hash = (hash ^ data[i]) * 0x100000001b3;
	return hash;
}

/* Hashes samples of all kinds and with all pipelines, including scaled decodes. */
static uint64_t hash_all(void)
{
	uint64_t hash = 0xcbf29ce484222325;

	for (unsigned k = 0; k < KINDS; k++) {
		uint32_t width = 203 + 7 * k, height = 190 + 3 * k;
		size_t size, output_size;
		uint8_t *data = image_jpeg(width, height, &kinds[k], k, &size), *output;
		struct packimg_sample sample = sample_of(data, size, width, height, &kinds[k]);

		for (unsigned p = 0; p <= PIPELINES; p++)
			for (uint64_t seed = 0; seed < SEEDS; seed++) {
				output = apply(p < PIPELINES
						       ? pipelines[p]
						       : "resize(9, chroma=fast) center_crop(9)",
					       &sample, seed, &output_size);
				hash = mix(hash, output, output_size);
				free(output);
			}
		free(data);
	}
	return hash;
}

/* Computes the hash in a child process, which has not yet selected an instruction set. */
static uint64_t hash_with(const char *isa)
{
	uint64_t hash = 0;
	int pipes[2], status;

	assert_int_equal(pipe(pipes), 0);
	pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0) {
		setenv("LOADERD_ISA", isa, 1);
		hash = hash_all();
		_exit(write(pipes[1], &hash, sizeof(hash)) == sizeof(hash) ? 0 : 1);
	}
	close(pipes[1]);
	assert_int_equal(read(pipes[0], &hash, sizeof(hash)), sizeof(hash));
	close(pipes[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	return hash;
}

TEST(same_with_every_isa)
{
	uint64_t reference = hash_with("c");

	for (int isa = 1; isa <= (int)cpu_isa_supported(); isa++)
		assert_true(hash_with(cpu_isa_name((enum cpu_isa)isa)) == reference);
}

TEST(same_with_index)
{
	struct packimg_decoder *decoder;

	assert_int_equal(packimg_decoder_new(&decoder), 0);
	for (unsigned k = 0; k < KINDS; k++) {
		uint32_t width = 301, height = 277;
		struct packimg_jpeg_info info;
		const uint8_t *side;
		size_t size, side_size, plain_size, indexed_size;
		uint8_t *data = image_jpeg(width, height, &kinds[k], k, &size);
		struct packimg_sample plain = sample_of(data, size, width, height, &kinds[k]),
				      indexed = plain;

		assert_int_equal(packimg_jpeg_probe(data, size, &info, NULL), 0);
		assert_int_equal(packimg_index_jpeg(decoder, data, size, &info, &side, &side_size),
				 0);
		indexed.side = side;
		indexed.side_size = side_size;
		indexed.side_xxh3 = XXH3_64bits(side, side_size);
		for (unsigned p = 0; p < PIPELINES; p++)
			for (uint64_t seed = 0; seed < SEEDS; seed++) {
				uint8_t *a = apply(pipelines[p], &plain, seed, &plain_size);
				uint8_t *b = apply(pipelines[p], &indexed, seed, &indexed_size);

				assert_int_equal(plain_size, indexed_size);
				assert_memory_equal(a, b, plain_size);
				free(a);
				free(b);
			}
		free(data);
	}
	packimg_decoder_free(decoder);
}

/* Returns the mean difference between both modes; the largest one through a pointer. */
static double difference(const struct jpeg_kind *kind, const char *exact, const char *fast,
			 int *ret_max)
{
	uint32_t width = 260, height = 244;
	size_t size, output_size;
	uint8_t *data = image_jpeg(width, height, kind, 5, &size);
	bool turned = kind->orientation > 4;
	struct packimg_sample sample =
		sample_of(data, size, turned ? height : width, turned ? width : height, kind);
	uint8_t *a = apply(exact, &sample, 3, &output_size),
		*b = apply(fast, &sample, 3, &output_size);
	double sum = 0;

	*ret_max = 0;
	for (size_t i = 0; i < output_size; i++) {
		int d = abs(a[i] - b[i]);

		sum += d;
		*ret_max = d > *ret_max ? d : *ret_max;
	}
	free(a);
	free(b);
	free(data);
	return sum / (double)output_size;
}

static const char exact_crop[] = "random_resized_crop(112, scale=0.3:1) hflip";
static const char fast_crop[] = "random_resized_crop(112, scale=0.3:1, chroma=fast) hflip";

TEST(near_exact)
{
	/*
	 * With subsampled chroma, the modes differ: one clamps colours outside the RGB cube before
	 * averaging, the other after.
	 */
	static const struct {
		struct jpeg_kind kind;
		double mean;
		int max;
	} smooth[] = {
		{{.content = IMAGE_FLAT, .components = 3, .h = 2, .v = 2}, 1, 1},
		{{.content = IMAGE_GRADIENT, .components = 3, .h = 1, .v = 1}, 0.5, 12},
		{{.content = IMAGE_GRADIENT, .components = 3, .h = 2, .v = 1}, 1.5, 64},
	};
	int max;

	for (unsigned i = 0; i < sizeof(smooth) / sizeof(*smooth); i++) {
		double mean = difference(&smooth[i].kind, exact_crop, fast_crop, &max);

		if (mean > smooth[i].mean || max > smooth[i].max)
			fail_msg("smooth image %u: mean %.3f, greatest %d", i, mean, max);
	}
	/* Detects a test that compares the exact mode with itself. */
	double mean = difference(&kinds[1], exact_crop, fast_crop, &max);

	if (max == 0 || mean > 4)
		fail_msg("mixed image: mean %.3f, greatest %d", mean, max);
}

TEST(exact_without_planes)
{
	static const struct jpeg_kind without[] = {
		{.components = 1, .h = 1, .v = 1},
		{.components = 3, .h = 2, .v = 2, .progressive = true},
		{.components = 3, .h = 2, .v = 2, .orientation = 6},
		{.components = 3, .h = 1, .v = 1, .rgb = true},
		{.components = 4, .h = 1, .v = 1},
	};
	int max;

	for (unsigned i = 0; i < sizeof(without) / sizeof(*without); i++) {
		difference(&without[i], exact_crop, fast_crop, &max);
		assert_int_equal(max, 0);
	}
	difference(&kinds[1], "center_crop(100)", "resize(260x244, chroma=fast) center_crop(100)",
		   &max);
	assert_int_equal(max, 0);
}

/*
 * A fill byte late in the scan, which only libjpeg-turbo accepts. By then our decoder has returned
 * planes, which are replaced by pixels.
 */
TEST(exact_after_planes_end)
{
	size_t size, fast_size, exact_size, at;
	uint8_t *data = image_jpeg(260, 244, &kinds[1], 5, &size), *filled = malloc(size + 1);
	struct packimg_decoder *decoder;
	struct packimg_planes planes;
	struct packimg_region whole = {0, 0, 260, 244};
	struct packimg_error error;

	assert_non_null(filled);
	for (at = size - 3; data[at] != 0xff || data[at + 1] != 0; at--)
		assert_true(at > size / 2);
	memcpy(filled, data, at);
	filled[at] = 0xff;
	memcpy(filled + at + 1, data + at, size - at);

	struct packimg_sample sample = sample_of(filled, size + 1, 260, 244, &kinds[1]);

	assert_int_equal(packimg_decoder_new(&decoder), 0);
	assert_int_equal(
		packimg_decode_begin_planes(decoder, &sample, &whole, 260, 244, &planes, &error),
		0);
	assert_int_equal(packimg_decode_rows(decoder, 244, NULL, &error), -ENOTSUP);
	packimg_decoder_free(decoder);

	uint8_t *fast = apply("resize(90x80, chroma=fast)", &sample, 3, &fast_size);
	uint8_t *exact = apply("resize(90x80)", &sample, 3, &exact_size);

	assert_int_equal(fast_size, exact_size);
	assert_memory_equal(fast, exact, exact_size);
	free(fast);
	free(exact);
	free(filled);
	free(data);
}
