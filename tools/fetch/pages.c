#include "tools/fetch/pages.h"
#include "format/header.h"
#include "tools/fetch/dataset.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static uint64_t page_count(const struct remote_dataset *dataset, uint32_t file)
{
	return (dataset->objects[file].size + PAGE_BYTES - 1) / PAGE_BYTES;
}

/* Pins the pages that have a part of a range of the file. */
static void pin(const struct remote_dataset *dataset, struct page_counts *pages, uint32_t file,
		uint64_t offset, uint64_t size)
{
	uint64_t end = (offset + size + PAGE_BYTES - 1) / PAGE_BYTES;

	for (uint64_t page = offset / PAGE_BYTES; page < end && page < page_count(dataset, file);
	     page++) {
		pages->used += pages->of_file[file][page] ? 0 : PAGE_BYTES;
		pages->of_file[file][page] = UINT8_MAX;
	}
}

/* The file is in the user's hands: its header is checked again. */
static int pin_sections(const struct remote_dataset *dataset, struct page_counts *pages,
			uint32_t file)
{
	struct packimg_error error;
	struct pimg_header header;
	int r = header_read(dataset->entry.fds[file], dataset->objects[file].address.shown, &header,
			    &error);

	if (r)
		return r;
	pin(dataset, pages, file, 0, sizeof(header));
	for (int i = 0; i < PIMG_SECTIONS_MAX; i++)
		if (header.sections[i].size)
			pin(dataset, pages, file, header.sections[i].offset,
			    header.sections[i].size);
	return 0;
}

/* Gives back what an earlier fetcher has left behind. */
static void trim_file(const struct remote_dataset *dataset, uint32_t file)
{
	int fd = dataset->entry.fds[file];
	off_t data = 0, hole = 0;

	while ((data = lseek(fd, hole, SEEK_DATA)) >= 0 &&
	       (hole = lseek(fd, data, SEEK_HOLE)) > data)
		pages_trim(dataset, file, (uint64_t)data, (uint64_t)hole);
}

int pages_new(struct remote_dataset *dataset)
{
	struct page_counts *pages = calloc(1, sizeof(*pages));
	int r = pages ? 0 : -ENOMEM;

	if (!r) {
		pages->of_file = calloc(dataset->file_count, sizeof(*pages->of_file));
		pages->file_count = pages->of_file ? dataset->file_count : 0;
		r = pages->of_file ? 0 : -ENOMEM;
	}
	for (uint32_t i = 0; !r && i < dataset->file_count; i++) {
		pages->of_file[i] = calloc(page_count(dataset, i), 1);
		r = pages->of_file[i] ? pin_sections(dataset, pages, i) : -ENOMEM;
	}
	if (r) {
		pages_free(pages);
		return r;
	}
	dataset->pages = pages;
	for (uint64_t i = 0; i < dataset->samples; i++)
		if (dataset->states[i] != SAMPLE_ABSENT)
			pages_add(dataset, i);
	for (uint32_t i = 0; i < dataset->file_count; i++)
		trim_file(dataset, i);
	return 0;
}

void pages_free(struct page_counts *pages)
{
	if (!pages)
		return;
	for (uint32_t i = 0; i < pages->file_count; i++)
		free(pages->of_file[i]);
	free(pages->of_file);
	free(pages);
}

/* Calls change() with each page of the parts of a sample; a record that has changed is ignored. */
static void each_page(const struct remote_dataset *dataset, uint64_t sample,
		      void (*change)(struct page_counts *pages, uint8_t *count))
{
	struct sample_part parts[SAMPLE_PARTS_MAX];
	unsigned count = dataset_parts(dataset, sample, 0, parts);

	for (unsigned i = 0; i < count; i++) {
		const struct sample_part *part = &parts[i];
		uint64_t end =
			(part->range.offset + part->range.size + PAGE_BYTES - 1) / PAGE_BYTES;

		for (uint64_t page = part->range.offset / PAGE_BYTES;
		     page < end && page < page_count(dataset, part->file); page++)
			change(dataset->pages, &dataset->pages->of_file[part->file][page]);
	}
}

static void count_up(struct page_counts *pages, uint8_t *count)
{
	pages->used += *count ? 0 : PAGE_BYTES;
	*count += *count < UINT8_MAX;
}

static void count_down(struct page_counts *pages, uint8_t *count)
{
	if (*count == 0 || *count == UINT8_MAX)
		return;
	pages->used -= --*count ? 0 : PAGE_BYTES;
}

void pages_add(const struct remote_dataset *dataset, uint64_t sample)
{
	each_page(dataset, sample, count_up);
}

void pages_remove(const struct remote_dataset *dataset, uint64_t sample)
{
	struct sample_part parts[SAMPLE_PARTS_MAX];
	unsigned count = dataset_parts(dataset, sample, 0, parts);

	each_page(dataset, sample, count_down);
	for (unsigned i = 0; i < count; i++)
		pages_trim(dataset, parts[i].file, parts[i].range.offset,
			   parts[i].range.offset + parts[i].range.size);
}

void pages_trim(const struct remote_dataset *dataset, uint32_t file, uint64_t begin, uint64_t end)
{
	const uint8_t *counts = dataset->pages->of_file[file];
	uint64_t page = begin / PAGE_BYTES, last = (end + PAGE_BYTES - 1) / PAGE_BYTES, first;

	if (last > page_count(dataset, file))
		last = page_count(dataset, file);
	while (page < last) {
		for (first = page; page < last && !counts[page];)
			page++;
		if (page > first)
			fallocate(dataset->entry.fds[file],
				  FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				  (off_t)(first * PAGE_BYTES),
				  (off_t)((page - first) * PAGE_BYTES));
		while (page < last && counts[page])
			page++;
	}
}
