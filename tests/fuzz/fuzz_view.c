/*
 * Arbitrary bytes as a .pimg file for packimg view: shows it as stored and as delivered by a
 * pipeline, as a page and as a sheet. First recomputes all checksums, which mutations would
 * otherwise not get past; libFuzzer's mutations repair them too.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/support/source_files.h"
#include "tests/fuzz/support/whole_file.h"
#include "tools/packimg/view/page.h"
#include "tools/packimg/view/sheet.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	MEMORY_MAX = 16 << 20,
	PIXELS_MAX = 1 << 16, /* larger images would only be slow */
	SAMPLES_MAX = 4,
	SIDE = 24,
	PANELS = 2, /* as stored, as delivered */
};

static const char pipeline_text[] = "random_resized_crop(20) hflip random_rotation(30) "
				    "sanitize_boxes(min_size=2) normalize(imagenet) to(f16)";

static void check(bool holds, const char *what)
{
	if (!holds)
		source_files_die(what);
}

struct outputs {
	struct panel_maker maker;
	struct panel panel;
	struct page page;
	struct sheet sheet;
};

/* Returns true if all pictures of the sample are small. */
static bool is_small(const struct packimg *dataset, const struct packimg_sample *sample)
{
	uint64_t pixels = (uint64_t)sample->width * sample->height;

	for (uint32_t i = 0; i < packimg_image_count(dataset); i++) {
		struct packimg_sample image;

		if (packimg_image(dataset, sample->index, i, &image) == 0)
			pixels += (uint64_t)image.width * image.height;
	}
	return pixels <= PIXELS_MAX;
}

static bool show_picture(struct outputs *outputs, const struct packimg_sample *sample,
			 unsigned number, unsigned delivered)
{
	struct packimg_error error;
	struct panel *panel = &outputs->panel;
	const unsigned value = outputs->maker.values[number];
	int r = delivered ? panel_delivered(&outputs->maker, sample, value, panel)
			  : panel_stored(&outputs->maker, sample, value, panel);

	if (r < 0)
		return false;
	check((panel->width > 0) == (panel->fault[0] == '\0'), "no reason for a missing picture");
	check(r == 0 || panel->width == 0, "a picture of a damaged sample");
	check(panel->shapes.count <= SHAPES_MAX && panel->shapes.point_count <= SHAPE_POINTS_MAX,
	      "too many shapes");
	page_add_picture(&outputs->page, panel, sample->index, &error);
	sheet_add_picture(&outputs->sheet, panel, delivered, number);
	return true;
}

static void show_sample(struct outputs *outputs, const struct packimg *dataset,
			const struct packimg_sample *sample)
{
	struct packimg_error error;
	struct sample_texts texts = {0};

	page_begin_sample(&outputs->page, sample);
	for (unsigned i = 0; i < PANELS * outputs->maker.value_count; i++)
		if (!show_picture(outputs, sample, i / PANELS, i % PANELS))
			return;
	if (sample_texts_make(dataset, sample, &texts) == 0) {
		page_end_sample(&outputs->page, "title", &texts, &error);
		sheet_end_sample(&outputs->sheet, "title", "key");
	}
	sample_texts_free(&texts);
}

static void show(struct outputs *outputs, const struct packimg *dataset, const char *path)
{
	static const uint64_t samples[SAMPLES_MAX] = {0, 1, 2, 3};
	struct panel_pipeline pipeline = {.text = pipeline_text};
	const struct page_head head = {
		"name", &pipeline, samples, SAMPLES_MAX, packimg_count(dataset), true};
	struct packimg_error error;
	struct buffer png = {0};

	check(panel_pipeline_open(&pipeline, dataset, &error) == 0, "the pipeline is refused");
	check(panel_maker_init(&outputs->maker, dataset, SIDE, &pipeline) == 0, "no memory");
	packimg_decoder_limit(outputs->maker.reader.decoder, MEMORY_MAX);
	pipeline_scratch_limit(outputs->maker.scratch, MEMORY_MAX);
	const struct sheet_cell cell = {PANELS, outputs->maker.value_count, true};
	check(sheet_init(&outputs->sheet, dataset, SAMPLES_MAX, &cell, SIDE, &error) == 0,
	      "no sheet");
	check(page_open(&outputs->page, dataset, path, &head, &error) == 0, "no page");
	for (uint64_t i = 0; i < SAMPLES_MAX && i < packimg_count(dataset); i++) {
		struct packimg_sample sample;

		if (packimg_sample(dataset, i, &sample) == 0 && is_small(dataset, &sample))
			show_sample(outputs, dataset, &sample);
	}
	check(sheet_write(&outputs->sheet, &png, &error) == 0, "no picture of the sheet");
	buffer_deinit(&png);
	page_close(&outputs->page, -EINTR, &error); /* removes the page */
	panel_pipeline_close(&pipeline);
}

static void show_file(int fd)
{
	static struct outputs outputs;
	char path[SOURCE_FILE_PATH];
	struct packimg *dataset;
	struct packimg_error error;

	if (packimg_open_fds("fuzz", &fd, 1, &dataset, &error) < 0) {
		close(fd);
		return;
	}
	source_files_write(path, "page.html", NULL, 0);
	show(&outputs, dataset, path);
	panel_deinit(&outputs.panel);
	panel_maker_deinit(&outputs.maker);
	sheet_deinit(&outputs.sheet);
	memset(&outputs, 0, sizeof(outputs));
	packimg_close(dataset);
	unlink(path);
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t size_max) __attribute__((weak));
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed)
{
	return whole_file_mutate(data, size, size_max, seed, LLVMFuzzerMutate);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	uint8_t *copy = malloc(size + 1);

	check(fd >= 0 && copy, "no memory");
	memcpy(copy, data, size);
	whole_file_repair(copy, size);
	if (write(fd, copy, size) == (ssize_t)size)
		show_file(fd);
	else
		close(fd);
	free(copy);
	return 0;
}
