#include "format/base/text/nearest.h"

#include <stddef.h>

enum {
	WORD_MAX = 64, /* longer words are compared up to this length */
	/*
	 * in words up to this length a substitution counts twice: cpu is not a misspelling of gpu
	 */
	SHORT_WORD = 3,
};

static size_t nearest_fold(const char *word, char ret_folded[WORD_MAX])
{
	size_t size = 0;

	for (; *word && size < WORD_MAX; word++)
		if (*word != '_' && *word != '-')
			ret_folded[size++] =
				*word >= 'A' && *word <= 'Z' ? (char)(*word + 32) : *word;
	return size;
}

static unsigned min_of_three(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* Returns the optimal string alignment distance. Keeps three rows of the table. */
static unsigned edit_distance(const char *a, size_t a_size, const char *b, size_t b_size)
{
	const unsigned wrong = b_size > SHORT_WORD ? 1 : 2;
	unsigned rows[3][WORD_MAX + 1];

	for (size_t j = 0; j <= b_size; j++)
		rows[0][j] = (unsigned)j;
	for (size_t i = 1; i <= a_size; i++) {
		unsigned *row = rows[i % 3], *above = rows[(i + 2) % 3],
			 *above2 = rows[(i + 1) % 3];

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= b_size; j++) {
			row[j] = above[j - 1] + (a[i - 1] != b[j - 1] ? wrong : 0);
			row[j] = min_of_three(row[j], min_of_three(above[j], row[j - 1]) + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				row[j] = min_of_three(row[j], above2[j - 2] + 1);
		}
	}
	return rows[a_size % 3][b_size];
}

unsigned nearest_distance(const char *written, const char *meant)
{
	char a[WORD_MAX], b[WORD_MAX];
	size_t a_size = nearest_fold(written, a), b_size = nearest_fold(meant, b);
	unsigned distance = edit_distance(a, a_size, b, b_size);

	return distance <= (b_size + 2) / 4 ? distance : NEAREST_NONE;
}

struct nearest nearest_to(const char *written)
{
	return (struct nearest){.written = written, .distance = NEAREST_NONE};
}

void nearest_offer(struct nearest *nearest, const char *known)
{
	unsigned distance = nearest_distance(nearest->written, known);

	if (distance >= nearest->distance)
		return;
	nearest->distance = distance;
	nearest->meant = known;
}
