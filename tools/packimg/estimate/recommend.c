#include "tools/packimg/estimate/recommend.h"

#include "tools/packimg/common/text.h"

#include <math.h>
#include <stdio.h>

static double variant_total(const struct recommend_request *request, uint32_t variant)
{
	return request->variants[variant].images_per_s * request->cores;
}

static double variant_bytes_each(const struct encoding_variant *variant)
{
	return encoding_variant_mean(variant, variant->bytes);
}

/*
 * Ranks variants by loss, lowest first:
 * - originals;
 * - JPEGs of at least quality 90: larger before smaller images, then smaller before larger files,
 * because no crop shows a few points of quality;
 * - JPEGs of lower quality in the same order;
 * - raw pixels, because their size costs more than JPEG's losses.
 */
static uint32_t variant_loss(const struct encoding_variant *variant)
{
	switch (variant->kind) {
	case ENCODING_STORED:
	case ENCODING_VERBATIM:
		return 0;
	case ENCODING_UNINDEXED:
		/* never recommended: slower than with an index, and no better */
		return UINT32_MAX;
	case ENCODING_JPEG:
		return (variant->quality < 90 ? 0x2000000 : 0x1000000) +
		       (0x10000 - (variant->short_side ? variant->short_side : 0x10000)) * 128 +
		       (uint32_t)(variant->quality > 90 ? variant->quality - 90
							: 90 - variant->quality);
	case ENCODING_RAW_ZSTD:
		return 0x3000000;
	case ENCODING_RAW:
		return 0x3000001;
	}
	return UINT32_MAX;
}

uint32_t recommend_choose(const struct recommend_request *request, double images_per_s)
{
	uint32_t best = UINT32_MAX;

	for (uint32_t i = 0; i < request->count; i++) {
		const struct encoding_variant *variant = &request->variants[i];

		if (!variant->images || variant_loss(variant) == UINT32_MAX ||
		    variant_total(request, i) < images_per_s)
			continue;
		if (best == UINT32_MAX ||
		    variant_loss(variant) < variant_loss(&request->variants[best]))
			best = i;
	}
	return best;
}

uint32_t recommend_fastest(const struct recommend_request *request)
{
	uint32_t best = UINT32_MAX;

	for (uint32_t i = 0; i < request->count; i++)
		if (request->variants[i].images &&
		    (best == UINT32_MAX ||
		     variant_total(request, i) > variant_total(request, best)))
			best = i;
	return best;
}

/* Prints the options of packimg convert for a variant. */
static void write_command(FILE *file, const struct encoding_variant *variant)
{
	if (variant->kind == ENCODING_STORED) {
		fputs("  No conversion is needed.\n", file);
		return;
	}
	fprintf(file, "  packimg convert SRC -o FILE%s\n", encoding_variant_options(TEXT, variant));
}

/* Returns the size relative to that of the first variant, the unchanged images. */
static double variant_share(const struct recommend_request *request, uint32_t variant)
{
	double whole = variant_bytes_each(&request->variants[0]);

	return whole > 0 ? variant_bytes_each(&request->variants[variant]) / whole : 0;
}

/* Formats a rate with as many digits as the measurement supports. */
static const char *rate_text(struct text_buffer *buffer, double rate)
{
	double step = 1;

	while (rate / step >= 1000)
		step *= 10;
	return text_count(buffer, (uint64_t)(rint(rate / step) * step));
}

/*
 * Prints the variants for higher rates: each has the least loss among those that are fast enough.
 */
static void write_faster(FILE *file, const struct recommend_request *request, uint32_t variant)
{
	for (;;) {
		double before = variant_total(request, variant);

		/* a speed-up of less than a tenth is not worth any loss */
		variant = recommend_choose(request, before * 1.1);
		if (variant == UINT32_MAX)
			return;
		fprintf(file,
			"  Beyond %s images/s: %s, up to %s images/s at %.2f times the size.\n",
			rate_text(TEXT, before),
			encoding_variant_name(TEXT, &request->variants[variant]),
			rate_text(TEXT, variant_total(request, variant)),
			variant_share(request, variant));
	}
}

/* Prints the smallest variant that is fast enough, unless it is the recommended one. */
static void write_smallest(FILE *file, const struct recommend_request *request, uint32_t chosen)
{
	uint32_t best = chosen;

	for (uint32_t i = 0; i < request->count; i++)
		if (request->variants[i].images && variant_total(request, i) >= request->wanted &&
		    variant_loss(&request->variants[i]) != UINT32_MAX &&
		    variant_bytes_each(&request->variants[i]) <
			    variant_bytes_each(&request->variants[best]))
			best = i;
	if (best != chosen)
		fprintf(file, "  Smallest at that rate: %s, %.2f times the size, %s images/s.\n",
			encoding_variant_name(TEXT, &request->variants[best]),
			variant_share(request, best),
			rate_text(TEXT, variant_total(request, best)));
}

static void write_reached(FILE *file, const struct recommend_request *request, uint32_t variant)
{
	const struct encoding_variant *chosen = &request->variants[variant];
	const char *name = encoding_variant_name(TEXT, chosen);
	const char *rate = rate_text(TEXT, variant_total(request, variant));
	const char *wanted = rate_text(TEXT, request->wanted);

	if (variant_loss(chosen) == 0)
		fprintf(file,
			"Keep the images as they are (%s): they reach %s images/s on %.0f cores, "
			"%s are needed, and nothing is lost.\n",
			name, rate, request->cores, wanted);
	else
		fprintf(file,
			"Choose %s: it reaches %s images/s on %.0f cores at %.2f times the size. "
			"%s are needed; the images as they are reach %s, and every encoding with "
			"less loss is too slow.\n",
			name, rate, request->cores, variant_share(request, variant), wanted,
			rate_text(TEXT, variant_total(request, 0)));
	fprintf(file, "  If the dataset does not stay in memory, storage must deliver %s MB/s.\n",
		rate_text(TEXT, request->wanted * variant_bytes_each(chosen) / 1e6));
	write_smallest(file, request, variant);
	write_command(file, chosen);
}

static void write_out_of_reach(FILE *file, const struct recommend_request *request)
{
	uint32_t fastest = recommend_fastest(request);

	fprintf(file,
		"No encoding reaches the %s images/s needed on %.0f cores: the fastest, %s, "
		"reaches %s, the images as they are %s.\n",
		rate_text(TEXT, request->wanted), request->cores,
		encoding_variant_name(TEXT, &request->variants[fastest]),
		rate_text(TEXT, variant_total(request, fastest)),
		rate_text(TEXT, variant_total(request, 0)));
	fprintf(file, "  This needs %.0f cores, or %.0f with the images as they are.\n",
		ceil(request->wanted / request->variants[fastest].images_per_s),
		ceil(request->wanted / request->variants[0].images_per_s));
}

static void write_without_rate(FILE *file, const struct recommend_request *request)
{
	fprintf(file,
		"Keep the images as they are for up to %s images/s (%.0f cores): nothing is lost. "
		"--rate N recommends an encoding for N images/s.\n",
		rate_text(TEXT, variant_total(request, 0)), request->cores);
	write_faster(file, request, 0);
}

void recommend_write(const struct recommend_request *request, FILE *file)
{
	uint32_t variant = recommend_choose(request, request->wanted);

	if (!request->count || !request->variants[0].images)
		fputs("None of the images can be used.\n", file);
	else if (request->wanted <= 0)
		write_without_rate(file, request);
	else if (variant == UINT32_MAX)
		write_out_of_reach(file, request);
	else
		write_reached(file, request, variant);
}
