#include "tests/fuzz/support/overlaps.h"

#include "format/layout.h"
#include "format/packimg.h"
#include "tests/fuzz/support/whole_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	SIDE = 24, /* pixels */
	SAMPLES = 6,
	FIELDS = 4,
	MASKS = 2, /* the first samples have one */
	UNKNOWN_TYPE = 1000,
	UNKNOWN_SIZE = 100,
	ROOM = 4096, /* unused bytes at the end of the file */
};

static void must(bool done)
{
	if (!done)
		abort();
}

/*
 * Adds raw, grey and compressed samples, and JPEGs of which two have an index and one has private
 * side data.
 */
static void add_sample(struct packimg_writer *writer, struct packimg_encoder *encoder,
		       struct packimg_decoder *decoder, uint32_t number)
{
	static const uint8_t private_side[] = {1, 0, 0, 0x80, 5, 0, 0, 0, 1, 2, 3, 4, 5, 0, 0, 0};
	uint8_t pixels[SIDE * SIDE * 3];
	struct packimg_item item = {
		.data = pixels,
		.data_size = number == 1 ? SIDE * SIDE : sizeof(pixels),
		.width = SIDE,
		.height = SIDE,
		.label = (int32_t)(number % 2),
		.codec = number == 2  ? PACKIMG_CODEC_RAW_ZSTD
			 : number < 2 ? PACKIMG_CODEC_RAW
				      : PACKIMG_CODEC_JPEG,
		.channels = number == 1 ? 1 : 3,
		.orientation = 1,
		.source = "images/some",
		.source_size = 6 + number % 5,
	};
	struct packimg_jpeg_info info;
	struct packimg_error error;

	for (size_t i = 0; i < sizeof(pixels); i++)
		pixels[i] = (uint8_t)((i * 7 + i / 50 * number) ^ (i * i >> 5));
	if (item.codec == PACKIMG_CODEC_RAW_ZSTD)
		must(packimg_encode_zstd(encoder, pixels, sizeof(pixels), 3, &item.data,
					 &item.data_size) == 0);
	if (item.codec == PACKIMG_CODEC_JPEG) {
		must(packimg_encode_jpeg(encoder, pixels, SIDE * 3, SIDE, SIDE, 3, 80, true,
					 &item.data, &item.data_size) == 0);
		must(packimg_jpeg_probe(item.data, item.data_size, &info, &error) == 0);
		must(packimg_index_jpeg(decoder, item.data, item.data_size, &info, &item.side,
					&item.side_size) == 0);
	}
	if (number == 0) {
		item.side = private_side;
		item.side_size = sizeof(private_side);
	}
	must(packimg_writer_add(writer, &item, &error) == 0);
	if (number >= MASKS)
		return;
	item.data = pixels;
	item.data_size = SIDE * SIDE;
	item.codec = PACKIMG_CODEC_RAW;
	item.channels = 1;
	must(packimg_writer_image(writer, 0, &item, &error) == 0);
}

static void add_values(struct packimg_writer *writer, uint32_t number)
{
	static const char *const names[FIELDS] = {"id", "score", "blob", "note"};
	const struct packimg_value value = {
		.present = true,
		.int64 = number,
		.float64 = number / 2.0,
		.bytes = "{\"n\":1}",
		.size = 7,
	};

	for (uint32_t f = 0; f < FIELDS; f++) {
		uint32_t field;
		must(packimg_writer_field(writer, names[f], PACKIMG_FIELD_INT64 + f, &field,
					  NULL) == 0);
		must(packimg_writer_value(writer, field, &value, NULL) == 0);
	}
}

static void write_base(const char *path)
{
	static const char *const classes[] = {"one", "two"};
	static const double mean[3] = {120, 115, 100}, std[3] = {60, 59, 58};
	struct packimg_encoder *encoder;
	struct packimg_decoder *decoder;
	struct packimg_writer *writer;

	must(packimg_encoder_new(&encoder) == 0 && packimg_decoder_new(&decoder) == 0);
	must(packimg_writer_new(path, NULL, &writer, NULL) == 0);
	must(packimg_writer_schema(writer,
				   "image: image\nmask: mask(image) sparse\nid: value i64\n"
				   "score: value f64\nblob: bytes\nnote: json\n",
				   NULL) == 0);
	for (uint32_t i = 0; i < SAMPLES; i++) {
		add_sample(writer, encoder, decoder, i);
		add_values(writer, i);
	}
	must(packimg_writer_classes(writer, classes, 2, NULL) == 0);
	must(packimg_writer_metadata(writer, "tool", "overlaps", NULL) == 0);
	must(packimg_writer_statistics(writer, mean, std) == 0);
	must(packimg_writer_finish(writer, NULL) == 0);
	packimg_writer_free(writer);
	packimg_decoder_free(decoder);
	packimg_encoder_free(encoder);
}

static void add_range(struct overlaps_file *file, enum overlaps_kind kind, uint32_t number,
		      uint64_t offset, uint64_t size)
{
	must(file->count < OVERLAPS_RANGES_MAX);
	if (size > 0)
		file->ranges[file->count++] = (struct overlaps_range){kind, number, offset, size};
}

static struct pimg_header *header_of(struct overlaps_file *file)
{
	return (struct pimg_header *)file->bytes;
}

/* Lists the ranges of a table of one record for each sample. */
static void collect_records(struct overlaps_file *file, const struct pimg_section *section,
			    enum overlaps_kind data, enum overlaps_kind side)
{
	const struct pimg_record *records = (const void *)(file->bytes + section->offset);

	for (uint32_t k = 0; k < SAMPLES; k++) {
		add_range(file, data, k, records[k].data_offset, records[k].data_size);
		add_range(file, side, k, records[k].side_offset, records[k].side_size);
	}
}

/* Lists all ranges named by the tables of the base file. */
static void collect(struct overlaps_file *file)
{
	const struct pimg_header *header = header_of(file);

	add_range(file, OVERLAPS_HEADER, 0, 0, sizeof(*header));
	for (uint32_t i = 0; i < header->section_count; i++) {
		const struct pimg_section *section = &header->sections[i];
		const void *content = file->bytes + section->offset;

		add_range(file, OVERLAPS_SECTION, i, section->offset, section->size);
		for (uint32_t k = 0; section->type == PIMG_SECTION_COLUMNS && k < FIELDS; k++) {
			const struct pimg_column *column = (const struct pimg_column *)content + k;
			add_range(file, OVERLAPS_COLUMN, k, column->offset, column->size);
		}
		if (section->type == PIMG_SECTION_INDEX)
			collect_records(file, section, OVERLAPS_DATA, OVERLAPS_SIDE);
		if (section->type == PIMG_SECTION_IMAGES)
			collect_records(file, section, OVERLAPS_IMAGE, OVERLAPS_IMAGE_SIDE);
	}
}

void overlaps_make(struct overlaps_file *file)
{
	char folder[] = "/tmp/loaderd-overlaps-XXXXXX", path[64];

	memset(file, 0, sizeof(*file));
	must(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/base.pimg", folder);
	write_base(path);
	FILE *stream = fopen(path, "rb");
	must(stream);
	file->size = fread(file->bytes, 1, sizeof(file->bytes), stream);
	must(file->size + 2 * PIMG_ALIGN + UNKNOWN_SIZE + ROOM < sizeof(file->bytes));
	fclose(stream);
	unlink(path);
	rmdir(folder);
	struct pimg_header *header = header_of(file);
	file->size = (file->size + PIMG_ALIGN - 1) / PIMG_ALIGN * PIMG_ALIGN;
	header->sections[header->section_count++] = (struct pimg_section){
		.type = UNKNOWN_TYPE, .offset = file->size, .size = UNKNOWN_SIZE};
	memset(file->bytes + file->size, 0xa5, UNKNOWN_SIZE);
	file->size += UNKNOWN_SIZE + ROOM;
	header->file_size = file->size;
	collect(file);
	whole_file_repair(file->bytes, file->size);
}

static uint64_t aligned_down(uint64_t offset)
{
	return offset / PIMG_ALIGN * PIMG_ALIGN;
}

/* Computes the new offset and size of a moved range. Returns false if the move is not possible. */
static bool place(const struct overlaps_range *moved, const struct overlaps_range *other,
		  const struct overlaps_move *move, uint64_t *ret_offset, uint64_t *ret_size)
{
	uint64_t offset = other->offset, size = moved->size;

	switch (move->way) {
	case OVERLAPS_BEGIN:
		break;
	case OVERLAPS_INSIDE:
		offset += move->argument * (uint64_t)PIMG_ALIGN;
		if (move->argument == 0 || offset >= other->offset + other->size)
			return false;
		break;
	case OVERLAPS_END:
		if (offset < size + PIMG_ALIGN)
			return false;
		/* the last 64 bytes or less are inside the other range */
		offset = aligned_down(offset - size) + PIMG_ALIGN;
		if (offset >= other->offset)
			return false;
		break;
	case OVERLAPS_REACH:
		if (moved->offset >= offset)
			return false;
		size = offset + 1 - moved->offset;
		offset = moved->offset;
		break;
	case OVERLAPS_SAME:
		size = other->size;
		break;
	case OVERLAPS_AROUND:
		if (offset < PIMG_ALIGN)
			return false;
		offset -= PIMG_ALIGN;
		size = other->size + 2 * (uint64_t)PIMG_ALIGN;
		break;
	case OVERLAPS_FREE:
		offset = move->argument * (uint64_t)PIMG_ALIGN;
		size = move->size_argument;
		break;
	case OVERLAPS_WAYS:
		return false;
	}
	*ret_offset = offset;
	*ret_size = size;
	return size > 0;
}

bool overlaps_move(struct overlaps_file *file, const struct overlaps_move *move)
{
	struct overlaps_range *moved = &file->ranges[move->moved];
	const struct overlaps_range *other = &file->ranges[move->other];
	uint64_t offset, size;

	if (move->moved == move->other || moved->kind == OVERLAPS_HEADER ||
	    !place(moved, other, move, &offset, &size) || size > file->size ||
	    offset > file->size - size)
		return false;
	if (move->with_bytes)
		memmove(file->bytes + offset, file->bytes + moved->offset,
			size < moved->size ? size : moved->size);
	moved->offset = offset;
	moved->size = size;
	return true;
}

/*
 * Writes the base's table at its offset in the model. Overwrites the bytes there, which could be
 * read as records with ranges unknown to the model. Returns NULL if the table does not fit into the
 * file.
 */
static void *put_table(struct overlaps_file *file, const struct overlaps_file *base, uint32_t type,
		       size_t size)
{
	const struct pimg_header *header = (const struct pimg_header *)base->bytes;

	for (unsigned i = 0; i < file->count; i++) {
		const struct overlaps_range *range = &file->ranges[i];
		if (range->kind != OVERLAPS_SECTION || header->sections[range->number].type != type)
			continue;
		if (size > file->size - range->offset)
			return NULL;
		return memcpy(file->bytes + range->offset, base->bytes + base->ranges[i].offset,
			      size);
	}
	return NULL;
}

/* Sets the offset and size of a range in its sample's record. records is NULL if the table is
 * missing. */
static void settle_record(const struct overlaps_range *range, struct pimg_record *records)
{
	if (!records)
		return;
	struct pimg_record *record = &records[range->number];
	if (range->kind == OVERLAPS_DATA || range->kind == OVERLAPS_IMAGE) {
		record->data_offset = range->offset;
		record->data_size = (uint32_t)range->size;
	} else {
		record->side_offset = range->offset;
		record->side_size = (uint32_t)range->size;
	}
}

/*
 * Writes the base's schema at its offset in the model: readers would ignore a section of another
 * version.
 */
static void put_schema(struct overlaps_file *file, const struct overlaps_file *base)
{
	const struct pimg_header *header = (const struct pimg_header *)base->bytes;

	for (uint32_t i = 0; i < header->section_count; i++)
		if (header->sections[i].type == PIMG_SECTION_SCHEMA)
			put_table(file, base, PIMG_SECTION_SCHEMA, header->sections[i].size);
}

void overlaps_settle(struct overlaps_file *file, const struct overlaps_file *base)
{
	put_schema(file, base);
	struct pimg_record *records = put_table(file, base, PIMG_SECTION_INDEX,
						SAMPLES * sizeof(*records)),
			   *images = put_table(file, base, PIMG_SECTION_IMAGES,
					       SAMPLES * sizeof(*images));
	uint8_t *columns =
		put_table(file, base, PIMG_SECTION_COLUMNS, FIELDS * sizeof(struct pimg_column));
	struct pimg_header header;

	memcpy(&header, base->bytes, sizeof(header));
	for (unsigned i = 0; i < file->count; i++) {
		const struct overlaps_range *range = &file->ranges[i];
		struct pimg_column *column = (struct pimg_column *)columns + range->number;

		if (range->kind == OVERLAPS_SECTION) {
			header.sections[range->number].offset = range->offset;
			header.sections[range->number].size = range->size;
		} else if (range->kind == OVERLAPS_COLUMN && columns) {
			column->offset = range->offset;
			column->size = range->size;
		} else if (range->kind == OVERLAPS_DATA || range->kind == OVERLAPS_SIDE) {
			settle_record(range, records);
		} else if (range->kind == OVERLAPS_IMAGE || range->kind == OVERLAPS_IMAGE_SIDE) {
			settle_record(range, images);
		}
	}
	memcpy(file->bytes, &header, sizeof(header));
	whole_file_repair(file->bytes, file->size);
}

/* Returns the data that side data belong to. */
static const struct overlaps_range *data_of(const struct overlaps_file *file,
					    const struct overlaps_range *side)
{
	enum overlaps_kind kind = side->kind == OVERLAPS_SIDE ? OVERLAPS_DATA : OVERLAPS_IMAGE;

	for (unsigned i = 0; i < file->count; i++)
		if (file->ranges[i].kind == kind && file->ranges[i].number == side->number)
			return &file->ranges[i];
	abort();
}

static bool same(const struct overlaps_range *a, const struct overlaps_range *b)
{
	return a->kind == b->kind && a->offset == b->offset && a->size == b->size;
}

static bool may_share(const struct overlaps_file *file, const struct overlaps_range *a,
		      const struct overlaps_range *b)
{
	if (a->kind == OVERLAPS_DATA || a->kind == OVERLAPS_IMAGE)
		return same(a, b);
	return (a->kind == OVERLAPS_SIDE || a->kind == OVERLAPS_IMAGE_SIDE) && same(a, b) &&
	       same(data_of(file, a), data_of(file, b));
}

bool overlaps_any(const struct overlaps_file *file)
{
	for (unsigned i = 0; i < file->count; i++)
		for (unsigned k = 0; k < i; k++) {
			const struct overlaps_range *a = &file->ranges[i], *b = &file->ranges[k];
			if (a->offset < b->offset + b->size && b->offset < a->offset + a->size &&
			    !may_share(file, a, b))
				return true;
		}
	return false;
}
