#include "tools/packimg/source/source.h"

#include "format/base/text/number.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/image/image_format.h"
#include "tools/packimg/source/archive_in.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static bool ends_with_any(const char *name, const char *const *ends)
{
	size_t size = strlen(name);

	for (; *ends; ends++) {
		size_t end = strlen(*ends);

		if (size > end && strcasecmp(name + size - end, *ends) == 0)
			return true;
	}
	return false;
}

bool source_name_is_image(const char *name)
{
	return image_kind_of_name(name) != IMAGE_KINDS;
}

enum value_kind source_value_kind(const char *text)
{
	int64_t integer;
	double real;

	if (!number_i64(text, &integer))
		return VALUE_INTEGER;
	return number_double(text, &real) ? VALUE_TEXT : VALUE_REAL;
}

bool source_label_is_missing(const char *text)
{
	static const char *const words[] = {"NaN",  "nan", "-NaN", "-nan", "None", "NULL",
					    "null", "N/A", "n/a",  "NA",   "#N/A", "<NA>"};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (strcmp(text, words[i]) == 0)
			return true;
	return !text[0];
}

static bool name_is_manifest(const char *name)
{
	static const char *const ends[] = {".csv", ".tsv", ".txt", ".lst", NULL};

	return ends_with_any(name, ends);
}

enum {
	PEEK_MEMBERS =
		64, /* of an archive, to tell a WebDataset shard from an archive of folders */
};

/*
 * A WebDataset shard keeps a label or a description beside each image: KEY.cls, KEY.json or KEY.txt
 * with KEY.jpg.
 */
static int peek_archive(const struct store *store, const char *path, enum source_kind *ret_kind,
			struct packimg_error *error)
{
	static const char *const companions[] = {".cls", ".json",    ".cls.txt",
						 ".txt", ".caption", NULL};
	struct archive_in *archive;
	struct archive_member member;
	bool key_is_image = false, image, companion, same;
	char *key = NULL;

	*ret_kind = SOURCE_ARCHIVE;
	if (strcmp(path, "-") == 0)
		return 0;
	int r = archive_in_open(path, &store->limits, &archive, error);
	if (r)
		return r;
	for (int i = 0; i < PEEK_MEMBERS && *ret_kind == SOURCE_ARCHIVE; i++) {
		r = archive_in_next(archive, &member, error);
		if (r)
			break;
		if (member.unread)
			continue;
		const char *base = strrchr(member.name, '/');
		const char *dot = strchr(base ? base + 1 : member.name, '.');
		if (!dot)
			continue;
		/* Companions are neighbours: the same name up to the first dot of its last part. */
		image = source_name_is_image(member.name);
		companion = ends_with_any(member.name, companions);
		if (!image && !companion)
			continue;
		same = key && strlen(key) == (size_t)(dot - member.name) &&
		       strncmp(key, member.name, strlen(key)) == 0;
		if (same && image != key_is_image)
			*ret_kind = SOURCE_WEBDATASET;
		free(key);
		key = strndup(member.name, (size_t)(dot - member.name));
		key_is_image = image;
	}
	free(key);
	archive_in_close(archive);
	/* Damage is reported with its place when the archive is read. */
	return r < 0 && r != -EBADMSG && r != -EFBIG ? r : 0;
}

static int find_kind(const struct store *store, const char *path,
		     const struct source_options *options, enum source_kind *ret_kind,
		     struct packimg_error *error)
{
	struct stat status;

	*ret_kind = options->kind;
	if (options->kind != SOURCE_AUTO)
		return 0;
	if (strcmp(path, "-") == 0) {
		*ret_kind = SOURCE_ARCHIVE;
		return 0;
	}
	if (stat(path, &status))
		return packimg_fail(error, -errno, "%s: %s", path, strerror(errno));
	if (S_ISDIR(status.st_mode))
		*ret_kind = options->manifest ? SOURCE_MANIFEST : SOURCE_FOLDER;
	else if (source_name_is_image(path))
		*ret_kind = SOURCE_FOLDER;
	else if (name_is_manifest(path))
		*ret_kind = SOURCE_MANIFEST;
	else
		return peek_archive(store, path, ret_kind, error);
	return 0;
}

int source_new(struct store *store, const char *path, const struct source_options *options,
	       struct source **ret_source, struct packimg_error *error)
{
	static const struct source_ops *const kinds[] = {
		[SOURCE_FOLDER] = &source_folder_ops,
		[SOURCE_MANIFEST] = &source_manifest_ops,
		[SOURCE_ARCHIVE] = &source_archive_ops,
		[SOURCE_WEBDATASET] = &source_webdataset_ops,
	};
	enum source_kind kind;

	int r = find_kind(store, path, options, &kind, error);
	if (r)
		return r;
	struct source *source = calloc(1, kinds[kind]->size);
	if (!source)
		return packimg_fail(error, -ENOMEM, "out of memory");
	*source = (struct source){kinds[kind], store, options};
	r = source->ops->open(source, path, error);
	if (r)
		source_free(source);
	else
		*ret_source = source;
	return r;
}

void source_free(struct source *source)
{
	if (source)
		source->ops->close(source);
	free(source);
}

int source_next(struct source *source, struct source_item *ret_item, struct packimg_error *error)
{
	*ret_item = (struct source_item){.class_number = -1};
	return source->ops->next(source, ret_item, error);
}
