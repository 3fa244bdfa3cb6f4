#include "format/base/text/text.h"
#include "format/error.h"
#include "format/write/writer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int dataset_info_classes(struct dataset_info *info, const char *const *names, uint32_t class_count,
			 struct packimg_error *error)
{
	uint64_t table_size = ((uint64_t)class_count + 1) * sizeof(uint64_t), size = table_size,
		 offset = 0;

	if (class_count > PACKIMG_CLASSES_MAX)
		return packimg_fail(error, -E2BIG, "%" PRIu32 " classes; a dataset has at most %d",
				    class_count, PACKIMG_CLASSES_MAX);
	for (uint32_t i = 0; i < class_count; i++) {
		size_t length = strlen(names[i]);
		if (length > PACKIMG_CLASS_NAME_MAX || !text_is_utf8(names[i], length))
			return packimg_fail(error, -EINVAL,
					    "name of class %" PRIu32
					    " is not UTF-8 of at most %d bytes",
					    i, PACKIMG_CLASS_NAME_MAX);
		size += length + 1;
	}
	if (size > PIMG_CLASSES_SIZE_MAX)
		return packimg_fail(error, -E2BIG,
				    "the class names take %" PRIu64
				    " bytes, at most %d are possible; use shorter names",
				    size, PIMG_CLASSES_SIZE_MAX);
	char *section = malloc(size);
	if (!section)
		return packimg_fail(error, -ENOMEM, "out of memory for class names");
	for (uint32_t i = 0; i < class_count; i++) {
		size_t length = strlen(names[i]) + 1;
		memcpy(section + i * sizeof(offset), &offset, sizeof(offset));
		memcpy(section + table_size + offset, names[i], length);
		offset += length;
	}
	memcpy(section + class_count * sizeof(offset), &offset, sizeof(offset));
	free(info->classes);
	info->classes = section;
	info->classes_size = size;
	info->class_count = class_count;
	return 0;
}

static char *value_escape(const char *value)
{
	char *escaped = malloc(strlen(value) * 2 + 1), *out = escaped;

	if (!escaped)
		return NULL;
	for (; *value; value++) {
		if (*value == '\n' || *value == '\\') {
			*out++ = '\\';
			*out++ = *value == '\n' ? 'n' : '\\';
		} else {
			*out++ = *value;
		}
	}
	*out = '\0';
	return escaped;
}

static int metadata_put(struct dataset_info *info, const char *key, char *value)
{
	size_t at = 0;
	int order = 1;

	/* entries are sorted */
	while (at < info->metadata_count && (order = strcmp(info->metadata[at].key, key)) < 0)
		at++;
	if (order == 0) {
		free(info->metadata[at].value);
		info->metadata[at].value = value;
		return 0;
	}
	struct metadata_entry *entries =
		realloc(info->metadata, (info->metadata_count + 1) * sizeof(*info->metadata));
	if (!entries)
		return -ENOMEM;
	info->metadata = entries;
	char *copy = strdup(key);
	if (!copy)
		return -ENOMEM;
	memmove(entries + at + 1, entries + at, (info->metadata_count - at) * sizeof(*entries));
	entries[at] = (struct metadata_entry){.key = copy, .value = value};
	info->metadata_count++;
	return 0;
}

int dataset_info_metadata(struct dataset_info *info, const char *key, const char *value,
			  struct packimg_error *error)
{
	if (!text_is_key(key, strlen(key), PACKIMG_NAME_MAX))
		return packimg_fail(error, -EINVAL,
				    "metadata key \"%.100s\": letters, digits, '_', '-' and '.' "
				    "are possible, at most %d",
				    key, PACKIMG_NAME_MAX);
	if (!text_is_utf8(value, strlen(value)))
		return packimg_fail(error, -EINVAL, "metadata %.100s: the value is not UTF-8", key);
	char *escaped = value_escape(value);
	if (!escaped)
		return packimg_fail(error, -ENOMEM, "out of memory for metadata");
	size_t size = strlen(key) + strlen(escaped) + 2;
	for (size_t i = 0; i < info->metadata_count; i++)
		size += strlen(info->metadata[i].key) + strlen(info->metadata[i].value) + 2;
	if (size >= PIMG_METADATA_MAX) {
		free(escaped);
		return packimg_fail(error, -E2BIG, "metadata %.100s: more than %d bytes altogether",
				    key, PIMG_METADATA_MAX);
	}
	int r = metadata_put(info, key, escaped);
	if (r < 0) {
		free(escaped);
		return packimg_fail(error, r, "out of memory for metadata");
	}
	return 0;
}

int dataset_info_build_metadata(const struct dataset_info *info, void **ret_text, size_t *ret_size)
{
	size_t size = 1;

	if (info->metadata_count == 0)
		return 0;
	for (size_t i = 0; i < info->metadata_count; i++)
		size += strlen(info->metadata[i].key) + strlen(info->metadata[i].value) + 2;
	char *text = malloc(size), *out = text;
	if (!text)
		return -ENOMEM;
	for (size_t i = 0; i < info->metadata_count; i++)
		out += sprintf(out, "%s=%s\n", info->metadata[i].key, info->metadata[i].value);
	*ret_text = text;
	*ret_size = size;
	return 0;
}

void dataset_info_deinit(struct dataset_info *info)
{
	for (size_t i = 0; i < info->metadata_count; i++) {
		free(info->metadata[i].key);
		free(info->metadata[i].value);
	}
	free(info->metadata);
	free(info->classes);
}
