/* Source: a tar or zip archive of images, plain or compressed. */
#include "tools/packimg/source/source_archive.h"
#include "tools/packimg/common/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Spills a member that can be read only once, or that will be read out of order. */
static int spill_member(struct archive_source *archive, struct blob_location *location,
			struct packimg_error *error)
{
	struct blob_store *blobs = archive->source.blobs;

	location->kind = LOCATION_SPILL;
	location->offset = blobs->containers[archive->container].spill_size;
	archive->bytes.size = 0;
	int r = archive_reader_read(archive->archive, blobs->limits.file_max, &archive->bytes,
				    &location->size, error);
	return r ? r
		 : blob_store_spill(blobs, archive->container, archive->bytes.data,
				    archive->bytes.size, error);
}

int archive_source_locate(struct archive_source *archive, const struct archive_member *member,
			  struct blob_location *ret_location, struct packimg_error *error)
{
	struct blob_location location = {.kind = LOCATION_RANGE, .container = archive->container};

	if (archive_reader_range(archive->archive, &location.offset, &location.size)) {
		location.size = member->size;
		if (archive->source.options->random_access || archive->is_pipe) {
			int r = spill_member(archive, &location, error);
			if (r)
				return r;
		} else {
			location.kind = LOCATION_STREAM;
			location.offset = member->number;
			archive->bytes.size = 0;
		}
	}
	*ret_location = location;
	return 0;
}

int archive_source_open(struct source *source, const char *path, struct packimg_error *error)
{
	struct archive_source *archive = (struct archive_source *)source;
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	size_t size = strcspn(base, ".");

	struct stat status;

	archive->is_pipe =
		strcmp(path, "-") == 0 || (stat(path, &status) == 0 && !S_ISREG(status.st_mode));
	archive->stem = strndup(base, size ? size : strlen(base));
	if (!archive->stem)
		return packimg_fail(error, -ENOMEM, "out of memory");
	int r = blob_store_add(source->blobs, strcmp(path, "-") == 0 ? "/dev/stdin" : path, false,
			       &archive->container, error);
	return r ? r : archive_reader_open(path, &source->blobs->limits, &archive->archive, error);
}

void archive_source_close(struct source *source)
{
	struct archive_source *archive = (struct archive_source *)source;

	archive_reader_close(archive->archive);
	buffer_deinit(&archive->bytes);
	free(archive->stem);
}

/*
 * Returns true if an unreadable member may have been an image or, as a link without extension, a
 * folder of images.
 */
static bool may_be_images(const struct archive_member *member, enum filter_verdict verdict)
{
	const char *slash = strrchr(member->name, '/');

	return verdict == FILTER_TAKE || (member->is_link && verdict == FILTER_OTHER &&
					  !strchr(slash ? slash : member->name, '.'));
}

/*
 * Handles a member that is a folder: sets the item's name, always with a trailing '/', and verdict.
 * Returns SOURCE_IGNORED if the folder may contain wanted files, else 0.
 */
static int pass_folder(struct archive_source *archive, const struct archive_member *member,
		       struct source_item *ret_item, struct packimg_error *error)
{
	size_t size = strlen(member->name);

	while (size && member->name[size - 1] == '/')
		size--;
	archive->bytes.size = 0;
	if (buffer_append(&archive->bytes, member->name, size) ||
	    buffer_append(&archive->bytes, "/", sizeof("/")))
		return packimg_fail(error, -ENOMEM, "out of memory");
	ret_item->name = (const char *)archive->bytes.data;
	ret_item->verdict = filter_folder(archive->source.options->filter, ret_item->name);
	return ret_item->verdict == FILTER_FOLDER ? SOURCE_IGNORED : 0;
}

static int source_archive_next(struct source *source, struct source_item *ret_item,
			       struct packimg_error *error)
{
	struct archive_source *archive = (struct archive_source *)source;
	bool named = source->options->class_from == CLASS_ARCHIVE;
	struct archive_member member;

	do {
		int r = archive_reader_next(archive->archive, &member, error);
		if (r)
			return r < 0 ? r : SOURCE_END;
		r = member.is_folder ? pass_folder(archive, &member, ret_item, error) : 0;
		if (r)
			return r;
	} while (member.is_folder);
	ret_item->name = member.name;
	ret_item->verdict = filter_file(source->options->filter, member.name);
	if (member.unread && may_be_images(&member, ret_item->verdict))
		return packimg_fail(error, SOURCE_SKIP, "%s", member.unread);
	if (ret_item->verdict)
		return SOURCE_IGNORED;
	ret_item->class_name = named ? archive->stem : NULL;
	ret_item->class_of_name = !named;
	int r = archive_source_locate(archive, &member, &ret_item->location, error);
	return r == -EFBIG ? SOURCE_SKIP : r;
}

const struct source_ops source_archive_ops = {sizeof(struct archive_source), archive_source_open,
					      source_archive_next, archive_source_close};
