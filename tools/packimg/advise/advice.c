#include "tools/packimg/advise/advice.h"

#include "tools/packimg/common/text.h"

#include <math.h>
#include <stdio.h>

static double total(const struct advice_request *request, uint32_t way)
{
	return request->ways[way].images_per_s * request->cores;
}

static double bytes_each(const struct trial_way *way)
{
	return way->images ? (double)way->bytes / (double)way->images : 0;
}

/*
 * How much of the images stays, most first: originals; then JPEGs of at least quality 90, the
 * larger before the smaller and the smaller file before a few points of quality that no crop shows;
 * then the same at lower quality; pixels last, as their size costs more than JPEG's losses.
 */
static uint32_t loss(const struct trial_way *way)
{
	switch (way->kind) {
	case TRIAL_STORED:
	case TRIAL_VERBATIM:
		return 0;
	case TRIAL_BARE:
		/* slower than with an index and no better: for comparison only */
		return UINT32_MAX;
	case TRIAL_JPEG:
		return (way->quality < 90 ? 0x2000000 : 0x1000000) +
		       (0x10000 - (way->short_side ? way->short_side : 0x10000)) * 128 +
		       (uint32_t)(way->quality > 90 ? way->quality - 90 : 90 - way->quality);
	case TRIAL_RAW_ZSTD:
		return 0x3000000;
	case TRIAL_RAW:
		return 0x3000001;
	}
	return UINT32_MAX;
}

uint32_t advice_choose(const struct advice_request *request, double images_per_s)
{
	uint32_t best = UINT32_MAX;

	for (uint32_t i = 0; i < request->count; i++) {
		const struct trial_way *way = &request->ways[i];

		if (!way->images || loss(way) == UINT32_MAX || total(request, i) < images_per_s)
			continue;
		if (best == UINT32_MAX || loss(way) < loss(&request->ways[best]))
			best = i;
	}
	return best;
}

uint32_t advice_fastest(const struct advice_request *request)
{
	uint32_t best = UINT32_MAX;

	for (uint32_t i = 0; i < request->count; i++)
		if (request->ways[i].images &&
		    (best == UINT32_MAX || total(request, i) > total(request, best)))
			best = i;
	return best;
}

/* How to get it, as options of convert. */
static void say_command(FILE *file, const struct trial_way *way)
{
	if (way->kind == TRIAL_STORED) {
		fputs("  Nothing needs to be done.\n", file);
		return;
	}
	fputs("  packimg convert SRC -o FILE", file);
	if (way->short_side)
		fprintf(file, " --short-side %u", way->short_side);
	if (way->kind == TRIAL_JPEG)
		fprintf(file, " --jpeg quality=%d", way->quality);
	else if (way->kind == TRIAL_RAW_ZSTD || way->kind == TRIAL_RAW)
		fputs(way->kind == TRIAL_RAW ? " --raw" : " --raw-zstd", file);
	fputc('\n', file);
}

/* The first way stands for the images as they are. */
static double share(const struct advice_request *request, uint32_t way)
{
	double whole = bytes_each(&request->ways[0]);

	return whole > 0 ? bytes_each(&request->ways[way]) / whole : 0;
}

/* A rate to read: no more digits than it was measured with. */
static const char *rate_text(struct text_buffer *buffer, double rate)
{
	double step = 1;

	while (rate / step >= 1000)
		step *= 10;
	return text_count(buffer, (uint64_t)(rint(rate / step) * step));
}

/*
 * What comes into question for more than the chosen way gives: each the most faithful of those that
 * are faster.
 */
static void say_ladder(FILE *file, const struct advice_request *request, uint32_t way)
{
	for (;;) {
		double before = total(request, way);

		/* a tenth more is worth no loss */
		way = advice_choose(request, before * 1.1);
		if (way == UINT32_MAX)
			return;
		fprintf(file, "  Beyond %s: %s, up to %s images/s in %.2f times the bytes.\n",
			rate_text(TEXT, before), trial_name(TEXT, &request->ways[way]),
			rate_text(TEXT, total(request, way)), share(request, way));
	}
}

/* For who counts bytes: the smallest that is fast enough, where that is another one. */
static void say_smallest(FILE *file, const struct advice_request *request, uint32_t chosen)
{
	uint32_t best = chosen;

	for (uint32_t i = 0; i < request->count; i++)
		if (request->ways[i].images && total(request, i) >= request->wanted &&
		    loss(&request->ways[i]) != UINT32_MAX &&
		    bytes_each(&request->ways[i]) < bytes_each(&request->ways[best]))
			best = i;
	if (best != chosen)
		fprintf(file, "  Fewest bytes at that rate: %s, %.2f times as many, %s images/s.\n",
			trial_name(TEXT, &request->ways[best]), share(request, best),
			rate_text(TEXT, total(request, best)));
}

static void say_reached(FILE *file, const struct advice_request *request, uint32_t way)
{
	const struct trial_way *chosen = &request->ways[way];
	const char *name = trial_name(TEXT, chosen);
	const char *rate = rate_text(TEXT, total(request, way));
	const char *wanted = rate_text(TEXT, request->wanted);

	if (loss(chosen) == 0)
		fprintf(file,
			"Keep the images as they are (%s): they give %s images/s on %.0f cores, %s "
			"are wanted, and nothing is lost.\n",
			name, rate, request->cores, wanted);
	else
		fprintf(file,
			"Choose %s: it gives %s images/s on %.0f cores in %.2f times the bytes. "
			"%s are wanted; the images as they are give %s, and whatever loses less "
			"than this is too slow, too.\n",
			name, rate, request->cores, share(request, way), wanted,
			rate_text(TEXT, total(request, 0)));
	fprintf(file, "  Where they do not stay in memory, storage must read %s MB/s for that.\n",
		rate_text(TEXT, request->wanted * bytes_each(chosen) / 1e6));
	say_smallest(file, request, way);
	say_command(file, chosen);
}

static void say_out_of_reach(FILE *file, const struct advice_request *request)
{
	uint32_t fastest = advice_fastest(request);

	fprintf(file,
		"No way to store them gives the %s images/s wanted on %.0f cores: the fastest, %s, "
		"gives %s, and the images as they are %s.\n",
		rate_text(TEXT, request->wanted), request->cores,
		trial_name(TEXT, &request->ways[fastest]), rate_text(TEXT, total(request, fastest)),
		rate_text(TEXT, total(request, 0)));
	fprintf(file, "  It would take %.0f cores, or %.0f with the images as they are.\n",
		ceil(request->wanted / request->ways[fastest].images_per_s),
		ceil(request->wanted / request->ways[0].images_per_s));
}

static void say_open(FILE *file, const struct advice_request *request)
{
	fprintf(file,
		"Keep the images as they are while %s images/s are enough (%.0f cores): nothing "
		"is lost. --rate N tells what N need.\n",
		rate_text(TEXT, total(request, 0)), request->cores);
	say_ladder(file, request, 0);
}

void advice_write(const struct advice_request *request, FILE *file)
{
	uint32_t way = advice_choose(request, request->wanted);

	if (!request->count || !request->ways[0].images)
		fputs("None of the images can be used.\n", file);
	else if (request->wanted <= 0)
		say_open(file, request);
	else if (way == UINT32_MAX)
		say_out_of_reach(file, request);
	else
		say_reached(file, request, way);
}
