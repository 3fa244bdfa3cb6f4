#include "tools/packimg/view/page.h"

#include "format/base/text/printable.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/view/colours.h"
#include "tools/packimg/view/page_assets.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	PAGE_FLUSH = 1 << 20, /* bytes that are written together */
	/* Pictures with a shorter side are shown with sharp pixels. */
	PAGE_SMALL = 128,
};

/* ---- text ---- */

static void put_bytes(struct page *page, const void *bytes, size_t size)
{
	if (!page->r)
		page->r = buffer_append(&page->text, bytes, size);
}

static void put_string(struct page *page, const char *text)
{
	put_bytes(page, text, strlen(text));
}

/* Appends markup. Use put_text() for all text from the dataset. */
__attribute__((format(printf, 2, 3))) static void put_format(struct page *page, const char *format,
							     ...)
{
	char text[512];
	va_list arguments;

	va_start(arguments, format);
	int size = vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (size < 0 || size >= (int)sizeof(text))
		page->r = page->r ? page->r : -ENOMEM;
	else
		put_bytes(page, text, (size_t)size);
}

/* Appends printable text, escaped for element content and quoted attributes. */
static void put_text(struct page *page, const char *text)
{
	for (; *text; text++) {
		switch (*text) {
		case '&':
			put_string(page, "&amp;");
			break;
		case '<':
			put_string(page, "&lt;");
			break;
		case '>':
			put_string(page, "&gt;");
			break;
		case '"':
			put_string(page, "&quot;");
			break;
		case '\'':
			put_string(page, "&#39;");
			break;
		default:
			put_bytes(page, text, 1);
		}
	}
}

/* Appends text of arbitrary bytes. */
static void put_untrusted(struct page *page, const char *text)
{
	char *copy = printable_copy(text, strlen(text));

	if (copy)
		put_text(page, copy);
	else
		page->r = page->r ? page->r : -ENOMEM;
	free(copy);
}

/* RFC 4648 */
static void put_base64(struct page *page, const uint8_t *bytes, size_t size)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char group[4];

	for (size_t i = 0; i < size; i += 3) {
		size_t left = size - i;
		uint32_t bits = (uint32_t)bytes[i] << 16;

		if (left > 1)
			bits |= (uint32_t)bytes[i + 1] << 8;
		if (left > 2)
			bits |= bytes[i + 2];
		group[0] = digits[bits >> 18];
		group[1] = digits[bits >> 12 & 63];
		group[2] = left > 1 ? digits[bits >> 6 & 63] : '=';
		group[3] = left > 2 ? digits[bits & 63] : '=';
		put_bytes(page, group, sizeof(group));
	}
}

static void put_class(struct page *page, int64_t number)
{
	char *name = sample_class_copy(page->dataset, number);

	if (name)
		put_text(page, name);
	else
		page->r = page->r ? page->r : -ENOMEM;
	free(name);
}

/* ---- head ---- */

static int compare_labels(const void *a, const void *b)
{
	int32_t first, second;

	memcpy(&first, a, sizeof(first));
	memcpy(&second, b, sizeof(second));
	return (first > second) - (first < second);
}

/* Writes an option for each label of the samples shown. */
static void put_class_options(struct page *page, const struct page_head *head)
{
	int32_t *labels = calloc(head->count + 1, sizeof(*labels));
	uint64_t count = 0;

	if (!labels) {
		page->r = -ENOMEM;
		return;
	}
	for (uint64_t i = 0; i < head->count; i++) {
		struct packimg_sample sample;

		if (!packimg_sample(page->dataset, head->samples[i], &sample))
			labels[count++] = sample.label;
	}
	qsort(labels, count, sizeof(*labels), compare_labels);
	for (uint64_t i = 0; i < count; i++) {
		if (i > 0 && labels[i] == labels[i - 1])
			continue;
		put_format(page, "<option value=\"%" PRId32 "\">", labels[i]);
		put_class(page, labels[i]);
		put_string(page, "</option>\n");
	}
	free(labels);
}

static void put_field_options(struct page *page)
{
	struct packimg_field field;

	put_format(page, "<option value=\"%d\">key</option>\n", SAMPLE_TEXT_KEY);
	for (uint32_t i = 0; i < packimg_field_count(page->dataset); i++) {
		if (packimg_field(page->dataset, i, &field))
			continue;
		put_format(page, "<option value=\"%u\">", SAMPLE_TEXT_FIELD + i);
		put_untrusted(page, field.name);
		put_string(page, "</option>\n");
	}
}

static void put_filters(struct page *page, const struct page_head *head)
{
	put_string(page, "<form>\n<label>Class <select id=\"class\">\n"
			 "<option value=\"\">all</option>\n");
	put_class_options(page, head);
	put_string(page, "</select></label>\n<label>Value of <select id=\"field\">\n"
			 "<option value=\"\">any field</option>\n");
	put_field_options(page);
	put_string(page,
		   "</select></label>\n"
		   "<label>contains <input id=\"text\" type=\"search\"></label>\n"
		   "<label><input id=\"drawn\" type=\"checkbox\" checked> Annotations</label>\n"
		   "<output id=\"shown\"></output>\n</form>\n");
}

static void put_title(struct page *page, const struct page_head *head)
{
	put_string(page,
		   "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
		   "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
		   "img-src data:; style-src '" PAGE_STYLE_HASH "'; script-src '" PAGE_SCRIPT_HASH
		   "'; base-uri 'none'; form-action 'none'\">\n"
		   "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
		   "<title>");
	put_untrusted(page, head->name);
	put_string(page, "</title>\n<style>");
	put_string(page, page_style);
	put_string(page, "</style>\n</head>\n<body>\n<header>\n<h1>");
	put_untrusted(page, head->name);
	put_string(page, "</h1>\n");
}

static void put_head(struct page *page, const struct page_head *head)
{
	const struct panel_pipeline *pipeline = head->pipeline;

	put_title(page, head);
	put_format(page, "<p>%s of %s sample%s</p>\n", text_count(TEXT, head->count),
		   text_count(TEXT, head->found), text_plural(head->found));
	if (pipeline) {
		put_string(page, "<p>Pipeline: <code>");
		put_untrusted(page, pipeline->text);
		put_format(page, "</code>, seed %" PRIu64 ", epoch %" PRIu64 "</p>\n",
			   pipeline->seed, pipeline->epoch);
	}
	if (pipeline && pipeline->refusal[0]) {
		put_format(page, "<p>%s not drawn as delivered: ",
			   pipeline->moves_masks ? "Boxes and points are"
						 : "Boxes, points, masks and rasters are");
		put_untrusted(page, pipeline->refusal);
		put_string(page, "</p>\n");
	}
	put_string(page, "</header>\n");
	put_filters(page, head);
	put_format(page, "<main class=\"%s%s\">\n", pipeline ? "pairs" : "single",
		   head->several ? " several" : "");
}

/* ---- samples ---- */

static int put_png(struct page *page, const struct panel *panel, const uint8_t *pixels,
		   uint32_t channels, struct packimg_error *error)
{
	const struct resize_picture picture = {
		.data = pixels,
		.stride = (size_t)panel->width * channels,
		.width = panel->width,
		.height = panel->height,
		.channels = channels,
	};
	int r = image_write_png(&picture, &page->png, error);

	if (r)
		return r;
	put_format(page, " width=\"%u\" height=\"%u\" src=\"data:image/png;base64,", panel->width,
		   panel->height);
	put_base64(page, page->png.data, page->png.size);
	put_string(page, "\">");
	return 0;
}

static void put_points(struct page *page, const struct shapes *shapes, const struct shape *shape)
{
	for (size_t i = 0; i < shape->count; i++) {
		const double *point = shapes->points[shape->first + i];

		put_format(page, "%s%.6g,%.6g", i ? " " : "", point[0], point[1]);
	}
}

/* Puts the text inside the picture, at the corner of its box. */
static void put_box_class(struct page *page, const struct panel *panel, const struct shape *shape)
{
	const double *corner = panel->shapes.points[shape->first];
	double size = panel->width / 22.0, y = corner[1] + size, x = corner[0] + size / 4;

	put_format(page, "<text x=\"%.6g\" y=\"%.6g\" font-size=\"%.4g\">",
		   x < size / 4 ? size / 4 : x, y < size ? size : y, size);
	put_class(page, shape->class_number);
	put_string(page, "</text>\n");
}

static bool is_drawable(const struct shapes *shapes, const struct shape *shape)
{
	for (size_t i = 0; i < shape->count; i++)
		for (unsigned axis = 0; axis < 2; axis++) {
			double at = shapes->points[shape->first + i][axis];

			/* Also false for NaN. */
			if (!(at > -1e9 && at < 1e9))
				return false;
		}
	return shape->count > 0;
}

static void put_shape(struct page *page, const struct panel *panel, const struct shape *shape)
{
	const struct colour colour = colour_of(shape->colour);
	const double *first = panel->shapes.points[shape->first];
	char name[8];

	snprintf(name, sizeof(name), "#%02x%02x%02x", colour.red, colour.green, colour.blue);
	if (shape->kind == SHAPE_POINT) {
		put_format(page, "<circle cx=\"%.6g\" cy=\"%.6g\" r=\"%.4g\" fill=\"%s\"/>\n",
			   first[0], first[1], panel->width / 90.0, name);
		return;
	}
	put_format(page, "<polygon fill=\"none\" stroke=\"%s\" points=\"", name);
	put_points(page, &panel->shapes, shape);
	put_string(page, "\"/>\n");
	if (shape->kind == SHAPE_BOX && shape->class_number >= 0)
		put_box_class(page, panel, shape);
}

static void put_shapes(struct page *page, const struct panel *panel)
{
	if (panel->shapes.count == 0)
		return;
	put_format(page,
		   "<svg class=\"shapes\" viewBox=\"0 0 %u %u\" preserveAspectRatio=\"none\">\n",
		   panel->width, panel->height);
	for (size_t i = 0; i < panel->shapes.count; i++)
		if (is_drawable(&panel->shapes, &panel->shapes.list[i]))
			put_shape(page, panel, &panel->shapes.list[i]);
	put_string(page, "</svg>");
}

static int put_panel(struct page *page, const struct panel *panel, uint64_t index,
		     struct packimg_error *error)
{
	uint32_t shorter = panel->width < panel->height ? panel->width : panel->height;
	const char *small = shorter < PAGE_SMALL ? " small" : "";
	int r = 0;

	put_string(page, "<div class=\"panel\">\n");
	if (panel->width == 0) {
		put_string(page, "<p class=\"fault\">");
		put_untrusted(page, panel->fault);
		put_string(page, "</p>\n</div>\n");
		return 0;
	}
	put_format(page, "<div class=\"stack\"><img class=\"picture%s\" alt=\"sample %" PRIu64 ", ",
		   small, index);
	put_untrusted(page, panel->label);
	put_string(page, "\"");
	r = put_png(page, panel, panel->rgb.data, 3, error);
	if (!r && panel->has_mask) {
		put_format(page, "<img class=\"mask%s\" alt=\"\"", small);
		r = put_png(page, panel, panel->mask.data, 4, error);
	}
	put_shapes(page, panel);
	put_string(page, "</div>\n<p class=\"note\">");
	put_untrusted(page, panel->note);
	if (panel->shapes.left_out)
		put_format(page, "; %" PRIu64 " more boxes, points or polygons are not drawn",
			   panel->shapes.left_out);
	put_string(page, "</p>\n</div>\n");
	return r;
}

static void put_texts(struct page *page, const struct sample_texts *texts)
{
	put_string(page, "<dl>\n");
	for (uint32_t i = 0; i < texts->count; i++) {
		put_format(page, "<div data-field=\"%u\"><dt>", texts->list[i].field);
		put_text(page, texts->list[i].name);
		put_string(page, "</dt><dd>");
		put_text(page, texts->list[i].text);
		put_string(page, "</dd></div>\n");
	}
	put_string(page, "</dl>\n");
}

/* Writes the collected text, or returns the first error of adding to it. */
static int page_flush(struct page *page, struct packimg_error *error)
{
	int r = page->r;

	if (!r) {
		page->bytes += page->text.size;
		r = atomic_file_write(&page->file, page->text.data, page->text.size);
	}
	page->text.size = 0;
	return r ? packimg_fail(error, r, "%s: %s", page->file.path, strerror(-r)) : 0;
}

int page_open(struct page *page, const struct packimg *dataset, const char *path,
	      const struct page_head *head, struct packimg_error *error)
{
	*page = (struct page){.dataset = dataset};
	int r = atomic_file_create(&page->file, path);

	if (r)
		return packimg_fail(error, r, "%s: %s", path, strerror(-r));
	page->created = true;
	put_head(page, head);
	return page_flush(page, error);
}

/* Writes the collected text if there is much. Returns -E2BIG if the page is too large. */
static int page_limit(struct page *page, struct packimg_error *error)
{
	if (page->bytes + page->text.size > PAGE_BYTES_MAX)
		return packimg_fail(error, -E2BIG,
				    "%s: the page would be larger than %s: choose fewer samples by "
				    "--samples, or a smaller --size",
				    page->file.path, text_bytes(TEXT, PAGE_BYTES_MAX));
	return page->text.size < PAGE_FLUSH && !page->r ? 0 : page_flush(page, error);
}

void page_begin_sample(struct page *page, const struct packimg_sample *sample)
{
	put_format(page, "<figure data-label=\"%" PRId32 "\">\n<div class=\"panels\">\n",
		   sample->label);
}

int page_add_picture(struct page *page, const struct panel *panel, uint64_t index,
		     struct packimg_error *error)
{
	int r = put_panel(page, panel, index, error);

	return r ? r : page_limit(page, error);
}

int page_end_sample(struct page *page, const char *title, const struct sample_texts *texts,
		    struct packimg_error *error)
{
	put_string(page, "</div>\n<figcaption>");
	put_text(page, title);
	put_string(page, "</figcaption>\n");
	put_texts(page, texts);
	put_string(page, "</figure>\n");
	return page_limit(page, error);
}

int page_close(struct page *page, int r, struct packimg_error *error)
{
	if (!r) {
		put_string(page, "</main>\n<script>");
		put_string(page, page_script);
		put_string(page, "</script>\n</body>\n</html>\n");
		r = page_flush(page, error);
	}
	if (page->created) {
		int closed = atomic_file_close(&page->file, r);

		if (closed && !r)
			r = packimg_fail(error, closed, "%s: %s", page->file.path,
					 strerror(-closed));
	}
	buffer_deinit(&page->text);
	buffer_deinit(&page->png);
	return r;
}
