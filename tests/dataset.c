#include "tests/dataset.h"
#include "tests/test.h"

void test_dataset_begin(struct test_dataset *data, const char *path, uint64_t shard_size)
{
	const struct packimg_writer_options options = {.shard_size = shard_size};
	struct packimg_error error;

	assert_int_equal(packimg_encoder_new(&data->encoder), 0);
	assert_int_equal(packimg_decoder_new(&data->decoder), 0);
	if (packimg_writer_new(path, &options, &data->writer, &error) < 0)
		fail_msg("%s", error.text);
}

void test_dataset_add(struct test_dataset *data, const struct packimg_item *item)
{
	struct packimg_error error;

	if (packimg_writer_add(data->writer, item, &error) < 0)
		fail_msg("%s", error.text);
}

void test_dataset_finish(struct test_dataset *data)
{
	struct packimg_error error;

	if (packimg_writer_finish(data->writer, &error) < 0)
		fail_msg("%s", error.text);
	packimg_writer_free(data->writer);
	packimg_decoder_free(data->decoder);
	packimg_encoder_free(data->encoder);
}

struct packimg_item test_item(const void *pixels, uint32_t width, uint32_t height)
{
	return (struct packimg_item){
		.data = pixels,
		.data_size = (size_t)width * height * 3,
		.width = width,
		.height = height,
		.codec = PACKIMG_CODEC_RAW,
		.channels = 3,
		.orientation = 1,
	};
}

void test_item_to_jpeg(struct test_dataset *data, struct packimg_item *item, int quality)
{
	item->codec = PACKIMG_CODEC_JPEG;
	assert_int_equal(packimg_encode_jpeg(data->encoder, item->data,
					     (size_t)item->width * item->channels, item->width,
					     item->height, item->channels, quality, false,
					     &item->data, &item->data_size),
			 0);
}

void test_item_index(struct test_dataset *data, struct packimg_item *item)
{
	struct packimg_jpeg_info info;

	assert_int_equal(packimg_jpeg_probe(item->data, item->data_size, &info, NULL), 0);
	assert_int_equal(packimg_index_jpeg(data->decoder, item->data, item->data_size, &info,
					    &item->side, &item->side_size),
			 0);
}
