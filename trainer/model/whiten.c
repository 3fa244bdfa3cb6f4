#include "trainer/model/layers.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PATCH_MAX = 64 }; /* maximum number of elements of a patch */

static void rotate(double *x, double *y, double c, double s)
{
	double old_x = *x, old_y = *y;
	*x = c * old_x - s * old_y;
	*y = s * old_x + c * old_y;
}

/*
 * Computes eigenvalues and eigenvectors of a symmetric matrix by cyclic Jacobi rotations (Golub and
 * Van Loan, section 8.5). On return, a is diagonal and contains the eigenvalues; the rows of v are
 * the eigenvectors.
 */
static void eigen(unsigned n, double a[PATCH_MAX][PATCH_MAX], double v[PATCH_MAX][PATCH_MAX])
{
	for (unsigned i = 0; i < n; i++)
		for (unsigned j = 0; j < n; j++)
			v[i][j] = i == j;
	for (int sweep = 0; sweep < 64; sweep++) {
		double off = 0, all = 0;
		for (unsigned i = 0; i < n; i++)
			for (unsigned j = 0; j < n; j++) {
				all += a[i][j] * a[i][j];
				off += i == j ? 0 : a[i][j] * a[i][j];
			}
		if (off <= 1e-28 * all)
			return;
		for (unsigned p = 0; p < n; p++) {
			for (unsigned q = p + 1; q < n; q++) {
				if (a[p][q] == 0)
					continue;
				double theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
				double t = (theta < 0 ? -1 : 1) /
					   (fabs(theta) + sqrt(theta * theta + 1));
				double c = 1 / sqrt(t * t + 1), s = t * c;
				for (unsigned k = 0; k < n; k++)
					rotate(&a[k][p], &a[k][q], c, s);
				for (unsigned k = 0; k < n; k++)
					rotate(&a[p][k], &a[q][k], c, s);
				for (unsigned k = 0; k < n; k++)
					rotate(&v[p][k], &v[q][k], c, s);
			}
		}
	}
}

/*
 * Computes the mean outer product of all patches. The images' mean is subtracted, the patches' is
 * not.
 */
static void second_moments(const struct model_images *images, unsigned window,
			   double m[PATCH_MAX][PATCH_MAX])
{
	unsigned n = window * window * 3;
	uint64_t patches = 0;
	double patch[PATCH_MAX];
	memset(m, 0, sizeof(double) * PATCH_MAX * PATCH_MAX);
	for (uint32_t i = 0; i < images->count; i++) {
		const uint8_t *image = images->pixels + (size_t)i * images->height * images->width *
								images->channels;
		for (uint32_t y = 0; y + window <= images->height; y++) {
			for (uint32_t x = 0; x + window <= images->width; x++, patches++) {
				for (unsigned k = 0; k < n; k++) {
					size_t row = y + k / 3 / window,
					       column = x + k / 3 % window;
					double value = image[(row * images->width + column) *
								     images->channels +
							     k % 3];
					patch[k] =
						(value - images->mean[k % 3]) / images->std[k % 3];
				}
				for (unsigned a = 0; a < n; a++)
					for (unsigned b = 0; b <= a; b++)
						m[a][b] += patch[a] * patch[b];
			}
		}
	}
	for (unsigned a = 0; a < n; a++)
		for (unsigned b = 0; b <= a; b++)
			m[b][a] = m[a][b] /= (double)patches;
}

int whiten_weights(const struct model_images *images, uint32_t window, float *ret_weights)
{
	struct matrices {
		double moments[PATCH_MAX][PATCH_MAX], vectors[PATCH_MAX][PATCH_MAX];
	};
	unsigned n = window * window * 3, order[PATCH_MAX];
	if (n > PATCH_MAX || images->channels < 3 || !images->count || images->height < window ||
	    images->width < window)
		return -EINVAL;
	struct matrices *m = malloc(sizeof(*m));
	if (!m)
		return -ENOMEM;
	second_moments(images, window, m->moments);
	eigen(n, m->moments, m->vectors);
	for (unsigned i = 0; i < n; i++) {
		unsigned k = i;
		for (; k > 0 && m->moments[order[k - 1]][order[k - 1]] < m->moments[i][i]; k--)
			order[k] = order[k - 1];
		order[k] = i;
	}
	for (unsigned i = 0; i < n; i++) {
		double scale = 1 / sqrt(m->moments[order[i]][order[i]] + 5e-4);
		for (unsigned k = 0; k < n; k++) {
			float weight = (float)(m->vectors[order[i]][k] * scale);
			ret_weights[i * n + k] = weight;
			ret_weights[(n + i) * n + k] = -weight;
		}
	}
	free(m);
	return 0;
}
