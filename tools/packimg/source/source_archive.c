/* A tar or zip archive of images, plain or compressed. */
#include "tools/packimg/source/source_archive.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/source/archive_in.h"
#include "tools/packimg/source/source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct source_archive {
	struct source source;
	struct store *store;
	struct archive_in *archive;
	uint32_t container;
	struct filter *filter;
	bool spill;
	char *archive_class; /* for CLASS_ARCHIVE, otherwise NULL */
	struct buffer bytes;
};

int archive_place(struct store *store, uint32_t container, struct archive_in *archive,
		  const struct archive_member *member, bool spill, struct buffer *scratch,
		  struct place *ret_place, struct packimg_error *error)
{
	struct place place = {.container = container};

	if (!archive_in_range(archive, &place.offset, &place.size)) {
		place.kind = PLACE_RANGE;
		*ret_place = place;
		return 0;
	}
	if (!spill) {
		place.kind = PLACE_STREAM;
		place.offset = member->number;
		place.size = member->size;
		*ret_place = place;
		return 0;
	}
	scratch->size = 0;
	int r = archive_in_read(archive, store->limits.file_max, scratch, NULL, error);
	if (r)
		return r;
	place.kind = PLACE_SPILL;
	place.offset = store->containers[container].spill_size;
	place.size = scratch->size;
	r = store_spill(store, container, scratch->data, scratch->size, error);
	if (r)
		return r;
	*ret_place = place;
	return 0;
}

char *archive_stem(const char *path)
{
	const char *base = strrchr(path, '/'), *dot;

	base = base ? base + 1 : path;
	dot = strchr(base, '.');
	return dot && dot > base ? strndup(base, (size_t)(dot - base)) : strdup(base);
}

static void source_archive_free(struct source *source)
{
	struct source_archive *archive = (struct source_archive *)source;

	archive_in_close(archive->archive);
	buffer_deinit(&archive->bytes);
	free(archive->archive_class);
	free(archive);
}

/* Whether a link may have been to an image, or, its name having no ending, to a folder. */
static bool may_be_images(const char *name, enum filter_verdict verdict)
{
	const char *slash = strrchr(name, '/');

	return verdict == FILTER_TAKE ||
	       (verdict == FILTER_OTHER && !strchr(slash ? slash : name, '.'));
}

static int source_archive_next(struct source *source, struct source_item *ret_item,
			       struct packimg_error *error)
{
	struct source_archive *archive = (struct source_archive *)source;
	struct archive_member member;

	int r = archive_in_next(archive->archive, &member, error);
	if (r)
		return r < 0 ? r : SOURCE_END;
	ret_item->name = member.name;
	ret_item->verdict = filter_file(archive->filter, member.name);
	if (member.is_link && may_be_images(member.name, ret_item->verdict))
		return packimg_fail(error, SOURCE_SKIP, ARCHIVE_LINK);
	if (ret_item->verdict)
		return SOURCE_PASS;
	ret_item->class_name = archive->archive_class;
	ret_item->class_of_name = !archive->archive_class;
	r = archive_place(archive->store, archive->container, archive->archive, &member,
			  archive->spill, &archive->bytes, &ret_item->place, error);
	return r == -EFBIG ? SOURCE_SKIP : r;
}

static const struct source_ops source_archive_ops = {source_archive_next, source_archive_free};

int source_archive_new(struct store *store, const char *path, const struct source_options *options,
		       struct source **ret_source, struct packimg_error *error)
{
	struct source_archive *archive = calloc(1, sizeof(*archive));
	bool pipe = strcmp(path, "-") == 0;

	if (!archive)
		return packimg_fail(error, -ENOMEM, "out of memory");
	archive->source.ops = &source_archive_ops;
	archive->store = store;
	archive->filter = options->filter;
	archive->spill = options->random_access || pipe;
	if (options->class_from == CLASS_ARCHIVE)
		archive->archive_class = archive_stem(path);
	int r = archive->archive_class || options->class_from != CLASS_ARCHIVE
			? store_add(store, pipe ? "/dev/stdin" : path, false, &archive->container,
				    error)
			: packimg_fail(error, -ENOMEM, "out of memory");
	if (!r)
		r = archive_in_open(path, &store->limits, &archive->archive, error);
	if (r) {
		source_archive_free(&archive->source);
		return r;
	}
	*ret_source = &archive->source;
	return 0;
}
