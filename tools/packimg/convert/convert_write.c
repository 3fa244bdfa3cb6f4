/* Second half of a conversion: workers encode samples, the main thread writes them. */
#include "format/base/schema.h"
#include "format/base/system/clock.h"
#include "tools/packimg/common/parallel_map.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/convert/convert.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	/* common limit in bytes of archive members, results, and the catalogue's memory */
	BYTES_HELD = 256 << 20,
	/* bytes of the catalogue after which its file pages are dropped */
	VALUES_TOUCHED = 16 << 20,
	METADATA_LINES_MAX = 100,
	/* limit added per thread; also, bytes of archive members that fill a block */
	BLOCK_BYTES = 32 << 20,
};

/* Result of one sample; its bytes are in its block. */
struct outcome {
	int status; /* 0, or a negative errno whose message is in `error` */
	struct packimg_error error;
	struct encoded_sample encoded;
	size_t offset, source_size;
	struct statistics statistics;
};

struct worker {
	struct sample_encoder sample_encoder;
	struct buffer
		streamed; /* members of compressed archives, read when their block is claimed */
	struct {
		int status;
		size_t offset, size;
	} members[PARALLEL_MAP_BLOCK_MAX];
};

/* State of the main thread while the workers encode. */
struct writing {
	struct convert *convert;
	struct progress progress;
	struct buffer scratch; /* memory for converted values */
	uint64_t touched; /* bytes of the catalogue read since its file pages were last dropped */
	struct packimg_error *error;
};

static int worker_init(void *context, void *worker)
{
	const struct writing *writing = context;

	return sample_encoder_init(&((struct worker *)worker)->sample_encoder,
				   &writing->convert->options.encoding);
}

static void worker_deinit(void *argument)
{
	struct worker *worker = argument;

	sample_encoder_deinit(&worker->sample_encoder);
	buffer_deinit(&worker->streamed);
}

/*
 * Reads members of compressed archives, which must be read in order. A few bytes of an archive can
 * be many images, or large ones.
 */
static void read_streams(void *context, void *argument, struct work_block *block)
{
	uint64_t bytes = 0;

	struct convert *convert = ((struct writing *)context)->convert;
	struct worker *worker = argument;
	struct outcome *outcomes = block->results;

	worker->streamed.size = 0;
	for (uint32_t i = 0; i < block->count; i++) {
		const struct catalog_sample *sample = &convert->catalog.samples[block->first + i];

		if (sample->location.kind != LOCATION_STREAM) {
			bytes += sample->location.size;
			if (bytes > BLOCK_BYTES)
				block->count = i + 1;
			continue;
		}
		worker->members[i].offset = worker->streamed.size;
		worker->members[i].status =
			blob_store_read_stream(&convert->catalog.blobs, &sample->location,
					       &worker->streamed, &outcomes[i].error);
		if (worker->members[i].status)
			worker->streamed.size = worker->members[i].offset;
		worker->members[i].size = worker->streamed.size - worker->members[i].offset;
		bytes += worker->members[i].size;
		if (bytes > BLOCK_BYTES)
			block->count = i + 1;
	}
	/* twice, because decoders copy a JPEG */
	block->held = 2 * bytes;
}

/*
 * Returns true if the image contributes to the statistics. Under verbatim every n-th image does;
 * otherwise all do, because their pixels are decoded anyway.
 */
static bool in_statistics(const struct convert *convert, uint64_t index)
{
	uint64_t wanted = convert->options.statistics, count = convert->catalog.count;

	if (!convert->options.encoding.verbatim || wanted >= count)
		return wanted > 0;
	return (unsigned __int128)index * wanted / count !=
	       (unsigned __int128)(index + 1) * wanted / count;
}

/*
 * Takes the bytes of a member of a compressed archive. If it is the only one of its block, it may
 * be large, so its buffer is swapped instead of copied.
 */
static int take_streamed(struct worker *worker, struct work_block *block, uint32_t number)
{
	if (block->count == 1) {
		struct buffer free = block->bytes;

		block->bytes = worker->streamed;
		worker->streamed = free;
		return 0;
	}
	return buffer_append(&block->bytes, worker->streamed.data + worker->members[number].offset,
			     worker->members[number].size);
}

static void encode_sample(void *context, void *argument, struct work_block *block, uint32_t number)
{
	const struct convert *convert = ((const struct writing *)context)->convert;
	struct worker *worker = argument;
	const uint64_t index = block->first + number;
	const struct catalog_sample *sample = &convert->catalog.samples[index];
	struct outcome *outcome = (struct outcome *)block->results + number;
	struct buffer *bytes = &block->bytes;
	size_t offset = bytes->size;

	outcome->offset = offset;
	outcome->statistics = (struct statistics){0};
	if (sample->location.kind != LOCATION_STREAM) {
		outcome->status = blob_store_read(&convert->catalog.blobs, &sample->location, bytes,
						  &outcome->error);
	} else {
		outcome->status = worker->members[number].status;
		if (!outcome->status && take_streamed(worker, block, number))
			outcome->status = packimg_fail(&outcome->error, -ENOMEM, "out of memory");
	}
	outcome->source_size = bytes->size - offset;
	if (!outcome->status && buffer_reserve(bytes, bytes->size + IMAGE_PADDING))
		outcome->status = packimg_fail(&outcome->error, -ENOMEM, "out of memory");
	if (!outcome->status)
		outcome->status = sample_encoder_encode(
			&worker->sample_encoder, sample->name, bytes, offset,
			in_statistics(convert, index) ? &outcome->statistics : NULL,
			&outcome->encoded, &outcome->error);
	if (outcome->status)
		bytes->size = offset;
	if (number + 1 == block->count && worker->streamed.capacity > 2 * BLOCK_BYTES)
		buffer_deinit(&worker->streamed);
}

static int write_values(struct writing *writing, struct convert_part *part,
			const struct catalog_sample *sample)
{
	struct convert *convert = writing->convert;

	writing->touched += strlen(sample->name);
	for (uint32_t i = 0; i < sample->value_count; i++) {
		struct packimg_value value;

		writing->touched += sample->values[i].size;

		int r = catalog_value(&convert->catalog, &sample->values[i], &writing->scratch,
				      &value);
		if (r)
			return packimg_fail(
				writing->error, r, "%s: field \"%s\": %s", sample->name,
				convert->catalog.field_names.names[sample->values[i].field],
				strerror(-r));
		r = packimg_writer_value(part->writer, sample->values[i].field, &value,
					 writing->error);
		if (r)
			return r;
		if (value.size > convert->longest[sample->values[i].field].size)
			convert->longest[sample->values[i].field] =
				(struct convert_longest){value.size, sample->name};
	}
	if (writing->touched >= VALUES_TOUCHED) {
		arena_forget(&convert->catalog.arena);
		writing->touched = 0;
	}
	return 0;
}

static void count_labels(struct convert *convert, const struct catalog_sample *sample)
{
	size_t count;
	const int32_t *list = catalog_class_list(&convert->catalog, sample, &count);

	for (size_t i = 0; i < count; i++)
		convert->class_samples[list[i]]++;
	if (sample->label >= 0)
		convert->class_samples[sample->label]++;
	else if (!count && !convert->unlabelled++)
		convert->unlabelled_name = sample->name;
}

static int write_sample(void *context, const struct work_block *block, uint32_t number)
{
	struct writing *writing = context;
	struct convert *convert = writing->convert;
	struct packimg_error *error = writing->error;
	const struct catalog_sample *sample = &convert->catalog.samples[block->first + number];
	const struct outcome *outcome = (const struct outcome *)block->results + number;
	const struct encoded_sample *encoded = &outcome->encoded;
	struct convert_part *part = &convert->parts[sample->part];
	const uint8_t *data = block->bytes.data + outcome->offset;

	convert->bytes_in += outcome->source_size;
	if (outcome->status) {
		if (convert->options.fail_on_error || outcome->status == -ENOMEM) {
			*error = outcome->error;
			return text_error_prefix(error, outcome->status, "%s", sample->name);
		}
		return convert_skip(convert, sample->name, outcome->error.text);
	}
	struct packimg_item item = (struct packimg_item){
		.data = data,
		.data_size = encoded->data_size,
		.side = encoded->side_size ? data + encoded->data_size : NULL,
		.side_size = encoded->side_size,
		.width = encoded->width,
		.height = encoded->height,
		.label = sample->label,
		.codec = encoded->codec,
		.channels = encoded->channels,
		.orientation = encoded->orientation,
		.source = sample->name,
		.source_size = strlen(sample->name),
	};
	int r = packimg_writer_add(part->writer, &item, error);
	if (r)
		return text_error_prefix(error, r, "%s", sample->name);
	statistics_add(&part->statistics, &outcome->statistics);
	part->samples++;
	convert->verbatim += encoded->verbatim;
	convert->transcoded += encoded->transcoded;
	convert->unindexed.counts[encoded->unindexed]++;
	convert->kinds[encoded->kind]++;
	convert->codecs[encoded->codec]++;
	convert->indexed += encoded->side_size > 0;
	convert->lossy[encoded->kind] +=
		encoded->kind != IMAGE_JPEG && encoded->codec == PACKIMG_CODEC_JPEG;
	count_labels(convert, sample);
	return write_values(writing, part, sample);
}

static int add_to_schema(struct schema *schema, const char *name, const struct catalog_field *field,
			 struct packimg_error *error)
{
	static const struct {
		enum schema_role role;
		enum schema_element element;
	} kinds[] = {
		[PACKIMG_FIELD_INT64] = {SCHEMA_VALUE, SCHEMA_I64},
		[PACKIMG_FIELD_FLOAT64] = {SCHEMA_VALUE, SCHEMA_F64},
		[PACKIMG_FIELD_BYTES] = {SCHEMA_BYTES, SCHEMA_NO_ELEMENT},
		[PACKIMG_FIELD_JSON] = {SCHEMA_JSON, SCHEMA_NO_ELEMENT},
		[PACKIMG_FIELD_TEXT] = {SCHEMA_TEXT, SCHEMA_NO_ELEMENT},
	};
	struct schema_value value = {
		.role = kinds[field->type].role,
		.element = kinds[field->type].element,
		.flags = SCHEMA_SPARSE,
		.of = SCHEMA_OF_NONE,
	};

	if (field->kinds[VALUE_CLASSES]) {
		value.role = SCHEMA_CLASS;
		value.element = SCHEMA_I32;
		value.dims = 1;
	}
	if (strlen(name) > SCHEMA_NAME_MAX || schema_add(schema, &value))
		return packimg_fail(error, -E2BIG,
				    "field \"%.80s\": with a list of classes, a dataset holds at "
				    "most %d fields of names of %d bytes; --labels field leaves "
				    "labels as text",
				    name, SCHEMA_VALUES_MAX - 4, SCHEMA_NAME_MAX);
	strcpy(schema->values[schema->count - 1].name, name);
	return 0;
}

/* Declares all fields in a schema, which alone can say that one is a list of classes. */
static int set_schema(const struct convert *convert, struct convert_part *part,
		      struct packimg_error *error)
{
	const struct name_table *names = &convert->catalog.field_names;
	struct schema schema = {.count = 1};
	struct schema_value *image = &schema.values[0];
	char longest[SCHEMA_NAME_MAX + 1];
	const char *name = schema_longest_name("image", longest);
	uint32_t number;
	int r = 0;

	while (name > longest && !name_table_find(names, name, &number))
		name--;
	*image = (struct schema_value){.role = SCHEMA_IMAGE,
				       .element = SCHEMA_U8,
				       .dims = 3,
				       .shape = {0, 0, 3},
				       .of = SCHEMA_OF_NONE};
	strcpy(image->name, name);
	for (uint32_t f = 0; !r && f < names->count; f++)
		r = add_to_schema(&schema, names->names[f], &convert->catalog.fields[f], error);
	if (r)
		return r;
	char *text = malloc(SCHEMA_TEXT_MAX);
	if (!text)
		return packimg_fail(error, -ENOMEM, "out of memory");
	schema_print(&schema, text, SCHEMA_TEXT_MAX);
	r = packimg_writer_schema(part->writer, text, error);
	free(text);
	return r;
}

static int open_part(struct convert *convert, struct convert_part *part,
		     struct packimg_error *error)
{
	const struct packimg_writer_options options = {.shard_size = convert->options.shard_size};
	const struct catalog *catalog = &convert->catalog;

	int r = packimg_writer_new(part->written, &options, &part->writer, error);
	if (r)
		return r;
	r = packimg_writer_classes(part->writer, catalog->classes, catalog->class_count, error);
	if (r)
		return r;
	r = catalog->label_list_sample ? set_schema(convert, part, error) : 0;
	if (r)
		return r;
	/* Every part gets every field, with the field numbers of the catalogue. */
	for (uint32_t f = 0; f < catalog->field_names.count; f++) {
		const char *name = catalog->field_names.names[f];
		uint32_t number;

		r = packimg_writer_field(part->writer, name, catalog->fields[f].type, &number,
					 error);
		if (r)
			return r;
		if (number != f)
			return packimg_fail(error, -EINVAL, "field \"%s\" is listed twice", name);
	}
	return 0;
}

static int open_parts(struct convert *convert, struct packimg_error *error)
{
	for (uint32_t p = 0; p < convert->part_count; p++) {
		int r = open_part(convert, &convert->parts[p], error);
		if (r)
			return r;
	}
	return 0;
}

/*
 * Writes the options that determined the bytes in a fixed notation, without jobs and output paths.
 */
static void describe_encoding(FILE *file, const struct convert *convert)
{
	const struct convert_options *options = &convert->options;
	const struct sample_encoder_options *encoding = &options->encoding;

	fprintf(file, "jpeg=%s", encoding->verbatim ? "verbatim" : "");
	if (!encoding->verbatim)
		fprintf(file, "quality:%d", encoding->quality);
	if (encoding->max_side)
		fprintf(file, " max-side=%u", encoding->max_side);
	if (encoding->short_side)
		fprintf(file, " short-side=%u", encoding->short_side);
	if (encoding->raw_fraction > 0)
		fprintf(file, " raw=%g", encoding->raw_fraction);
	if (encoding->raw_zstd)
		fprintf(file, " zstd=%d", encoding->zstd_level);
	fprintf(file, "%s%s%s", encoding->no_index ? " no-index" : "",
		encoding->transcode ? " progressive=transcode" : "",
		encoding->optimise ? " optimise" : "");
	if (options->shuffle)
		fprintf(file, " shuffle=%" PRIu64, options->seed);
	if (options->source.labels)
		fprintf(file, " labels=%s",
			options->source.labels == LABELS_FIELD ? "field" : "classes");
	if (options->source.label_separator == LABEL_SEPARATOR_NONE)
		fputs(" label-separator=none", file);
	else if (options->source.label_separator)
		fprintf(file, " label-separator=%c", options->source.label_separator);
	if (options->limit)
		fprintf(file, " limit=%" PRIu64, options->limit);
}

static void list_sources(FILE *file, const struct convert *convert)
{
	const struct string_list *sources = convert->options.sources;

	for (size_t i = 0; i < sources->count && i < METADATA_LINES_MAX; i++)
		fprintf(file, "%s%s", i ? "\n" : "", sources->strings[i]);
}

static void list_patterns(FILE *file, const struct convert *convert)
{
	const struct filter *filter = &convert->options.filter;

	for (size_t i = 0; i < filter->count && i < METADATA_LINES_MAX; i++)
		fprintf(file, "%s%s %s", i ? "\n" : "",
			filter->patterns[i].exclude ? "exclude" : "include",
			filter->patterns[i].text);
}

/* Stores the output of `say` as metadata under this key. */
static int write_text(const struct convert *convert, struct convert_part *part, const char *key,
		      void (*say)(FILE *, const struct convert *), struct packimg_error *error)
{
	char *text = NULL;
	size_t size;
	FILE *file = open_memstream(&text, &size);

	if (file)
		say(file, convert);
	int r = !file || fclose(file) ? packimg_fail(error, -ENOMEM, "out of memory")
				      : packimg_writer_metadata(part->writer, key, text, error);
	free(text);
	return r;
}

static int write_metadata(struct convert *convert, struct convert_part *part,
			  struct packimg_error *error)
{
	char number[32];

	int r = write_text(convert, part, "packimg.options", describe_encoding, error);
	if (r)
		return r;
	/* A path or pattern that is not UTF-8 is no error. */
	if (write_text(convert, part, "packimg.sources", list_sources, error) == -ENOMEM)
		return -ENOMEM;
	if (convert->options.filter.count &&
	    write_text(convert, part, "packimg.filter", list_patterns, error) == -ENOMEM)
		return -ENOMEM;
	if (!part->name)
		return 0;
	r = packimg_writer_metadata(part->writer, "packimg.split", part->name, error);
	if (r || part->fraction <= 0)
		return r;
	snprintf(number, sizeof(number), "%g", part->fraction);
	return packimg_writer_metadata(part->writer, "packimg.split.fraction", number, error);
}

int convert_write_dataset_info(struct packimg_writer *writer, const struct statistics *statistics,
			       struct packimg_error *error)
{
	int r = packimg_writer_metadata(writer, "producer", "packimg " PACKIMG_TOOL_VERSION, error);

	return r ? r : statistics_write(statistics, writer, error);
}

static int finish_parts(struct convert *convert, struct packimg_error *error)
{
	for (uint32_t p = 0; p < convert->part_count; p++) {
		struct convert_part *part = &convert->parts[p];

		int r = write_metadata(convert, part, error);
		if (r)
			return r;
		r = convert_write_dataset_info(part->writer, &part->statistics, error);
		if (r)
			return r;
		r = packimg_writer_finish(part->writer, error);
		if (r)
			return r;
		part->bytes = packimg_writer_bytes(part->writer);
	}
	return 0;
}

static int write_samples(struct convert *convert, struct packimg_error *error)
{
	const struct sample_encoder_options *encoding = &convert->options.encoding;
	struct writing writing = {.convert = convert, .error = error};
	const struct parallel_map_options setup = {
		.jobs = convert->options.jobs,
		.total = convert->catalog.count,
		/*
		 * Reading a sample takes microseconds, encoding it milliseconds: the blocks are so
		 * large that the hand-over is negligible for both.
		 */
		.block = encoding->verbatim && encoding->raw_fraction == 0 ? 16 : 2,
		.result_size = sizeof(struct outcome),
		.bytes_max = BYTES_HELD - convert->catalog.arena.held +
			     (uint64_t)convert->options.jobs * BLOCK_BYTES,
		.context = &writing,
		.worker_size = sizeof(struct worker),
		.worker_init = worker_init,
		.worker_deinit = worker_deinit,
		.claim = read_streams,
		.run = encode_sample,
		.take = write_sample,
		.stopped = command_interrupted,
		.progress = &writing.progress,
		.bytes = &convert->bytes_in,
	};
	int fault;

	progress_init(&writing.progress, "converting", convert->catalog.count,
		      convert->options.quiet);
	int r = parallel_map(&setup, &fault);
	buffer_deinit(&writing.scratch);
	return fault ? packimg_fail(error, fault, "starting workers: %s", strerror(-fault)) : r;
}

static int write_parts(struct convert *convert, struct packimg_error *error)
{
	convert->class_samples =
		arena_array(&convert->catalog.arena,
			    convert->catalog.class_count * sizeof(*convert->class_samples));
	if (!convert->class_samples)
		return packimg_fail(error, -ENOMEM, "out of memory");
	int r = open_parts(convert, error);
	if (r)
		return r;
	r = write_samples(convert, error);
	if (r)
		return r;
	if (!convert_sample_count(convert))
		return convert_nothing(convert, error);
	return finish_parts(convert, error);
}

int convert_write(struct convert *convert, struct packimg_error *error)
{
	double start_s = clock_s(CLOCK_MONOTONIC);

	int r = write_parts(convert, error);
	for (uint32_t p = 0; p < convert->part_count; p++) {
		packimg_writer_free(convert->parts[p].writer);
		convert->parts[p].writer = NULL;
	}
	convert->write_s = clock_s(CLOCK_MONOTONIC) - start_s;
	return r;
}
