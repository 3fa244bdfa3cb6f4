#include "trainer/log/confusion.h"

#include "trainer/log/picture.h"

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
			fprintf(file,
				"<text font-size=\"%.1f\" text-anchor=\"%s\" "
				"transform=\"translate(%.1f,%.1f)%s\">",
				size, column ? "start" : "end", x, y, column ? " rotate(-90)" : "");
			if (confusion->names)
				picture_text(file, confusion->names[i]);
			else
				fprintf(file, "%u", i);
			fputs("</text>\n", file);
		}
	}
}

/* From white to dark blue; the square root makes small shares distinguishable. */
static void draw_cell(const struct confusion_cell *cell, double share, bool counted,
		      const struct confusion_place *place, FILE *file)
{
	double depth = sqrt(share), x = place->left + place->cell * cell->predicted,
	       y = place->top + place->cell * cell->label;
	fprintf(file,
		"<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" "
		"fill=\"rgb(%d,%d,%d)\"/>\n",
		x, y, place->cell, place->cell, (int)(255 - 247 * depth), (int)(255 - 207 * depth),
		(int)(255 - 148 * depth));
	if (counted)
		fprintf(file,
			"<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"%.1f\" "
			"fill=\"%s\">%llu</text>\n",
			x + place->cell / 2, y + place->cell / 2 + 4, fmin(12, place->cell / 3),
			depth > 0.6 ? "white" : "black", (unsigned long long)cell->count);
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
	fprintf(file,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
		"font-family=\"sans-serif\" font-size=\"12\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
		"<text x=\"%.1f\" y=\"20\" text-anchor=\"middle\">predicted</text>\n"
		"<text transform=\"translate(20,%.1f) rotate(-90)\" "
		"text-anchor=\"middle\">label</text>\n",
		margin + side + CONFUSION_MARGIN, margin + side + CONFUSION_MARGIN,
		margin + side / 2, margin + side / 2);
	for (size_t i = 0; rows && i < confusion->count; i++) {
		const struct confusion_cell *cell = &confusion->cells[i];
		draw_cell(cell, (double)cell->count / (double)rows[cell->label],
			  classes <= CONFUSION_COUNTED_MAX, &place, file);
	}
	fprintf(file,
		"<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"none\" "
		"stroke=\"#888\"/>\n",
		place.left, place.top, side, side);
	if (named)
		draw_names(confusion, &place, file);
	picture_shut(file);
	free(rows);
}
