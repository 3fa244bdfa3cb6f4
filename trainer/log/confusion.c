#include "trainer/log/confusion.h"

#include "format/base/text/svg.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

enum {
	CONFUSION_SIDE = 640, /* approximate size of the matrix */
	CONFUSION_CELL_MAX = 40,
	CONFUSION_MARGIN = 40,
	CONFUSION_NAMES = 110,    /* space for names */
	CONFUSION_NAMED_MAX = 64, /* maximal number of classes with legible names */
	CONFUSION_COUNTED_MAX = 24,
};

/* Position of the matrix, in pixels. */
struct confusion_place {
	double cell, left, top;
};

static void draw_names(const struct confusion *confusion, const struct confusion_place *place,
		       FILE *file)
{
	double size = fmin(12, place->cell);
	for (uint32_t i = 0; i < confusion->classes; i++) {
		double middle = place->cell * (i + 0.5);
		for (int column = 0; column < 2; column++) {
			double x = column ? place->left + middle + size / 3 : place->left - 6;
			double y = column ? place->top - 6 : place->top + middle + size / 3;
			char more[96], number[16];
			snprintf(more, sizeof(more),
				 " font-size=\"%.1f\" transform=\"translate(%.1f,%.1f)%s\"", size,
				 x, y, column ? " rotate(-90)" : "");
			snprintf(number, sizeof(number), "%u", i);
			svg_text(file, 0, 0, column ? "start" : "end", more,
				 confusion->names ? confusion->names[i] : number);
		}
	}
}

/*
 * Draws a cell in a color from white to dark blue. Its square root makes small fractions
 * distinguishable.
 */
static void draw_cell(const struct confusion_cell *cell, double share, bool counted,
		      const struct confusion_place *place, FILE *file)
{
	double depth = sqrt(share), x = place->left + place->cell * cell->predicted,
	       y = place->top + place->cell * cell->label;
	char color[32], more[64], number[24];
	snprintf(color, sizeof(color), "rgb(%d,%d,%d)", (int)(255 - 247 * depth),
		 (int)(255 - 207 * depth), (int)(255 - 148 * depth));
	svg_rect(file, x, y, place->cell, place->cell, color, "");
	if (!counted)
		return;
	snprintf(more, sizeof(more), " font-size=\"%.1f\" fill=\"%s\"", fmin(12, place->cell / 3),
		 depth > 0.6 ? "white" : "black");
	snprintf(number, sizeof(number), "%llu", (unsigned long long)cell->count);
	svg_text(file, x + place->cell / 2, y + place->cell / 2 + 4, "middle", more, number);
}

void confusion_draw(const struct confusion *confusion, FILE *file)
{
	uint32_t classes = confusion->classes;
	bool named = classes <= CONFUSION_NAMED_MAX;
	double margin = CONFUSION_MARGIN + (named ? CONFUSION_NAMES : 0);
	struct confusion_place place = {fmin(CONFUSION_CELL_MAX, (double)CONFUSION_SIDE / classes),
					margin, margin};
	double side = place.cell * classes;
	uint64_t *rows = calloc(classes, sizeof(*rows));
	for (size_t i = 0; rows && i < confusion->count; i++)
		rows[confusion->cells[i].label] += confusion->cells[i].count;
	char turned[64];
	snprintf(turned, sizeof(turned), " transform=\"translate(20,%.1f) rotate(-90)\"",
		 margin + side / 2);
	svg_begin(file, margin + side + CONFUSION_MARGIN, margin + side + CONFUSION_MARGIN);
	svg_text(file, margin + side / 2, 20, "middle", "", "predicted");
	svg_text(file, 0, 0, "middle", turned, "label");
	for (size_t i = 0; rows && i < confusion->count; i++) {
		const struct confusion_cell *cell = &confusion->cells[i];
		draw_cell(cell, (double)cell->count / (double)rows[cell->label],
			  classes <= CONFUSION_COUNTED_MAX, &place, file);
	}
	svg_rect(file, place.left, place.top, side, side, "none", " stroke=\"#888\"");
	if (named)
		draw_names(confusion, &place, file);
	svg_end(file);
	free(rows);
}
