#include "loaderd/order/sizes.h"

#include "format/hints.h"

void sizes_init(struct size_reader *reader, const struct packimg *dataset)
{
	reader->dataset = dataset;
	reader->listed = packimg_has_sizes(dataset);
	reader->first = reader->count = 0;
}

struct image_size sizes_at(struct size_reader *reader, uint64_t index)
{
	struct packimg_sample sample;
	uint64_t samples = packimg_count(reader->dataset), first = index - index % SIZES_CHUNK;
	if (reader->listed && index - reader->first >= reader->count) {
		uint64_t count = samples - first < SIZES_CHUNK ? samples - first : SIZES_CHUNK;
		bool read = packimg_sizes(reader->dataset, first, count, reader->chunk) == 0;
		reader->first = first;
		reader->count = read ? count : 0;
	}
	if (index - reader->first < reader->count) {
		const uint16_t *size = reader->chunk[index - reader->first];
		return (struct image_size){size[0], size[1]};
	}
	if (packimg_sample(reader->dataset, index, &sample) < 0)
		return (struct image_size){0, 0};
	return (struct image_size){sample.width, sample.height};
}
