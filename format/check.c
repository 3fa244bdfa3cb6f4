#include "error.h"
#include "reader.h"
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

static const char *const section_names[] = {
	[PIMG_SECTION_INDEX] = "index",	    [PIMG_SECTION_SOURCES] = "sources",
	[PIMG_SECTION_CLASSES] = "classes", [PIMG_SECTION_FIELDS] = "fields",
	[PIMG_SECTION_COLUMNS] = "columns", [PIMG_SECTION_METADATA] = "metadata",
};

static int check_sections(const struct shard *shard, struct packimg_error *error)
{
	for (uint32_t type = 1; type <= PIMG_SECTION_KNOWN_MAX; type++) {
		const struct section_view *section = &shard->sections[type];
		if (section->data && XXH3_64bits(section->data, section->size) != section->xxh3)
			return packimg_fail(error, -EBADMSG,
					    "%s: checksum of the %s section does not fit; the file "
					    "is damaged, copy or convert it again",
					    shard->path, section_names[type]);
	}
	return 0;
}

static int check_records(const struct packimg *dataset, const struct shard *shard,
			 struct packimg_error *error)
{
	const struct pimg_record *records = (const void *)shard->sections[PIMG_SECTION_INDEX].data;

	for (uint64_t i = 0; i < shard->sample_count; i++) {
		struct pimg_record record = records[i];
		const char *fault = record_fault(dataset, shard, &record);
		if (fault)
			return packimg_fail(error, -EBADMSG,
					    "%s: sample %" PRIu64 ": %s; convert the file again",
					    shard->path, shard->sample_first + i, fault);
	}
	return 0;
}

/* Every string inside its section, the first behind the offsets, no gaps, the last at the end. */
static int check_strings(const struct shard *shard, uint32_t type, uint64_t count,
			 struct packimg_error *error)
{
	const struct section_view *section = &shard->sections[type];
	uint64_t expected = (count + 1) * sizeof(uint64_t), size = 0;
	const char *text = (const char *)section->data + expected;

	if (!section->data)
		return 0;
	for (uint64_t i = 0; i < count; i++) {
		if (strings_get(section, count, i, &text, &size) < 0 ||
		    (uint64_t)((const uint8_t *)text - section->data) != expected)
			return packimg_fail(error, -EBADMSG,
					    "%s: %s section: offset of entry %" PRIu64
					    " is damaged",
					    shard->path, section_names[type], i);
		expected += size;
		if (type == PIMG_SECTION_CLASSES &&
		    (size == 0 || text[size - 1] != '\0' || !text_is_utf8(text, size - 1)))
			return packimg_fail(error, -EBADMSG,
					    "%s: name of class %" PRIu64 " is not terminated UTF-8",
					    shard->path, i);
	}
	if (expected != section->size)
		return packimg_fail(error, -EBADMSG, "%s: %s section is longer than its entries",
				    shard->path, section_names[type]);
	return 0;
}

static int check_column(const struct packimg *dataset, const struct shard *shard, uint32_t field,
			struct packimg_error *error)
{
	const char *name = dataset->fields[field].name;
	bool is_bytes = dataset->fields[field].type >= PACKIMG_FIELD_BYTES;
	struct pimg_column column;
	struct column_view view;
	uint64_t end = 0;

	memcpy(&column, shard->sections[PIMG_SECTION_COLUMNS].data + field * sizeof(column),
	       sizeof(column));
	if (column_view_get(dataset, shard, field, &view) < 0)
		return packimg_fail(error, -EBADMSG,
				    "%s: column of field %.100s does not fit the file", shard->path,
				    name);
	if (!view.present)
		return 0;
	if (XXH3_64bits(shard->map + column.offset, column.size) != column.xxh3)
		return packimg_fail(
			error, -EBADMSG,
			"%s: checksum of field %.100s does not fit; the file is damaged",
			shard->path, name);
	uint64_t bits = (shard->sample_count + 63) / 64 * 64;
	for (uint64_t i = shard->sample_count; i < bits; i++)
		if (view.present[i / 8] >> (i % 8) & 1)
			return packimg_fail(error, -EBADMSG,
					    "%s: field %.100s: presence bits past the last sample",
					    shard->path, name);
	const uint64_t *values = view.values;
	for (uint64_t i = 0; i < shard->sample_count; i++) {
		bool present = view.present[i / 8] >> (i % 8) & 1;
		bool empty = is_bytes ? values[i] == values[i + 1] : values[i] == 0;
		if ((is_bytes && (values[i] != end || values[i + 1] < values[i])) ||
		    (!present && !empty))
			return packimg_fail(error, -EBADMSG,
					    "%s: sample %" PRIu64
					    ": value of field %.100s is damaged",
					    shard->path, shard->sample_first + i, name);
		end = is_bytes ? values[i + 1] : 0;
	}
	if (is_bytes && end != view.bytes_size)
		return packimg_fail(error, -EBADMSG, "%s: field %.100s is longer than its values",
				    shard->path, name);
	return 0;
}

static int check_metadata(const struct shard *shard, struct packimg_error *error)
{
	const struct section_view *section = &shard->sections[PIMG_SECTION_METADATA];
	const char *text = (const char *)section->data, *previous = NULL;
	size_t previous_size = 0;

	if (!section->data)
		return 0;
	if (!text_is_utf8(text, section->size - 1))
		return packimg_fail(error, -EBADMSG, "%s: metadata is not UTF-8", shard->path);
	for (const char *line = text; *line;) {
		const char *end = strchr(line, '\n'), *equal = strchr(line, '=');
		if (!end || !equal || equal > end || !text_is_key(line, (size_t)(equal - line)))
			return packimg_fail(error, -EBADMSG,
					    "%s: metadata has a line that is not key=value",
					    shard->path);
		size_t size = (size_t)(equal - line);
		if (previous) {
			int order =
				memcmp(previous, line, previous_size < size ? previous_size : size);
			if (order > 0 || (order == 0 && previous_size >= size))
				return packimg_fail(error, -EBADMSG,
						    "%s: metadata is not sorted by key at \"%.*s\"",
						    shard->path, (int)size, line);
		}
		previous = line;
		previous_size = size;
		line = end + 1;
	}
	return 0;
}

int packimg_check(const struct packimg *dataset, struct packimg_error *error)
{
	for (uint32_t i = 0; i < dataset->shard_count; i++) {
		const struct shard *shard = &dataset->shards[i];
		int r = check_sections(shard, error);
		if (r == 0)
			r = check_records(dataset, shard, error);
		if (r == 0)
			r = check_strings(shard, PIMG_SECTION_SOURCES, shard->sample_count, error);
		if (r == 0)
			r = check_strings(shard, PIMG_SECTION_CLASSES, dataset->class_count, error);
		if (r == 0)
			r = check_metadata(shard, error);
		for (uint32_t field = 0; r == 0 && field < dataset->field_count; field++)
			r = check_column(dataset, shard, field, error);
		if (r < 0)
			return r;
	}
	return 0;
}
