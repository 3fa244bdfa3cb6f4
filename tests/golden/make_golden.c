/*
 * Makes the golden files: `make_golden FOLDER` writes FOLDER/good and FOLDER/bad.
 *
 * Good files must open and have the contents that test_golden.c expects, in this version and every
 * later one. Two good files are not made here but were written by earlier versions, with the
 * samples of full.pimg: no_field_stats.pimg lacks field statistics and what came later,
 * no_members.pimg the sections `members` and `sizes`. A bad file is a good one with one field
 * changed and the checksums corrected. The first part of its name is the expected result: "open"
 * and "check" fail there with -EBADMSG, and "newer" fails when opened with -ENOTSUP.
 */
#include "format/base/schema.h"
#include "format/layout.h"
#include "format/packimg.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

static const char *root;
static struct packimg_error error;

static void must(int r)
{
	if (r < 0) {
		fprintf(stderr, "make_golden: %s (%d)\n", error.text, r);
		exit(1);
	}
}

static const char *path_of(const char *folder, const char *name)
{
	static char path[4096];

	snprintf(path, sizeof(path), "%s/%s/%s", root, folder, name);
	return path;
}

static void fill(uint8_t *pixels, size_t size, uint32_t seed)
{
	for (size_t i = 0; i < size; i++)
		pixels[i] = (uint8_t)(seed * 37 + i * 11 + i / 7 * 5);
}

/* One 2x2 image with a class: the file whose bytes SPEC.md lists. */
static void make_minimal(void)
{
	static const char *const classes[] = {"cat", "dog"};
	static const uint8_t pixels[12] = {255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255};
	struct packimg_writer *writer;
	struct packimg_item item = {
		.data = pixels,
		.data_size = sizeof(pixels),
		.width = 2,
		.height = 2,
		.label = 1,
		.codec = PACKIMG_CODEC_RAW,
		.channels = 3,
		.orientation = 1,
		.source = "dog/1.png",
		.source_size = 9,
	};

	must(packimg_writer_new(path_of("good", "minimal.pimg"), NULL, &writer, &error));
	must(packimg_writer_add(writer, &item, &error));
	must(packimg_writer_classes(writer, classes, 2, &error));
	must(packimg_writer_metadata(writer, "tool", "make_golden", &error));
	must(packimg_writer_finish(writer, &error));
	packimg_writer_free(writer);
}

/* Adds the field values that test_golden.c expects: sample i has field f unless i % 3 == f % 3. */
static void add_values(struct packimg_writer *writer, uint32_t i)
{
	static const char *const names[] = {"id", "score", "blob", "note"};
	char text[32];

	for (uint32_t f = 0; f < 4; f++) {
		uint32_t field;
		must(packimg_writer_field(writer, names[f], PACKIMG_FIELD_INT64 + f, &field,
					  &error));
		if (i % 3 == f % 3)
			continue;
		snprintf(text, sizeof(text), "{\"n\":%u}", i);
		struct packimg_value value = {.present = true,
					      .int64 = 1000 + i,
					      .float64 = i / 4.0,
					      .bytes = text,
					      .size = strlen(text)};
		must(packimg_writer_value(writer, field, &value, &error));
	}
}

/*
 * Six samples (raw, raw grey, zstd, an upright and a rotated JPEG, raw) and everything else that a
 * file can hold.
 */
static void make_full(const char *name, uint64_t shard_size)
{
	static const char *const classes[] = {"one", "zwei", "три"};
	static const double mean[3] = {120, 115.5, 100.25}, std[3] = {60, 59, 58};
	struct packimg_writer_options options = {.shard_size = shard_size};
	uint8_t pixels[16 * 8 * 3], side[16] = {1, 0, 0, 0x80, 5, 0, 0, 0, 1, 2, 3, 4, 5};
	struct packimg_writer *writer;
	struct packimg_encoder *encoder;
	char source[32];

	must(packimg_encoder_new(&encoder));
	must(packimg_writer_new(path_of("good", name), &options, &writer, &error));
	for (uint32_t i = 0; i < 6; i++) {
		bool grey = i == 1, turned = i == 4;
		struct packimg_item item = {
			.data = pixels,
			.data_size = grey ? 16 * 8 : sizeof(pixels),
			.side = i == 3 ? side : NULL,
			.side_size = i == 3 ? sizeof(side) : 0,
			.width = turned ? 8 : 16,
			.height = turned ? 16 : 8,
			.label = i == 5 ? PACKIMG_LABEL_NONE : (int32_t)(i % 3),
			.codec = PACKIMG_CODEC_RAW,
			.channels = grey ? 1 : 3,
			.orientation = turned ? 6 : 1,
			.source = source,
			.source_size =
				i == 2 ? 0 : (size_t)snprintf(source, sizeof(source), "%u.png", i),
		};
		fill(pixels, sizeof(pixels), i);
		if (i == 2 && shard_size == 0) {
			item.codec = PACKIMG_CODEC_RAW_ZSTD;
			must(packimg_encode_zstd(encoder, pixels, sizeof(pixels), 3, &item.data,
						 &item.data_size));
		} else if ((i == 3 || i == 4) && shard_size == 0) {
			item.codec = PACKIMG_CODEC_JPEG;
			must(packimg_encode_jpeg(encoder, pixels, 48, 16, 8, 3, 90, false,
						 &item.data, &item.data_size));
		}
		must(packimg_writer_add(writer, &item, &error));
		add_values(writer, i);
	}
	must(packimg_writer_classes(writer, classes, 3, &error));
	must(packimg_writer_metadata(writer, "tool", "make_golden", &error));
	must(packimg_writer_metadata(writer, "note", "two\nlines", &error));
	must(packimg_writer_statistics(writer, mean, std));
	must(packimg_writer_finish(writer, &error));
	packimg_writer_free(writer);
	packimg_encoder_free(encoder);
}

static void put_value(struct packimg_writer *writer, const char *name, enum packimg_field_type type,
		      const struct packimg_value *value)
{
	uint32_t field;

	must(packimg_writer_field(writer, name, type, &field, &error));
	must(packimg_writer_value(writer, field, value, &error));
}

/* Sample i has i boxes and 3 - i points. */
static void put_typed_values(struct packimg_writer *writer, uint32_t i)
{
	static const float coordinates[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11.5F};
	static const int32_t classes[3] = {2, -1, 0};
	static const char *const captions[] = {"nothing", "one", "два"};
	struct packimg_value value = {.present = true, .bytes = coordinates, .size = i * 16};

	put_value(writer, "boxes", PACKIMG_FIELD_BYTES, &value);
	value.size = (3 - i) * 8;
	put_value(writer, "points", PACKIMG_FIELD_BYTES, &value);
	value.bytes = classes;
	value.size = i * 4;
	put_value(writer, "class", PACKIMG_FIELD_BYTES, &value);
	value.bytes = coordinates;
	value.size = 8;
	put_value(writer, "target", PACKIMG_FIELD_BYTES, &value);
	value.float64 = i / 4.0;
	put_value(writer, "area", PACKIMG_FIELD_FLOAT64, &value);
	value.int64 = 253 + i;
	put_value(writer, "small", PACKIMG_FIELD_INT64, &value);
	if (i == 0)
		return;
	value.bytes = captions[i];
	value.size = strlen(captions[i]);
	put_value(writer, "caption", PACKIMG_FIELD_TEXT, &value);
}

/* Three samples with a schema. */
static void make_typed(void)
{
	static const char *const classes[] = {"one", "zwei", "три"};
	uint8_t pixels[16 * 8 * 3];
	struct packimg_writer *writer;
	struct packimg_item item = {
		.data = pixels,
		.height = 8,
		.label = 1,
		.codec = PACKIMG_CODEC_RAW,
		.channels = 3,
		.orientation = 1,
		.source = "2.png",
	};

	must(packimg_writer_new(path_of("good", "typed.pimg"), NULL, &writer, &error));
	must(packimg_writer_classes(writer, classes, 3, &error));
	must(packimg_writer_schema(writer,
				   "image: image u8[h,w,3]\n"
				   "boxes: boxes(image) f32[*,4] xyxy\n"
				   "points: keypoints(image) f32[*,2]\n"
				   "class: class(boxes) i32[*]\n"
				   "target: value f32[2]\n"
				   "area: value f32\n"
				   "small: value u8\n"
				   "caption: text sparse\n",
				   &error));
	for (uint32_t i = 0; i < 3; i++) {
		fill(pixels, sizeof(pixels), i);
		item.width = 14 + i;
		item.data_size = (size_t)item.width * 8 * 3;
		item.source_size = i == 2 ? 5 : 0;
		must(packimg_writer_add(writer, &item, &error));
		put_typed_values(writer, i);
	}
	must(packimg_writer_finish(writer, &error));
	packimg_writer_free(writer);
}

static void add_image(struct packimg_writer *writer, struct packimg_encoder *encoder,
		      uint32_t image, uint32_t width, uint32_t height, const uint16_t *elements)
{
	const struct packimg_raster_coding coding = {.method = PACKIMG_RASTER_RUNS, .rows_log2 = 2};
	struct packimg_raster raster = {
		.data = (const uint8_t *)elements,
		.step_x = 2,
		.step_y = (ptrdiff_t)width * 2,
		.width = width,
		.height = height,
		.channels = 1,
		.element = PACKIMG_ELEMENT_U16,
	};
	struct packimg_item item = {
		.data = (const uint8_t *)elements,
		.data_size = (size_t)width * height,
		.width = width,
		.height = height,
		.codec = image == 0 ? PACKIMG_CODEC_RAW : PACKIMG_CODEC_RASTER,
		.channels = 1,
		.orientation = 1,
	};

	if (image == 1)
		must(packimg_encode_raster(encoder, &raster, &coding, &item.data, &item.data_size,
					   &error));
	must(packimg_writer_image(writer, image, &item, &error));
}

/* Three samples with a mask; the first two have depth, too. */
static void make_images(void)
{
	static const uint32_t sizes[3][2] = {{14, 8}, {15, 8}, {8, 16}};
	uint16_t elements[16 * 8];
	uint8_t pixels[16 * 8 * 3];
	struct packimg_encoder *encoder;
	struct packimg_writer *writer;

	must(packimg_encoder_new(&encoder));
	must(packimg_writer_new(path_of("good", "images.pimg"), NULL, &writer, &error));
	must(packimg_writer_schema(writer,
				   "image: image u8[h,w,3]\n"
				   "mask: mask(image) u8[h,w]\n"
				   "depth: raster u16[h,w] sparse\n",
				   &error));
	for (uint32_t i = 0; i < 3; i++) {
		uint32_t width = sizes[i][0], height = sizes[i][1];
		struct packimg_item item = {
			.data = pixels,
			.data_size = (size_t)width * height * 3,
			.width = width,
			.height = height,
			.label = -1,
			.codec = PACKIMG_CODEC_RAW,
			.channels = 3,
			.orientation = 1,
		};
		fill(pixels, sizeof(pixels), i);
		for (uint32_t k = 0; k < 16 * 8; k++)
			elements[k] = (uint16_t)(k / 20 + i * 300);
		must(packimg_writer_add(writer, &item, &error));
		add_image(writer, encoder, 0, width, height, elements);
		if (i < 2)
			add_image(writer, encoder, 1, 9, 5, elements);
	}
	must(packimg_writer_finish(writer, &error));
	packimg_writer_free(writer);
	packimg_encoder_free(encoder);
}

/* One sample, whose main image is a raster, and a number. */
static void make_raster(void)
{
	static const uint16_t elements[5 * 3] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 300, 300, 300};
	const struct packimg_raster_coding coding = {.method = PACKIMG_RASTER_RAW, .rows_log2 = 1};
	struct packimg_raster raster = {
		.data = (const uint8_t *)elements,
		.step_x = 2,
		.step_y = 10,
		.width = 5,
		.height = 3,
		.channels = 1,
		.element = PACKIMG_ELEMENT_U16,
	};
	struct packimg_item item = {
		.width = 5,
		.height = 3,
		.label = 2,
		.codec = PACKIMG_CODEC_RASTER,
		.channels = 1,
		.orientation = 1,
	};
	struct packimg_value metres = {.present = true, .float64 = 1.5};
	struct packimg_encoder *encoder;
	struct packimg_writer *writer;

	must(packimg_encoder_new(&encoder));
	must(packimg_writer_new(path_of("good", "raster.pimg"), NULL, &writer, &error));
	must(packimg_writer_schema(writer, "image: image u16[h,w]\nmetres: value f32\n", &error));
	must(packimg_encode_raster(encoder, &raster, &coding, &item.data, &item.data_size, &error));
	must(packimg_writer_add(writer, &item, &error));
	put_value(writer, "metres", PACKIMG_FIELD_FLOAT64, &metres);
	must(packimg_writer_finish(writer, &error));
	packimg_writer_free(writer);
	packimg_encoder_free(encoder);
}

/* A file in memory that can be changed. */
struct file {
	uint8_t *data;
	size_t size;
	struct pimg_header *header;
};

static struct file file_read(const char *path)
{
	struct stat status;
	struct file file;
	FILE *stream = fopen(path, "rb");

	if (!stream || fstat(fileno(stream), &status) < 0) {
		perror(path);
		exit(1);
	}
	file.size = (size_t)status.st_size;
	file.data = calloc(1, file.size + 4096);
	if (fread(file.data, 1, file.size, stream) != file.size)
		exit(1);
	fclose(stream);
	file.header = (struct pimg_header *)file.data;
	return file;
}

static void file_write(const struct file *file, const char *path)
{
	FILE *stream = fopen(path, "wb");

	if (!stream || fwrite(file->data, 1, file->size, stream) != file->size ||
	    fclose(stream) != 0) {
		perror(path);
		exit(1);
	}
}

static struct pimg_section *section_of(struct file *file, uint32_t type)
{
	for (uint32_t i = 0; i < PIMG_SECTIONS_MAX; i++)
		if (file->header->sections[i].type == type)
			return &file->header->sections[i];
	abort();
}

static void *content_of(struct file *file, uint32_t type)
{
	return file->data + section_of(file, type)->offset;
}

static void repair_checksums(struct file *file)
{
	for (uint32_t i = 0; i < PIMG_SECTIONS_MAX; i++) {
		struct pimg_section *section = &file->header->sections[i];
		if (section->type && section->offset <= file->size &&
		    section->size <= file->size - section->offset)
			section->xxh3 = XXH3_64bits(file->data + section->offset, section->size);
	}
	file->header->header_xxh3 =
		XXH3_64bits(file->header, offsetof(struct pimg_header, header_xxh3));
}

/* Samples 3 and 5 share data and side data; sample 0 shares only the data. */
static void make_shared(void)
{
	struct file file = file_read(path_of("good", "full.pimg"));
	struct pimg_record *records = content_of(&file, PIMG_SECTION_INDEX);

	int32_t label = records[5].label;
	records[5] = records[0] = records[3];
	records[5].label = label;
	records[0].side_offset = records[0].side_xxh3 = records[0].side_size = 0;
	repair_checksums(&file);
	file_write(&file, path_of("good", "shared.pimg"));
	free(file.data);
}

/* Adds what a later version may add compatibly: a flag, a section, bytes after the end. */
static void make_extended(void)
{
	struct file file = file_read(path_of("good", "full.pimg"));
	struct pimg_section *section = &file.header->sections[file.header->section_count++];

	file.header->compatible = (uint64_t)1 << 63;
	file.size = (file.size + 63) & ~(size_t)63;
	*section = (struct pimg_section){.type = 1000, .offset = file.size, .size = 5};
	memcpy(file.data + file.size, "later", 5);
	file.size += 64;
	file.header->file_size = file.size;
	memcpy(file.data + file.size, "an append that did not finish", 29);
	file.size += 29;
	repair_checksums(&file);
	file_write(&file, path_of("good", "extended.pimg"));
	free(file.data);
}

/* typed.pimg with a schema of a later version, which a reader ignores. */
static void make_later_schema(void)
{
	struct file file = file_read(path_of("good", "typed.pimg"));
	struct schema_head *schema = content_of(&file, PIMG_SECTION_SCHEMA);

	schema->version = 2;
	schema->reserved = 7;
	repair_checksums(&file);
	file_write(&file, path_of("good", "later_schema.pimg"));
	free(file.data);
}

#define IMAGE_RECORD(sample, image)                                                                \
	((struct pimg_record *)content_of(f, PIMG_SECTION_IMAGES))[(sample)*2 + (image)]
#define RECORD(n)     ((struct pimg_record *)content_of(f, PIMG_SECTION_INDEX))[n]
#define FIELD(n)      ((struct pimg_field *)content_of(f, PIMG_SECTION_FIELDS))[n]
#define COLUMN(n)     ((struct pimg_column *)content_of(f, PIMG_SECTION_COLUMNS))[n]
#define SCHEMA        (*(struct schema_head *)content_of(f, PIMG_SECTION_SCHEMA))
#define TYPED(n)      ((struct schema_record *)(&SCHEMA + 1))[n]
#define STATS(n)      ((struct pimg_field_stats *)content_of(f, PIMG_SECTION_FIELD_STATS))[n]
#define START(n)      ((uint64_t *)content_of(f, PIMG_SECTION_MEMBERS))[n]
#define MEMBER(n)     ((uint32_t *)&START(4))[n] /* of three classes */
#define SIZE(n)       ((struct pimg_size *)content_of(f, PIMG_SECTION_SIZES))[n]
#define HEADER        (*f->header)
#define SECTION(type) (*section_of(f, PIMG_SECTION_##type))
#define BAD(name, change)                                                                          \
	static void change_##name(struct file *f)                                                  \
	{                                                                                          \
		change;                                                                            \
	}

BAD(open_magic, HEADER.magic[0] = 'P')
BAD(open_version_zero, HEADER.version = 0)
BAD(newer_version, HEADER.version = 2)
BAD(newer_feature, HEADER.incompatible = 4)
BAD(open_header_size, HEADER.header_size = 2048)
BAD(open_reserved_0, HEADER.reserved_0 = 1)
BAD(open_reserved_1, HEADER.reserved_1[79] = 0x80)
BAD(open_reserved_2, HEADER.reserved_2[0] = 1)
BAD(open_file_size, HEADER.file_size += 4096)
BAD(open_file_size_tiny, HEADER.file_size = 1000)
BAD(open_sample_count, HEADER.sample_count += 1)
BAD(open_sample_count_huge, HEADER.sample_count = HEADER.set_sample_count = (uint64_t)1 << 58)
BAD(open_sample_first, HEADER.sample_first = UINT64_MAX)
BAD(open_set_count, HEADER.set_sample_count = 7)
BAD(open_shard_count, HEADER.shard_count = 0)
BAD(open_shard_index, HEADER.shard_index = 1)
BAD(open_class_count, HEADER.class_count = UINT32_MAX)
BAD(open_class_none, HEADER.class_count = 0)
BAD(open_field_count, HEADER.field_count = 257)
BAD(open_content, HEADER.content |= 2)
BAD(open_mean, HEADER.mean[0] = __builtin_nan(""))
BAD(open_mean_undeclared, HEADER.content = 0)
BAD(open_section_count, HEADER.section_count = 24)
BAD(open_section_hidden, HEADER.section_count -= 1)
BAD(open_section_type, SECTION(SOURCES).type = 0)
BAD(open_section_flags, SECTION(SOURCES).flags = 1)
BAD(open_section_twice, SECTION(SOURCES).type = PIMG_SECTION_INDEX)
BAD(open_section_align, SECTION(SOURCES).offset += 8)
BAD(open_section_header, SECTION(SOURCES).offset = 512)
BAD(open_section_offset, SECTION(SOURCES).offset = (uint64_t)1 << 62)
BAD(open_section_size, SECTION(SOURCES).size = UINT64_MAX)
BAD(open_sources_short, SECTION(SOURCES).size = 55)
BAD(open_index_none, SECTION(INDEX).type = 999)
BAD(open_index_size, SECTION(INDEX).size -= 64)
BAD(open_classes_short, SECTION(CLASSES).size = 31)
BAD(open_columns_size, SECTION(COLUMNS).size += 32)
BAD(open_metadata_end, SECTION(METADATA).size -= 1)
BAD(open_field_type, ((struct pimg_field *)content_of(f, PIMG_SECTION_FIELDS))->type = 5)
BAD(open_field_name,
    ((struct pimg_field *)content_of(f, PIMG_SECTION_FIELDS))->name_offset = UINT64_MAX)
BAD(open_field_name_size, ((struct pimg_field *)content_of(f, PIMG_SECTION_FIELDS))->name_size = 0)
BAD(open_field_reserved, ((struct pimg_field *)content_of(f, PIMG_SECTION_FIELDS))->reserved_1 = 1)
BAD(open_field_twice, ((struct pimg_field *)content_of(f, PIMG_SECTION_FIELDS))[1] =
			      ((struct pimg_field *)content_of(f, PIMG_SECTION_FIELDS))[0])
BAD(open_truncated, f->size -= 1)
BAD(open_truncated_header, f->size = 1023)
BAD(open_empty, f->size = 0)
BAD(check_data_offset, RECORD(2).data_offset = UINT64_MAX - 63)
BAD(check_data_align, RECORD(2).data_offset += 1)
BAD(check_data_header, RECORD(2).data_offset = 0)
BAD(check_data_size, RECORD(2).data_size = UINT32_MAX)
BAD(check_data_tail, RECORD(3).data_offset = (f->size - RECORD(3).data_size) & ~(uint64_t)63)
BAD(check_data_empty, RECORD(3).data_size = 0)
BAD(check_side_offset, RECORD(3).side_offset = UINT64_MAX - 63)
BAD(check_side_none, RECORD(0).side_offset = 1024)
BAD(check_side_checksum_none, RECORD(0).side_xxh3 = 1)
BAD(check_width, RECORD(0).width = 65536)
BAD(check_height, RECORD(3).height = 0)
BAD(check_raw_size, RECORD(0).width = 17)
BAD(check_label_high, RECORD(0).label = 3)
BAD(check_label_low, RECORD(0).label = -2)
BAD(check_codec, RECORD(0).codec = 4)
BAD(check_codec_zero, RECORD(0).codec = 0)
BAD(check_channels, RECORD(3).channels = 2)
BAD(check_channels_raw, RECORD(2).channels = 4)
BAD(check_orientation, RECORD(0).orientation = 9)
BAD(check_orientation_zero, RECORD(0).orientation = 0)
BAD(check_record_reserved_0, RECORD(5).reserved_0 = 1)
BAD(check_record_reserved_1, RECORD(5).reserved_1 = (uint64_t)1 << 40)
BAD(check_source_offset, ((uint64_t *)content_of(f, PIMG_SECTION_SOURCES))[3] = UINT64_MAX)
BAD(check_source_gap, ((uint64_t *)content_of(f, PIMG_SECTION_SOURCES))[0] = 1)
BAD(open_class_offset, ((uint64_t *)content_of(f, PIMG_SECTION_CLASSES))[1] = 1 << 20)
BAD(open_class_gap, ((uint64_t *)content_of(f, PIMG_SECTION_CLASSES))[0] = 1)
BAD(open_class_tail, {
	uint64_t *offsets = content_of(f, PIMG_SECTION_CLASSES);
	offsets[3] -= 2;
	((char *)(offsets + 4))[offsets[3] - 1] = '\0';
})
BAD(open_class_end, ((char *)content_of(f, PIMG_SECTION_CLASSES))[32 + 3] = 'x')
BAD(open_class_utf8, ((char *)content_of(f, PIMG_SECTION_CLASSES))[32] = '\x80')
BAD(check_column_offset, COLUMN(1).offset = UINT64_MAX - 63)
BAD(check_column_absent, COLUMN(1).offset = 0)
BAD(check_column_size, COLUMN(1).size += 8)
BAD(check_column_reserved, COLUMN(1).reserved_0 = 1)
BAD(check_column_checksum, COLUMN(1).xxh3 ^= 1)
BAD(check_column_bits, {
	uint8_t *bytes = f->data + COLUMN(0).offset;
	bytes[7] = 0x80;
	COLUMN(0).xxh3 = XXH3_64bits(bytes, COLUMN(0).size);
})
BAD(check_column_missing, {
	uint8_t *bytes = f->data + COLUMN(0).offset;
	bytes[0] ^= 2;
	COLUMN(0).xxh3 = XXH3_64bits(bytes, COLUMN(0).size);
})
BAD(check_column_values, {
	uint8_t *bytes = f->data + COLUMN(2).offset;
	((uint64_t *)bytes)[2] = UINT64_MAX;
	COLUMN(2).xxh3 = XXH3_64bits(bytes, COLUMN(2).size);
})
BAD(open_field_stats_size, SECTION(FIELD_STATS).size -= 16)
BAD(open_field_stats_number, STATS(0).longest = 8)
BAD(open_field_stats_text_json, STATS(3).kind = PIMG_VALUE_TEXT)
BAD(open_field_stats_reserved, STATS(4).reserved_0 = 1)
BAD(open_field_stats_source, STATS(4).longest = 65536)
BAD(check_field_stats_short, STATS(2).longest -= 1)
BAD(check_field_stats_long, STATS(2).longest += 1)
BAD(check_field_stats_source_short, STATS(4).longest -= 1)
BAD(check_field_stats_source_long, STATS(4).longest += 1)
BAD(check_field_stats_text, {
	uint8_t *bytes = f->data + COLUMN(2).offset;
	STATS(2).kind = PIMG_VALUE_TEXT;
	bytes[COLUMN(2).size - 1] = 0xff;
	COLUMN(2).xxh3 = XXH3_64bits(bytes, COLUMN(2).size);
})
BAD(open_section_overlap, SECTION(SOURCES).offset = SECTION(INDEX).offset)
BAD(open_field_name_overlap, FIELD(1).name_offset -= 1)
BAD(open_field_name_entry, FIELD(1).name_offset = 0; FIELD(1).name_size = 1)
BAD(check_side_inside, RECORD(3).side_offset = RECORD(3).data_offset + 64)
BAD(check_side_other_data, RECORD(3).side_offset = RECORD(0).data_offset)
BAD(check_side_section, RECORD(3).side_offset = SECTION(SOURCES).offset)
BAD(check_side_shared, {
	RECORD(0).side_offset = RECORD(3).side_offset;
	RECORD(0).side_size = RECORD(3).side_size;
	RECORD(0).side_xxh3 = RECORD(3).side_xxh3;
})
BAD(check_data_overlap, RECORD(1).data_offset = RECORD(0).data_offset + 64)
BAD(check_data_begin, RECORD(1).data_offset = RECORD(0).data_offset)
BAD(check_data_section, RECORD(1).data_offset = SECTION(INDEX).offset)
BAD(check_data_column, RECORD(1).data_offset = COLUMN(0).offset)
BAD(check_column_section, {
	COLUMN(0).offset = SECTION(INDEX).offset;
	COLUMN(0).xxh3 = XXH3_64bits(f->data + COLUMN(0).offset, COLUMN(0).size);
})
BAD(check_column_overlap, COLUMN(1) = COLUMN(0))
BAD(check_metadata_order, memcpy(content_of(f, PIMG_SECTION_METADATA), "zote", 4))
BAD(check_metadata_line, memcpy(content_of(f, PIMG_SECTION_METADATA), "no=\n", 4))
BAD(check_metadata_utf8, memcpy((char *)content_of(f, PIMG_SECTION_METADATA) + 5, "\xc0\x80", 2))
BAD(open_members_size, SECTION(MEMBERS).size -= 2)
BAD(open_members_many, SECTION(MEMBERS).size += 2 * sizeof(uint32_t))
BAD(open_members_short, SECTION(MEMBERS).size = 3 * sizeof(uint64_t))
BAD(check_members_first, START(0) = 1)
BAD(check_members_start, START(1) = 3)
BAD(check_members_start_high, START(1) = UINT64_MAX)
BAD(check_members_end, START(3) = 4)
BAD(check_members_order, {
	MEMBER(0) = 3;
	MEMBER(1) = 0;
})
BAD(check_members_twice, MEMBER(1) = 0)
BAD(check_members_label, MEMBER(0) = 1)
BAD(check_members_number, MEMBER(4) = 6)
BAD(check_members_missing, {
	SECTION(MEMBERS).size -= sizeof(uint32_t);
	START(3) -= 1;
})
BAD(check_members_unlabelled, {
	SECTION(MEMBERS).size += sizeof(uint32_t);
	START(3) += 1;
	MEMBER(5) = 5;
})
BAD(open_sizes_size, SECTION(SIZES).size -= sizeof(struct pimg_size))
BAD(check_sizes_width, SIZE(3).width += 1)
BAD(check_sizes_height, SIZE(4).height = 0)

/* Changes of typed.pimg. */
enum { IMAGE, BOXES, POINTS, CLASS, TARGET, AREA, SMALL, CAPTION, LABEL, NUMBER, KEY };

BAD(open_schema_size, SECTION(SCHEMA).size -= 1)
BAD(open_schema_short, SECTION(SCHEMA).size = 15)
BAD(open_schema_values, SCHEMA.values = 65)
BAD(open_schema_reserved, TYPED(AREA).reserved[15] = 1)
BAD(open_schema_role, TYPED(AREA).role = 14)
BAD(open_schema_element, TYPED(BOXES).element = SCHEMA_F64)
BAD(open_schema_shape, TYPED(BOXES).shape[1] = 0)
BAD(open_schema_size_overflow, {
	TYPED(TARGET).dims = 2;
	TYPED(TARGET).shape[0] = TYPED(TARGET).shape[1] = 1 << 30;
})
BAD(open_schema_of_itself, TYPED(CLASS).of = CLASS)
BAD(open_schema_of_later, TYPED(BOXES).of = LABEL)
BAD(open_schema_image_none, TYPED(IMAGE).store = SCHEMA_IN_COLUMN)
BAD(open_schema_images_none, TYPED(IMAGE).store = SCHEMA_IN_IMAGES)
BAD(open_schema_field, TYPED(SMALL).number = 7)
BAD(open_schema_field_name, {
	TYPED(BOXES).number = 1;
	TYPED(POINTS).number = 0;
})
BAD(open_schema_field_type, TYPED(AREA).element = SCHEMA_I32)
BAD(open_schema_longest, TYPED(BOXES).longest -= 1)
BAD(open_schema_longest_text, TYPED(CAPTION).longest += 1)
BAD(open_schema_longest_key, TYPED(KEY).longest += 1)
BAD(open_schema_name_nul, ((char *)&TYPED(KEY + 1))[1] = 0)
BAD(open_schema_name_twice, memcpy(&TYPED(KEY + 1), "boxes", 5))
BAD(open_schema_name_order, TYPED(BOXES).name_offset = 0)
BAD(check_schema_width_short, TYPED(IMAGE).width -= 1)
BAD(check_schema_width_long, TYPED(IMAGE).width += 1)
BAD(check_schema_height, TYPED(IMAGE).shape[0] = 9)
BAD(check_typed_rows, TYPED(CLASS).of = POINTS)
BAD(check_typed_missing, TYPED(CAPTION).flags = 0)
BAD(check_typed_shape, TYPED(TARGET).shape[0] = 3)
BAD(check_typed_number, {
	uint8_t *bytes = f->data + COLUMN(5).offset;
	bytes[8 + 2 * 8 + 1] = 1;
	COLUMN(5).xxh3 = XXH3_64bits(bytes, COLUMN(5).size);
})
BAD(check_typed_float, {
	uint8_t *bytes = f->data + COLUMN(4).offset;
	bytes[8 + 2 * 8 + 7] = 0x7e;
	COLUMN(4).xxh3 = XXH3_64bits(bytes, COLUMN(4).size);
})
BAD(check_typed_class, {
	uint8_t *bytes = f->data + COLUMN(2).offset;
	bytes[8 + 4 * 8] = 3;
	COLUMN(2).xxh3 = XXH3_64bits(bytes, COLUMN(2).size);
})

BAD(check_images_unused, HEADER.incompatible = PIMG_INCOMPATIBLE_IMAGES)

/* Changes of images.pimg. */
BAD(newer_images_schema, SCHEMA.version = 2)
BAD(open_images_feature, HEADER.incompatible = 0)
BAD(open_images_missing, SECTION(IMAGES).type = 1001)
BAD(open_images_size, SECTION(IMAGES).size -= 64)
BAD(open_images_no_schema, SECTION(SCHEMA).type = 1001)
BAD(open_members_no_classes, SECTION(SIZES).type = PIMG_SECTION_MEMBERS)
BAD(check_image_label, IMAGE_RECORD(0, 0).label = -1)
BAD(check_image_missing, memset(&IMAGE_RECORD(1, 0), 0, sizeof(struct pimg_record)))
BAD(check_image_half_missing, IMAGE_RECORD(2, 1).orientation = 1)
BAD(check_image_frame, {
	IMAGE_RECORD(0, 0).width = 8;
	IMAGE_RECORD(0, 0).height = 14;
})
BAD(check_image_jpeg, IMAGE_RECORD(0, 0).codec = PACKIMG_CODEC_JPEG)
BAD(check_image_raw, IMAGE_RECORD(1, 1).codec = PACKIMG_CODEC_RAW_ZSTD)
BAD(check_image_channels, IMAGE_RECORD(0, 0).channels = 3)
BAD(check_image_raster_channels, IMAGE_RECORD(0, 1).channels = 33)
BAD(check_image_reserved, IMAGE_RECORD(0, 1).reserved_1 = 1)
BAD(check_image_data_size, IMAGE_RECORD(0, 0).data_size -= 1)
BAD(check_image_data_offset, IMAGE_RECORD(0, 0).data_offset = UINT64_MAX - 63)
BAD(check_image_tail,
    IMAGE_RECORD(0, 1).data_offset = (f->size - IMAGE_RECORD(0, 1).data_size) & ~(uint64_t)63)
BAD(check_image_overlap, IMAGE_RECORD(0, 0).data_offset = RECORD(0).data_offset)
BAD(check_image_overlap_image, IMAGE_RECORD(0, 0).data_offset = IMAGE_RECORD(0, 1).data_offset)
BAD(check_image_section, IMAGE_RECORD(0, 1).data_offset = SECTION(IMAGES).offset)
BAD(check_image_width_long, TYPED(1).width += 1)
BAD(check_image_width_short, TYPED(2).width -= 1)
BAD(check_image_raster_main, RECORD(0).codec = PACKIMG_CODEC_RASTER)

/* Changes of raster.pimg. */
BAD(newer_raster_schema, SCHEMA.version = 2)
BAD(open_schema_no_stats, SECTION(FIELD_STATS).type = 1001)

struct bad {
	const char *name;
	void (*change)(struct file *file);
};

#define ENTRY(name)                                                                                \
	{                                                                                          \
#name, change_##name                                                               \
	}

static const struct bad bads[] = {
	ENTRY(open_magic),
	ENTRY(open_version_zero),
	ENTRY(newer_version),
	ENTRY(newer_feature),
	ENTRY(open_header_size),
	ENTRY(open_reserved_0),
	ENTRY(open_reserved_1),
	ENTRY(open_reserved_2),
	ENTRY(open_file_size),
	ENTRY(open_file_size_tiny),
	ENTRY(open_sample_count),
	ENTRY(open_sample_count_huge),
	ENTRY(open_sample_first),
	ENTRY(open_set_count),
	ENTRY(open_shard_count),
	ENTRY(open_shard_index),
	ENTRY(open_class_count),
	ENTRY(open_class_none),
	ENTRY(open_field_count),
	ENTRY(open_content),
	ENTRY(open_mean),
	ENTRY(open_mean_undeclared),
	ENTRY(open_section_count),
	ENTRY(open_section_hidden),
	ENTRY(open_section_type),
	ENTRY(open_section_flags),
	ENTRY(open_section_twice),
	ENTRY(open_section_align),
	ENTRY(open_section_header),
	ENTRY(open_section_offset),
	ENTRY(open_section_size),
	ENTRY(open_sources_short),
	ENTRY(open_index_none),
	ENTRY(open_index_size),
	ENTRY(open_classes_short),
	ENTRY(open_columns_size),
	ENTRY(open_metadata_end),
	ENTRY(open_field_type),
	ENTRY(open_field_name),
	ENTRY(open_field_name_size),
	ENTRY(open_field_reserved),
	ENTRY(open_field_twice),
	ENTRY(open_truncated),
	ENTRY(open_truncated_header),
	ENTRY(open_empty),
	ENTRY(check_data_offset),
	ENTRY(check_data_align),
	ENTRY(check_data_header),
	ENTRY(check_data_size),
	ENTRY(check_data_tail),
	ENTRY(check_data_empty),
	ENTRY(check_side_offset),
	ENTRY(check_side_none),
	ENTRY(check_side_checksum_none),
	ENTRY(check_width),
	ENTRY(check_height),
	ENTRY(check_raw_size),
	ENTRY(check_label_high),
	ENTRY(check_label_low),
	ENTRY(check_codec),
	ENTRY(check_codec_zero),
	ENTRY(check_channels),
	ENTRY(check_channels_raw),
	ENTRY(check_orientation),
	ENTRY(check_orientation_zero),
	ENTRY(check_record_reserved_0),
	ENTRY(check_record_reserved_1),
	ENTRY(check_source_offset),
	ENTRY(check_source_gap),
	ENTRY(open_class_offset),
	ENTRY(open_class_gap),
	ENTRY(open_class_tail),
	ENTRY(open_class_end),
	ENTRY(open_class_utf8),
	ENTRY(check_column_offset),
	ENTRY(check_column_absent),
	ENTRY(check_column_size),
	ENTRY(check_column_reserved),
	ENTRY(check_column_checksum),
	ENTRY(check_column_bits),
	ENTRY(check_column_missing),
	ENTRY(check_column_values),
	ENTRY(open_field_stats_size),
	ENTRY(open_field_stats_number),
	ENTRY(open_field_stats_text_json),
	ENTRY(open_field_stats_reserved),
	ENTRY(open_field_stats_source),
	ENTRY(check_field_stats_short),
	ENTRY(check_field_stats_long),
	ENTRY(check_field_stats_source_short),
	ENTRY(check_field_stats_source_long),
	ENTRY(check_field_stats_text),
	ENTRY(open_section_overlap),
	ENTRY(open_field_name_overlap),
	ENTRY(open_field_name_entry),
	ENTRY(check_side_inside),
	ENTRY(check_side_other_data),
	ENTRY(check_side_section),
	ENTRY(check_side_shared),
	ENTRY(check_data_overlap),
	ENTRY(check_data_begin),
	ENTRY(check_data_section),
	ENTRY(check_data_column),
	ENTRY(check_column_section),
	ENTRY(check_column_overlap),
	ENTRY(check_metadata_order),
	ENTRY(check_metadata_line),
	ENTRY(check_metadata_utf8),
	ENTRY(open_members_size),
	ENTRY(open_members_many),
	ENTRY(open_members_short),
	ENTRY(check_members_first),
	ENTRY(check_members_start),
	ENTRY(check_members_start_high),
	ENTRY(check_members_end),
	ENTRY(check_members_order),
	ENTRY(check_members_twice),
	ENTRY(check_members_label),
	ENTRY(check_members_number),
	ENTRY(check_members_missing),
	ENTRY(check_members_unlabelled),
	ENTRY(open_sizes_size),
	ENTRY(check_sizes_width),
	ENTRY(check_sizes_height),
};

static const struct bad typed_bads[] = {
	ENTRY(open_schema_size),         ENTRY(open_schema_short),
	ENTRY(open_schema_values),       ENTRY(open_schema_reserved),
	ENTRY(open_schema_role),         ENTRY(open_schema_element),
	ENTRY(open_schema_shape),        ENTRY(open_schema_size_overflow),
	ENTRY(open_schema_of_itself),    ENTRY(open_schema_of_later),
	ENTRY(open_schema_image_none),   ENTRY(open_schema_images_none),
	ENTRY(open_schema_field),        ENTRY(open_schema_field_name),
	ENTRY(open_schema_field_type),   ENTRY(open_schema_longest),
	ENTRY(open_schema_longest_text), ENTRY(open_schema_longest_key),
	ENTRY(open_schema_name_nul),     ENTRY(open_schema_name_twice),
	ENTRY(open_schema_name_order),   ENTRY(check_schema_width_short),
	ENTRY(check_schema_width_long),  ENTRY(check_schema_height),
	ENTRY(check_typed_rows),         ENTRY(check_typed_missing),
	ENTRY(check_typed_shape),        ENTRY(check_typed_number),
	ENTRY(check_typed_float),        ENTRY(check_typed_class),
	ENTRY(check_images_unused),
};

static const struct bad image_bads[] = {
	ENTRY(newer_images_schema),      ENTRY(open_images_feature),
	ENTRY(open_images_missing),      ENTRY(open_images_size),
	ENTRY(open_images_no_schema),    ENTRY(open_members_no_classes),
	ENTRY(check_image_label),        ENTRY(check_image_missing),
	ENTRY(check_image_half_missing), ENTRY(check_image_frame),
	ENTRY(check_image_jpeg),         ENTRY(check_image_raw),
	ENTRY(check_image_channels),     ENTRY(check_image_raster_channels),
	ENTRY(check_image_reserved),     ENTRY(check_image_data_size),
	ENTRY(check_image_data_offset),  ENTRY(check_image_tail),
	ENTRY(check_image_overlap),      ENTRY(check_image_overlap_image),
	ENTRY(check_image_section),      ENTRY(check_image_width_long),
	ENTRY(check_image_width_short),  ENTRY(check_image_raster_main),
};

static const struct bad raster_bads[] = {
	ENTRY(newer_raster_schema),
	ENTRY(open_schema_no_stats),
};

static void make_bad_of(const char *good, const struct bad *changes, size_t count)
{
	char name[128];

	for (size_t i = 0; i < count; i++) {
		struct file file = file_read(path_of("good", good));
		size_t size = file.size;
		changes[i].change(&file);
		if (file.size == size)
			repair_checksums(&file);
		snprintf(name, sizeof(name), "%s.pimg", changes[i].name);
		file_write(&file, path_of("bad", name));
		free(file.data);
	}
}

static void make_bad(void)
{
	make_bad_of("full.pimg", bads, sizeof(bads) / sizeof(*bads));
	make_bad_of("typed.pimg", typed_bads, sizeof(typed_bads) / sizeof(*typed_bads));
	make_bad_of("images.pimg", image_bads, sizeof(image_bads) / sizeof(*image_bads));
	make_bad_of("raster.pimg", raster_bads, sizeof(raster_bads) / sizeof(*raster_bads));
	/* the only fault of these two files is an outdated checksum */
	struct file file = file_read(path_of("good", "full.pimg"));
	file.header->set_uuid[0] ^= 1;
	file_write(&file, path_of("bad", "open_header_checksum.pimg"));
	free(file.data);
	file = file_read(path_of("good", "full.pimg"));
	((struct pimg_record *)content_of(&file, PIMG_SECTION_INDEX))->label = 2;
	file_write(&file, path_of("bad", "check_index_checksum.pimg"));
	free(file.data);
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: make_golden FOLDER\n");
		return 2;
	}
	root = argv[1];
	mkdir(path_of("good", ""), 0777);
	mkdir(path_of("bad", ""), 0777);
	make_minimal();
	make_full("full.pimg", 0);
	make_full("set.pimg", 2048);
	make_typed();
	make_later_schema();
	make_images();
	make_raster();
	make_extended();
	make_shared();
	make_bad();
	return 0;
}
