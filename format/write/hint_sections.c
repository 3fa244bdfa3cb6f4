/*
 * Samples are sorted by class in passes over eight bits of the class number, from the lowest, as a
 * radix sort does: each pass appends its entries to 256 streams of a spool, and the next pass reads
 * these one after another. The order within a class stays that of the index.
 */
#include "format/write/hint_sections.h"

#include "format/base/system/io.h"
#include "format/write/spool.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum {
	RECORDS = 1 << 10, /* records read at once */
	DIGIT_BITS = 8,
	DIGITS = 1 << DIGIT_BITS,
};

/* A sample between two passes. */
struct entry {
	uint32_t label, number;
};

struct member_sort {
	const struct hint_source *source;
	struct spool spool;
	uint64_t *starts;               /* of class_count + 1; until they are summed up, counts */
	unsigned pass, pass_last;       /* digit of the class number that is being sorted by */
	struct spool_stream *from, *to; /* DIGITS each */
	struct spool_stream start_stream;
	struct spool_stream streams[2][DIGITS];
	struct entry entries[SPOOL_BLOCK_SIZE / sizeof(struct entry)];
};

/* Takes records of the index, the first of which is that of sample `first`. */
typedef int record_visitor(void *context, const struct pimg_record *records, uint64_t first,
			   size_t count);

static int index_visit(const struct hint_source *source, int fd, record_visitor *visit,
		       void *context)
{
	struct pimg_record *records = malloc(RECORDS * sizeof(*records));
	int r = records ? 0 : -ENOMEM;

	for (uint64_t first = 0; first < source->sample_count && r == 0; first += RECORDS) {
		uint64_t left = source->sample_count - first;
		size_t count = left < RECORDS ? left : RECORDS, size = count * sizeof(*records);
		int64_t n = io_read_at(fd, records, size,
				       source->index_offset + first * sizeof(*records));
		if (n != (int64_t)size)
			r = n < 0 ? (int)n : -EIO;
		r = r ?: visit(context, records, first, count);
	}
	free(records);
	return r;
}

/* Appends a sample to the stream of its digit. The last pass needs its number alone. */
static int sort_put(struct member_sort *sort, uint32_t label, uint32_t number)
{
	struct spool_stream *stream = &sort->to[label >> sort->pass * DIGIT_BITS & (DIGITS - 1)];
	const struct entry entry = {label, number};

	return sort->pass == sort->pass_last
		       ? spool_append(&sort->spool, stream, &number, sizeof(number))
		       : spool_append(&sort->spool, stream, &entry, sizeof(entry));
}

/* First pass: counts the samples of each class, too. */
static int sort_put_records(void *context, const struct pimg_record *records, uint64_t first,
			    size_t count)
{
	struct member_sort *sort = context;
	int r = 0;

	for (size_t i = 0; i < count && r == 0; i++) {
		int32_t label = records[i].label;

		if (label < 0)
			continue;
		if ((uint32_t)label >= sort->source->class_count)
			return -EBADMSG;
		sort->starts[label + 1]++;
		r = sort_put(sort, (uint32_t)label, (uint32_t)(first + i));
	}
	return r;
}

static int sort_put_stream(struct member_sort *sort, const struct spool_stream *stream)
{
	int r = 0;

	for (size_t block = 0; r == 0; block++) {
		int64_t size = spool_read(&sort->spool, stream, block, (uint8_t *)sort->entries);

		if (size <= 0)
			return (int)size;
		for (size_t i = 0; i < (size_t)size / sizeof(*sort->entries) && r == 0; i++)
			r = sort_put(sort, sort->entries[i].label, sort->entries[i].number);
	}
	return r;
}

/* A further pass, over the streams of the previous one. */
static int sort_pass(struct member_sort *sort)
{
	struct spool_stream *from = sort->to;
	int r = 0;

	sort->to = sort->from;
	sort->from = from;
	sort->pass++;
	for (int i = 0; i < DIGITS && r == 0; i++) {
		r = sort_put_stream(sort, &from[i]);
		spool_stream_deinit(&from[i]);
	}
	return r;
}

static int sort_put_starts(struct member_sort *sort)
{
	uint64_t count = sort->source->class_count + UINT64_C(1);

	for (uint64_t i = 1; i < count; i++)
		sort->starts[i] += sort->starts[i - 1];
	return spool_append(&sort->spool, &sort->start_stream, sort->starts,
			    count * sizeof(*sort->starts));
}

static int sort_run(struct member_sort *sort, struct output *output,
		    struct pimg_section *ret_section)
{
	const struct spool_stream *streams[1 + DIGITS];

	int r = index_visit(sort->source, output->fd, sort_put_records, sort);
	while (r == 0 && sort->pass < sort->pass_last)
		r = sort_pass(sort);
	r = r ?: sort_put_starts(sort);
	if (r < 0)
		return r;
	streams[0] = &sort->start_stream;
	for (int i = 0; i < DIGITS; i++)
		streams[1 + i] = &sort->to[i];
	return spool_write(&sort->spool, streams, 1 + DIGITS, output, ret_section);
}

static int members_write(const struct hint_source *source, struct output *output,
			 struct pimg_section *ret_section)
{
	struct member_sort *sort = calloc(1, sizeof(*sort));
	int r = -ENOMEM;

	if (!sort)
		return r;
	spool_init(&sort->spool, source->directory);
	sort->source = source;
	sort->from = sort->streams[0];
	sort->to = sort->streams[1];
	while ((source->class_count - 1) >> (sort->pass_last + 1) * DIGIT_BITS)
		sort->pass_last++;
	sort->starts = calloc(source->class_count + UINT64_C(1), sizeof(*sort->starts));
	if (sort->starts)
		r = sort_run(sort, output, ret_section);
	for (int i = 0; i < DIGITS; i++) {
		spool_stream_deinit(&sort->streams[0][i]);
		spool_stream_deinit(&sort->streams[1][i]);
	}
	spool_stream_deinit(&sort->start_stream);
	spool_deinit(&sort->spool);
	free(sort->starts);
	free(sort);
	return r;
}

struct size_writer {
	struct output *output;
	XXH3_state_t *state;
};

static int sizes_put_records(void *context, const struct pimg_record *records, uint64_t first,
			     size_t count)
{
	struct size_writer *writer = context;
	struct pimg_size sizes[RECORDS];

	for (size_t i = 0; i < count; i++)
		sizes[i] = (struct pimg_size){
			.width = (uint16_t)records[i].width,
			.height = (uint16_t)records[i].height,
		};
	XXH3_64bits_update(writer->state, sizes, count * sizeof(*sizes));
	return output_write(writer->output, sizes, count * sizeof(*sizes));
}

static int sizes_write(const struct hint_source *source, struct output *output,
		       struct pimg_section *ret_section)
{
	struct size_writer writer = {output, XXH3_createState()};

	if (!writer.state)
		return -ENOMEM;
	XXH3_64bits_reset(writer.state);
	int r = output_align(output, PIMG_ALIGN);
	uint64_t offset = output->offset;
	r = r ?: index_visit(source, output->fd, sizes_put_records, &writer);
	*ret_section = (struct pimg_section){
		.offset = offset,
		.size = output->offset - offset,
		.xxh3 = XXH3_64bits_digest(writer.state),
	};
	XXH3_freeState(writer.state);
	return r;
}

/* True if the table has no section of this type, but room for one. */
static bool is_wanted(const struct pimg_section *sections, uint32_t count, uint32_t type)
{
	for (uint32_t i = 0; i < count; i++)
		if (sections[i].type == type)
			return false;
	return count < PIMG_SECTIONS_MAX;
}

int hint_sections_write(const struct hint_source *source, struct output *output,
			struct pimg_section *sections, uint32_t *section_count)
{
	struct pimg_section section;

	if (source->class_count > 0 && source->sample_count <= PIMG_MEMBERS_SAMPLES_MAX &&
	    is_wanted(sections, *section_count, PIMG_SECTION_MEMBERS)) {
		int r = members_write(source, output, &section);
		if (r < 0)
			return r;
		section.type = PIMG_SECTION_MEMBERS;
		sections[(*section_count)++] = section;
	}
	if (!is_wanted(sections, *section_count, PIMG_SECTION_SIZES))
		return 0;
	int r = sizes_write(source, output, &section);
	if (r < 0)
		return r;
	section.type = PIMG_SECTION_SIZES;
	sections[(*section_count)++] = section;
	return 0;
}
