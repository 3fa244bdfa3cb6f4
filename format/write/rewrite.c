/*
 * Copies the files of a dataset with other side data. Samples keep their order in the file. All
 * bytes except offsets, checksums, UUIDs and side data stay the same.
 */
#include "format/base/system/io.h"
#include "format/base/uuid.h"
#include "format/codec/scratch.h"
#include "format/codec/side_data.h"
#include "format/error.h"
#include "format/reader.h"
#include "format/write/hint_sections.h"
#include "format/write/output.h"
#include "format/write/rewrite_images.h"
#include "format/write/temp_files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct packimg_rewriter {
	const struct packimg *dataset;
	uint64_t *order; /* all sample indexes in file order */
	uint64_t put;    /* samples put so far */
	char **targets;  /* real path of each shard */
	struct temp_files temp_files;
	uint8_t *buffer;

	/* State of the current shard. */
	uint32_t shard_number;
	struct output output; /* fd -1 between shards */
	struct pimg_record *records;
	struct image_copier images;
	struct image_index image_indexes[SCHEMA_IMAGES_MAX]; /* of the next sample */
	uint64_t written; /* bytes of the shards before the current one */

	/* The sample put last. The next sample may share its bytes. */
	struct packimg_sample last; /* data is NULL if there is none */
	struct pimg_record last_record;
	struct scratch side, last_side;
	size_t last_side_size;
};

static int fail_path(const struct packimg_rewriter *rewriter, int r, struct packimg_error *error)
{
	return packimg_fail(error, r, "%s: cannot be rewritten: %s",
			    rewriter->dataset->shards[rewriter->shard_number].path, strerror(-r));
}

/*
 * Resolves links to find the rename targets. All targets of a set must be in one directory, where
 * its unfinished files are created.
 */
static int rewriter_resolve_targets(struct packimg_rewriter *rewriter, struct packimg_error *error)
{
	const struct packimg *dataset = rewriter->dataset;

	for (uint32_t i = 0; i < dataset->shard_count; i++) {
		char *target = realpath(dataset->shards[i].path, NULL);
		if (!target)
			return packimg_fail(error, -errno, "%s: %s", dataset->shards[i].path,
					    strerror(errno));
		rewriter->targets[i] = target;
		size_t size = (size_t)(strrchr(target, '/') - target);
		if (strncmp(target, rewriter->targets[0], size + 1) != 0 ||
		    strchr(rewriter->targets[0] + size + 1, '/'))
			return packimg_fail(error, -EINVAL,
					    "%s: is a link to another directory than %s; shards "
					    "that are rewritten must be in one directory",
					    dataset->shards[i].path, dataset->shards[0].path);
	}
	int r = temp_files_init(&rewriter->temp_files, rewriter->targets[0]);
	if (r < 0)
		return packimg_fail(error, r, "%s: %s", rewriter->targets[0], strerror(-r));
	temp_files_remove_stale(&rewriter->temp_files);
	return 0;
}

/* Location of a sample. A copy, because a sort may not terminate if its keys change meanwhile. */
struct sample_location {
	uint64_t offset;
	uintptr_t side; /* its address, 0 if none */
	uint64_t index;
};

static int compare_extents(const void *a, const void *b)
{
	const struct sample_location *p = a, *q = b;

	if (p->offset != q->offset)
		return p->offset < q->offset ? -1 : 1;
	if (p->side != q->side)
		return p->side < q->side ? -1 : 1;
	return p->index < q->index ? -1 : p->index > q->index;
}

/*
 * Checks again that ranges do not overlap: the file may have changed since packimg_check(), and a
 * small file with many overlaps would become an enormous one.
 */
static int rewriter_check_overlaps(const struct packimg_rewriter *rewriter,
				   const struct shard *shard, struct packimg_error *error)
{
	struct packimg_sample sample, before = {0};
	uint64_t size = 0;

	for (uint64_t i = 0; i < shard->sample_count && size <= shard->size; i++) {
		int r = packimg_sample(rewriter->dataset, rewriter->order[shard->sample_first + i],
				       &sample);
		if (r < 0)
			return packimg_fail(error, r, "%s: %s", shard->path, strerror(-r));
		bool shared = sample.data == before.data && sample.data_size == before.data_size;
		size += shared ? 0 : sample.data_size;
		size += shared && sample.side == before.side ? 0 : sample.side_size;
		before = sample;
	}
	if (size > shard->size)
		return packimg_fail(error, -EBADMSG,
				    "%s: samples overlap; convert the images again", shard->path);
	return 0;
}

/*
 * Collects the locations of a shard's samples. Returns 1 if they do not ascend. Samples with the
 * same data and side data must be neighbours, so that the rewriter keeps them shared.
 */
static int note_extents(const struct packimg *dataset, const struct shard *shard,
			struct sample_location *extents, struct packimg_error *error)
{
	struct packimg_sample sample;
	int descends = 0;

	for (uint64_t i = 0; i < shard->sample_count; i++) {
		uint64_t index = shard->sample_first + i;
		int r = packimg_sample(dataset, index, &sample);
		if (r < 0)
			return packimg_fail(error, r, "%s: sample %" PRIu64 ": %s", shard->path,
					    index, strerror(-r));
		extents[i] =
			(struct sample_location){sample.data_offset, (uintptr_t)sample.side, index};
		descends |= i > 0 && compare_extents(&extents[i - 1], &extents[i]) > 0;
	}
	return descends;
}

static int rewriter_order_shard(struct packimg_rewriter *rewriter, const struct shard *shard,
				struct packimg_error *error)
{
	struct sample_location *extents = calloc(shard->sample_count + 1, sizeof(*extents));

	if (!extents)
		return packimg_fail(error, -ENOMEM, "out of memory");
	int r = note_extents(rewriter->dataset, shard, extents, error);
	if (r > 0)
		qsort(extents, shard->sample_count, sizeof(*extents), compare_extents);
	for (uint64_t i = 0; r >= 0 && i < shard->sample_count; i++)
		rewriter->order[shard->sample_first + i] = extents[i].index;
	free(extents);
	r = r < 0 ? r : rewriter_check_overlaps(rewriter, shard, error);
	return r < 0 ? r : ranges_check_gaps(rewriter->dataset, shard, error);
}

static int rewriter_init(struct packimg_rewriter *rewriter, const struct packimg *dataset,
			 struct packimg_error *error)
{
	rewriter->dataset = dataset;
	rewriter->output.fd = -1;
	rewriter->temp_files.lock_fd = -1;
	rewriter->order = calloc(dataset->sample_count + 1, sizeof(*rewriter->order));
	rewriter->targets = calloc(dataset->shard_count, sizeof(*rewriter->targets));
	rewriter->buffer = malloc(OUTPUT_BUFFER_SIZE);
	if (!rewriter->order || !rewriter->targets || !rewriter->buffer)
		return packimg_fail(error, -ENOMEM, "out of memory");
	/* New checksums must not hide damage. */
	int r = packimg_check(dataset, error);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < dataset->shard_count; i++) {
		r = rewriter_order_shard(rewriter, &dataset->shards[i], error);
		if (r < 0)
			return r;
	}
	return rewriter_resolve_targets(rewriter, error);
}

int packimg_rewriter_new(const struct packimg *dataset, struct packimg_rewriter **ret_rewriter,
			 struct packimg_error *error)
{
	if (dataset->join)
		return packimg_fail(error, -ENOTSUP,
				    "a joined dataset cannot be rewritten; rewrite its parts");
	struct packimg_rewriter *rewriter = calloc(1, sizeof(*rewriter));
	if (!rewriter)
		return packimg_fail(error, -ENOMEM, "out of memory");
	int r = rewriter_init(rewriter, dataset, error);
	if (r < 0) {
		packimg_rewriter_free(rewriter);
		return r;
	}
	*ret_rewriter = rewriter;
	return 0;
}

void packimg_rewriter_free(struct packimg_rewriter *rewriter)
{
	if (!rewriter)
		return;
	output_deinit(&rewriter->output);
	temp_files_deinit(&rewriter->temp_files);
	for (uint32_t i = 0; rewriter->targets && i < rewriter->dataset->shard_count; i++)
		free(rewriter->targets[i]);
	free(rewriter->targets);
	free(rewriter->order);
	free(rewriter->records);
	image_copier_deinit(&rewriter->images);
	free(rewriter->buffer);
	scratch_deinit(&rewriter->side);
	scratch_deinit(&rewriter->last_side);
	free(rewriter);
}

const uint64_t *packimg_rewriter_order(const struct packimg_rewriter *rewriter)
{
	return rewriter->order;
}

uint64_t packimg_rewriter_bytes(const struct packimg_rewriter *rewriter)
{
	return rewriter->written + (rewriter->output.fd >= 0 ? rewriter->output.offset : 0);
}

static int rewriter_begin_shard(struct packimg_rewriter *rewriter)
{
	const struct shard *shard = &rewriter->dataset->shards[rewriter->shard_number];
	struct stat status;

	free(rewriter->records);
	rewriter->records = calloc(shard->sample_count + 1, sizeof(*rewriter->records));
	if (!rewriter->records)
		return -ENOMEM;
	image_copier_deinit(&rewriter->images);
	int r = image_copier_init(&rewriter->images, rewriter->dataset, shard);
	if (r < 0)
		return r;
	r = temp_files_create(&rewriter->temp_files, rewriter->buffer, &rewriter->output);
	if (r < 0)
		return r;
	int fd = rewriter->output.fd;
	rewriter->last.data = NULL;
	if (fstat(shard->fd, &status) < 0 || fchmod(fd, status.st_mode & 07777) < 0)
		return -errno;
	/* If permitted, keep the owner when root rewrites the file. */
	if (fchown(fd, status.st_uid, status.st_gid) < 0 && errno != EPERM && errno != EINVAL)
		return -errno;
	return 0;
}

/* Writes the data of the columns, then the table of columns with the new offsets. */
static int rewriter_put_columns(struct output *output, const struct shard *shard,
				const struct pimg_section *old, struct pimg_section *ret_section)
{
	struct pimg_column columns[PACKIMG_FIELDS_MAX];
	size_t count = old->size / sizeof(*columns);

	if (count > PACKIMG_FIELDS_MAX)
		return -EBADMSG;
	memcpy(columns, shard->map + old->offset, count * sizeof(*columns));
	for (size_t i = 0; i < count; i++) {
		struct pimg_column *column = &columns[i];

		if (column->offset == 0)
			continue;
		if (column->offset > shard->size || column->size > shard->size - column->offset)
			return -EBADMSG;
		int r = output_put(output, shard->map + column->offset, column->size,
				   &column->offset);
		if (r < 0)
			return r;
	}
	return output_put_section(output, old->type, columns, count * sizeof(*columns),
				  ret_section);
}

/* Adds the sections that a file of an earlier version lacks and that follow from the index. */
static int rewriter_add_hints(struct packimg_rewriter *rewriter, uint64_t index_offset,
			      struct pimg_header *header)
{
	const struct hint_source source = {
		.directory = rewriter->temp_files.directory,
		.index_offset = index_offset,
		.sample_count = rewriter->dataset->shards[rewriter->shard_number].sample_count,
		.class_count = rewriter->dataset->class_count,
	};
	int r = output_flush(&rewriter->output);

	return r
		       ?: hint_sections_write(&source, &rewriter->output, header->sections,
					      &header->section_count);
}

/* Writes all sections in the order of the old section table, and builds the new header. */
static int rewriter_put_sections(struct packimg_rewriter *rewriter, struct pimg_header *header)
{
	const struct shard *shard = &rewriter->dataset->shards[rewriter->shard_number];
	struct output *output = &rewriter->output;
	struct pimg_section index = {0};
	int r = 0;

	/* A copy, as when opening, because the file may have changed. */
	memcpy(header, shard->map, sizeof(*header));
	if (header->section_count > PIMG_SECTIONS_MAX)
		return -EBADMSG;
	for (uint32_t i = 0; i < header->section_count && r == 0; i++) {
		struct pimg_section old = header->sections[i], *section = &header->sections[i];

		if (old.offset > shard->size || old.size > shard->size - old.offset)
			return -EBADMSG;
		if (old.type == PIMG_SECTION_INDEX) {
			r = output_put_section(output, old.type, rewriter->records,
					       shard->sample_count * sizeof(*rewriter->records),
					       section);
			index = *section;
		} else if (old.type == PIMG_SECTION_IMAGES) {
			r = output_put_section(output, old.type, rewriter->images.records,
					       rewriter->images.count *
						       sizeof(*rewriter->images.records),
					       section);
		} else if (old.type == PIMG_SECTION_COLUMNS) {
			r = rewriter_put_columns(output, shard, &old, section);
		} else {
			r = output_put_section(output, old.type, shard->map + old.offset, old.size,
					       section);
		}
	}
	r = r ?: rewriter_add_hints(rewriter, index.offset, header);
	if (r < 0)
		return r;
	/*
	 * The set stays the same, but this file does not: derive its UUID from the index section.
	 */
	uint8_t seed[28];
	memcpy(seed, header->set_uuid, 16);
	memcpy(seed + 16, &header->shard_index, 4);
	memcpy(seed + 20, &index.xxh3, 8);
	uuid_from_hash(XXH3_128bits(seed, sizeof(seed)), header->shard_uuid);
	header->file_size = output->offset;
	header->header_xxh3 = XXH3_64bits(header, offsetof(struct pimg_header, header_xxh3));
	return 0;
}

static int rewriter_end_shard(struct packimg_rewriter *rewriter)
{
	struct pimg_header header;

	int r = rewriter_put_sections(rewriter, &header);
	if (r < 0)
		return r;
	r = output_flush(&rewriter->output);
	if (r < 0)
		return r;
	r = io_write_at(rewriter->output.fd, &header, sizeof(header), 0);
	if (r < 0)
		return r;
	if (fsync(rewriter->output.fd) < 0)
		return -errno;
	rewriter->written += rewriter->output.offset;
	output_deinit(&rewriter->output);
	rewriter->shard_number++;
	return 0;
}

/*
 * Ends the shard if all its samples are written, and begins the next one. No shard is open after
 * the last sample.
 */
static int follow_shards(struct packimg_rewriter *rewriter)
{
	const struct packimg *dataset = rewriter->dataset;

	while (rewriter->shard_number < dataset->shard_count) {
		const struct shard *shard = &dataset->shards[rewriter->shard_number];
		int r = rewriter->output.fd < 0 ? rewriter_begin_shard(rewriter) : 0;

		if (r < 0)
			return r;
		if (rewriter->put < shard->sample_first + shard->sample_count)
			return 0;
		r = rewriter_end_shard(rewriter);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Builds the sample's new side data in rewriter->side. */
static int rewriter_compose_side(struct packimg_rewriter *rewriter,
				 const struct packimg_sample *sample, const uint8_t *jpeg_index,
				 size_t jpeg_index_size, size_t *ret_size)
{
	int r = scratch_reserve(&rewriter->side, sample->side_size + jpeg_index_size + 1);
	if (r < 0)
		return r;
	if (jpeg_index)
		return side_data_replace(sample->side, sample->side_size, PIMG_SIDE_JPEG_INDEX,
					 jpeg_index, jpeg_index_size, rewriter->side.data,
					 ret_size);
	if (sample->side_size > 0)
		memcpy(rewriter->side.data, sample->side, sample->side_size);
	*ret_size = sample->side_size;
	return 0;
}

static int rewriter_put_sample(struct packimg_rewriter *rewriter,
			       const struct packimg_sample *sample, const uint8_t *jpeg_index,
			       size_t jpeg_index_size, struct pimg_record *record)
{
	bool shared = sample->data == rewriter->last.data &&
		      sample->data_size == rewriter->last.data_size;
	size_t side_size;
	int r = rewriter_compose_side(rewriter, sample, jpeg_index, jpeg_index_size, &side_size);

	if (r == 0 && shared)
		record->data_offset = rewriter->last_record.data_offset;
	else if (r == 0)
		r = output_put(&rewriter->output, sample->data, sample->data_size,
			       &record->data_offset);
	if (r < 0)
		return r;
	record->data_size = sample->data_size;
	record->side_size = (uint32_t)side_size;
	record->side_offset = 0;
	/* Unchanged side data keeps its checksum, even a wrong one. */
	if (jpeg_index)
		record->side_xxh3 = side_size > 0 ? XXH3_64bits(rewriter->side.data, side_size) : 0;
	if (side_size > 0 && shared && side_size == rewriter->last_side_size &&
	    memcmp(rewriter->side.data, rewriter->last_side.data, side_size) == 0)
		record->side_offset = rewriter->last_record.side_offset;
	else if (side_size > 0)
		r = output_put(&rewriter->output, rewriter->side.data, side_size,
			       &record->side_offset);
	struct scratch side = rewriter->last_side;
	rewriter->last_side = rewriter->side;
	rewriter->side = side;
	rewriter->last_side_size = side_size;
	rewriter->last = *sample;
	rewriter->last_record = *record;
	return r;
}

static int rewriter_put_next(struct packimg_rewriter *rewriter, const uint8_t *jpeg_index,
			     size_t jpeg_index_size)
{
	struct packimg_sample sample;

	int r = follow_shards(rewriter);
	if (r < 0)
		return r;
	r = packimg_sample(rewriter->dataset, rewriter->order[rewriter->put], &sample);
	if (r < 0)
		return r;
	const struct shard *shard = &rewriter->dataset->shards[rewriter->shard_number];
	uint64_t i = sample.index - shard->sample_first;
	struct pimg_record *record = &rewriter->records[i];

	copy_once(record, shard->sections[PIMG_SECTION_INDEX].data + i * sizeof(*record),
		  sizeof(*record));
	r = rewriter_put_sample(rewriter, &sample, jpeg_index, jpeg_index_size, record);
	r = r ?: image_copier_put(&rewriter->images, i, rewriter->image_indexes, &rewriter->output);
	memset(rewriter->image_indexes, 0, sizeof(rewriter->image_indexes));
	return r;
}

int packimg_rewriter_put(struct packimg_rewriter *rewriter, const uint8_t *jpeg_index,
			 size_t jpeg_index_size, struct packimg_error *error)
{
	if (rewriter->put == rewriter->dataset->sample_count)
		return packimg_fail(error, -EINVAL, "%s: has no further sample",
				    rewriter->dataset->shards[0].path);
	int r = rewriter_put_next(rewriter, jpeg_index, jpeg_index_size);
	if (r < 0)
		return fail_path(rewriter, r, error);
	rewriter->put++;
	return 0;
}

int packimg_rewriter_image(struct packimg_rewriter *rewriter, uint32_t image,
			   const uint8_t *jpeg_index, size_t jpeg_index_size,
			   struct packimg_error *error)
{
	if (image >= rewriter->dataset->image_count)
		return packimg_fail(error, -EINVAL, "%s: image %" PRIu32 ": there is no such image",
				    rewriter->dataset->shards[0].path, image);
	rewriter->image_indexes[image] = (struct image_index){jpeg_index, jpeg_index_size};
	return 0;
}

int packimg_rewriter_finish(struct packimg_rewriter *rewriter, struct packimg_error *error)
{
	const struct packimg *dataset = rewriter->dataset;

	if (rewriter->put < dataset->sample_count)
		return packimg_fail(error, -EINVAL, "%s: samples are missing",
				    dataset->shards[0].path);
	int r = follow_shards(rewriter);
	if (r < 0)
		return fail_path(rewriter, r, error);
	for (uint32_t i = 0; i < dataset->shard_count; i++) {
		r = temp_files_commit(&rewriter->temp_files, i, rewriter->targets[i]);
		if (r < 0)
			return packimg_fail(error, r,
					    "%s: cannot be replaced: %s (%" PRIu32
					    " shards before it were replaced; the set is complete)",
					    rewriter->targets[i], strerror(-r), i);
	}
	r = io_sync_folder(rewriter->temp_files.directory);
	return r < 0 ? packimg_fail(error, r, "%s: %s", rewriter->targets[0], strerror(-r)) : 0;
}
