/*
 * Writes the datasets of tests. A failure ends the test through cmocka's assertions.
 *
 *	struct test_dataset data;
 *	test_dataset_begin(&data, path, 0);
 *	packimg_writer_add(data.writer, &item, NULL) ...
 *	test_dataset_finish(&data);
 */
#pragma once

#include "format/packimg.h"

struct test_dataset {
	struct packimg_writer *writer;
	struct packimg_encoder *encoder;
	struct packimg_decoder *decoder;
};

/* shard_size in bytes; 0 writes a single file. */
void test_dataset_begin(struct test_dataset *data, const char *path, uint64_t shard_size);
void test_dataset_add(struct test_dataset *data, const struct packimg_item *item);
/* Finishes the files and frees the writer and the encoder. */
void test_dataset_finish(struct test_dataset *data);

/* Returns an upright raw RGB image with label 0. The item refers to the caller's pixels. */
struct packimg_item test_item(const void *pixels, uint32_t width, uint32_t height);
/* Encodes a raw item's pixels. The bytes are valid until the next call. */
void test_item_to_jpeg(struct test_dataset *data, struct packimg_item *item, int quality);
/* Adds a scan index to an item that is a JPEG. */
void test_item_index(struct test_dataset *data, struct packimg_item *item);
