/*
 * How many samples have bytes in each page of a dataset's files, of those that are there or under
 * way. A page is given back to the disk with the last of them, however small samples are, and what
 * the samples take on the disk is known. Only datasets that do not fit into the cache have this: a
 * byte for each page.
 */
#pragma once

#include <stdint.h>

#define PAGE_BYTES ((uint64_t)4096)

struct remote_dataset;

struct page_counts {
	uint32_t file_count;
	uint8_t **of_file; /* [file_count][pages of the file]; UINT8_MAX: it stays */
	uint64_t used;     /* bytes of pages whose count is not 0 */
};

/*
 * Sets dataset->pages: counts the samples by the dataset's states, and gives back all other pages;
 * header and sections stay. -ENOMEM, and errors of header_read().
 */
int pages_new(struct remote_dataset *dataset);
void pages_free(struct page_counts *pages);
/* A sample is under way or there; it no longer is. Only for dataset_set_state(). */
void pages_add(const struct remote_dataset *dataset, uint64_t sample);
void pages_remove(const struct remote_dataset *dataset, uint64_t sample);
/* Gives back the pages from `begin` to `end` of a file that no sample has. */
void pages_trim(const struct remote_dataset *dataset, uint32_t file, uint64_t begin, uint64_t end);
