/*
 * The HTML page of samples: one self-contained file with pictures as PNG in data URLs, annotations
 * as SVG, and filters in JavaScript. A Content-Security-Policy permits only its own style and
 * script and data URLs of pictures, and nothing from a network. All text from the dataset is
 * escaped. The page is written to a temporary file while samples are added. Owned by its creator,
 * used by one thread.
 */
#pragma once

#include "format/base/system/atomic_file.h"
#include "tools/packimg/view/panel.h"
#include "tools/packimg/view/sample_text.h"

#include <stdbool.h>

#define PAGE_BYTES_MAX (UINT64_C(256) << 20)

struct page {
	const struct packimg *dataset;
	struct atomic_file file;
	bool created;
	struct buffer text; /* not yet written */
	struct buffer png;
	uint64_t bytes; /* of the page so far */
	int r;          /* 0, or the first error of adding text */
};

/* Contents of the page above the samples. */
struct page_head {
	const char *name;                      /* name of the dataset; arbitrary bytes */
	const struct panel_pipeline *pipeline; /* NULL: as stored only */
	const uint64_t *samples;               /* indices of the samples shown */
	uint64_t count, found; /* number of samples shown, and of matching samples */
	bool several;          /* samples have several pictures as stored */
};

/* Creates the temporary file and writes the head. page_close() in any case. */
int page_open(struct page *page, const struct packimg *dataset, const char *path,
	      const struct page_head *head, struct packimg_error *error);
/*
 * Begins a sample. Add its pictures then, and end it with its caption and its texts. These return
 * -E2BIG with a message if the page would exceed PAGE_BYTES_MAX.
 */
void page_begin_sample(struct page *page, const struct packimg_sample *sample);
int page_add_picture(struct page *page, const struct panel *panel, uint64_t index,
		     struct packimg_error *error);
int page_end_sample(struct page *page, const char *title, const struct sample_texts *texts,
		    struct packimg_error *error);
/* Completes the page if r is 0, else removes it. Returns r or an error with a message. */
int page_close(struct page *page, int r, struct packimg_error *error);
