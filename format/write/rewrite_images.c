#include "format/write/rewrite_images.h"

#include "format/codec/side_data.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/*
 * Records that share bytes. `data` is the number of the first record with the same data, `side`
 * that of the first with the same data and side data.
 */
struct image_share {
	uint64_t data, side;
	uint64_t data_offset, side_offset; /* in the old file */
	uint32_t data_size, side_size;
	/*
	 * offsets in the new file, once written; only in the records that `data` and `side` refer
	 * to
	 */
	uint64_t new_data, new_side, new_side_xxh3;
	uint32_t new_side_size;
};

/* Location of an image. A copy, because a sort may not terminate if its keys change meanwhile. */
struct image_location {
	uint64_t offset, side_offset, number;
};

static int compare_locations(const void *a, const void *b)
{
	const struct image_location *p = a, *q = b;

	if (p->offset != q->offset)
		return p->offset < q->offset ? -1 : 1;
	if (p->side_offset != q->side_offset)
		return p->side_offset < q->side_offset ? -1 : 1;
	return p->number < q->number ? -1 : p->number > q->number;
}

/* Reads the locations of all records. */
static void copier_read(struct image_copier *copier, struct image_location *locations)
{
	for (uint64_t i = 0; i < copier->count; i++) {
		struct pimg_record record;

		copy_once(&record,
			  copier->shard->sections[PIMG_SECTION_IMAGES].data + i * sizeof(record),
			  sizeof(record));
		locations[i] = (struct image_location){record.data_offset, record.side_offset, i};
		copier->shares[i] = (struct image_share){
			.data = i,
			.side = i,
			.data_offset = record.data_offset,
			.data_size = record.data_size,
			.side_offset = record.side_offset,
			.side_size = record.side_size,
		};
	}
}

/*
 * Finds the records that share data, and checks that the copies are not larger than the old file.
 */
static int copier_find_shares(struct image_copier *copier, struct image_location *locations)
{
	uint64_t size = 0;

	copier_read(copier, locations);
	qsort(locations, copier->count, sizeof(*locations), compare_locations);
	for (uint64_t i = 0; i < copier->count && size <= copier->shard->size; i++) {
		struct image_share *share = &copier->shares[locations[i].number];
		const struct image_share *before =
			i > 0 ? &copier->shares[locations[i - 1].number] : NULL;
		bool same_data = before && before->data_offset == share->data_offset &&
				 before->data_size == share->data_size;
		bool same_side = same_data && before->side_offset == share->side_offset &&
				 before->side_size == share->side_size;

		if (same_data)
			share->data = before->data;
		if (same_side)
			share->side = before->side;
		size += same_data ? 0 : share->data_size;
		size += same_side ? 0 : share->side_size;
	}
	return size > copier->shard->size ? -EBADMSG : 0;
}

int image_copier_init(struct image_copier *copier, const struct packimg *dataset,
		      const struct shard *shard)
{
	*copier = (struct image_copier){
		.dataset = dataset,
		.shard = shard,
		.count = shard->sample_count * dataset->image_count,
	};
	copier->records = calloc(copier->count + 1, sizeof(*copier->records));
	copier->shares = calloc(copier->count + 1, sizeof(*copier->shares));
	struct image_location *locations = calloc(copier->count + 1, sizeof(*locations));
	int r = copier->records && copier->shares && locations
			? copier_find_shares(copier, locations)
			: -ENOMEM;
	free(locations);
	return r;
}

void image_copier_deinit(struct image_copier *copier)
{
	free(copier->records);
	free(copier->shares);
	scratch_deinit(&copier->side);
	*copier = (struct image_copier){0};
}

/* Composes the new side data. Sets side, side_size and side_xxh3 of the image. */
static int copier_compose_side(struct image_copier *copier, const struct image_index *index,
			       struct packimg_sample *image)
{
	size_t size;

	if (!index->bytes)
		return 0;
	int r = scratch_reserve(&copier->side, image->side_size + index->size + 1);
	r = r
		    ?: side_data_replace(image->side, image->side_size, PIMG_SIDE_JPEG_INDEX,
					 index->bytes, index->size, copier->side.data, &size);
	if (r < 0)
		return r;
	image->side = copier->side.data;
	image->side_size = (uint32_t)size;
	image->side_xxh3 = size > 0 ? XXH3_64bits(copier->side.data, size) : 0;
	return 0;
}

/*
 * Writes side data unless a record that shared it has already written the same bytes. Records with
 * a new index do not share theirs any longer.
 */
static int copier_put_side(struct image_share *shared, const struct packimg_sample *image,
			   struct output *output, uint64_t *ret_offset)
{
	if (shared->new_side && shared->new_side_size == image->side_size &&
	    shared->new_side_xxh3 == image->side_xxh3) {
		*ret_offset = shared->new_side;
		return 0;
	}
	int r = output_put(output, image->side, image->side_size, ret_offset);
	if (r == 0 && !shared->new_side) {
		shared->new_side = *ret_offset;
		shared->new_side_size = image->side_size;
		shared->new_side_xxh3 = image->side_xxh3;
	}
	return r;
}

/* Writes the data, and the side data, unless a record that shares them has written them. */
static int copier_put_stored(struct image_copier *copier, const struct image_share *share,
			     const struct packimg_sample *image, struct output *output,
			     struct pimg_record *record)
{
	struct image_share *shared = &copier->shares[share->data];
	int r = 0;

	if (!shared->new_data)
		r = output_put(output, image->data, image->data_size, &shared->new_data);
	record->data_offset = shared->new_data;
	if (r < 0 || image->side_size == 0)
		return r;
	return copier_put_side(&copier->shares[share->side], image, output, &record->side_offset);
}

/* Copies image `image_number` of the dataset's sample `index` as record `number`. */
static int copier_put_image(struct image_copier *copier, uint64_t number, uint64_t index,
			    uint32_t image_number, const struct image_index *jpeg_index,
			    struct output *output)
{
	const struct image_share *share = &copier->shares[number];
	struct packimg_sample image;

	int r = packimg_image(copier->dataset, index, image_number, &image);
	if (r < 0)
		return r == -ENODATA ? 0 : r;
	/* Refuse a record that has changed since the shares were found. */
	if (image.data_offset != share->data_offset || image.data_size != share->data_size ||
	    image.side_size != share->side_size)
		return -EBADMSG;
	r = copier_compose_side(copier, jpeg_index, &image);
	if (r < 0)
		return r;
	struct pimg_record record = {
		.data_xxh3 = image.data_xxh3,
		.side_xxh3 = image.side_xxh3,
		.data_size = image.data_size,
		.side_size = image.side_size,
		.width = image.width,
		.height = image.height,
		.codec = image.codec,
		.channels = image.channels,
		.orientation = image.orientation,
	};
	r = copier_put_stored(copier, share, &image, output, &record);
	copier->records[number] = record;
	return r;
}

int image_copier_put(struct image_copier *copier, uint64_t i,
		     const struct image_index indexes[static SCHEMA_IMAGES_MAX],
		     struct output *output)
{
	uint32_t each = copier->dataset->image_count;
	int r = 0;

	for (uint32_t k = 0; k < each && r == 0; k++)
		r = copier_put_image(copier, i * each + k, copier->shard->sample_first + i, k,
				     &indexes[k], output);
	return r;
}
