#include "tools/packimg/advise/advice.h"

#include "tools/packimg/common/text.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { NAME_SIZE = 64 };

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

__attribute__((format(printf, 2, 3))) static int say(struct buffer *text, const char *format, ...)
{
	char line[1024];
	va_list arguments;

	va_start(arguments, format);
	int n = vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	if (n < 0 || (size_t)n >= sizeof(line))
		n = sizeof(line) - 1;
	return buffer_append(text, line, (size_t)n);
}

/* How to get it, as options of convert. */
static int say_command(struct buffer *text, const struct trial_way *way)
{
	char side[32] = "";

	if (way->short_side)
		snprintf(side, sizeof(side), " --short-side %u", way->short_side);
	switch (way->kind) {
	case TRIAL_STORED:
		return say(text, "  Nothing needs to be done.\n");
	case TRIAL_VERBATIM:
	case TRIAL_BARE:
		return say(text, "  packimg convert SRC -o FILE\n");
	case TRIAL_JPEG:
		return say(text, "  packimg convert SRC -o FILE%s --jpeg quality=%d\n", side,
			   way->quality);
	case TRIAL_RAW_ZSTD:
		return say(text, "  packimg convert SRC -o FILE%s --raw-zstd\n", side);
	case TRIAL_RAW:
		return say(text, "  packimg convert SRC -o FILE%s --raw\n", side);
	}
	return 0;
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
static int say_ladder(const struct advice_request *request, uint32_t way, struct buffer *text)
{
	struct text_buffer rate, next;
	char name[NAME_SIZE];
	int r = 0;

	while (!r) {
		double before = total(request, way);

		/* a tenth more is worth no loss */
		way = advice_choose(request, before * 1.1);
		if (way == UINT32_MAX)
			break;
		r = say(text, "  Beyond %s: %s, up to %s images/s in %.2f times the bytes.\n",
			rate_text(&rate, before),
			trial_name(&request->ways[way], name, sizeof(name)),
			rate_text(&next, total(request, way)), share(request, way));
	}
	return r;
}

/* For who counts bytes: the smallest that is fast enough, where that is another one. */
static int say_smallest(const struct advice_request *request, uint32_t chosen, struct buffer *text)
{
	struct text_buffer rate;
	char name[NAME_SIZE];
	uint32_t best = chosen;

	for (uint32_t i = 0; i < request->count; i++)
		if (request->ways[i].images && total(request, i) >= request->wanted &&
		    loss(&request->ways[i]) != UINT32_MAX &&
		    bytes_each(&request->ways[i]) < bytes_each(&request->ways[best]))
			best = i;
	if (best == chosen)
		return 0;
	return say(text, "  Fewest bytes at that rate: %s, %.2f times as many, %s images/s.\n",
		   trial_name(&request->ways[best], name, sizeof(name)), share(request, best),
		   rate_text(&rate, total(request, best)));
}

static int say_reached(const struct advice_request *request, uint32_t way, struct buffer *text)
{
	const struct trial_way *chosen = &request->ways[way];
	struct text_buffer rate, wanted, now;
	char name[NAME_SIZE];
	int r;

	trial_name(chosen, name, sizeof(name));
	rate_text(&rate, total(request, way));
	rate_text(&wanted, request->wanted);
	rate_text(&now, total(request, 0));
	if (loss(chosen) == 0)
		r = say(text,
			"Keep the images as they are (%s): they give %s images/s on %.0f cores, %s "
			"are wanted, and nothing is lost.\n",
			name, rate.text, request->cores, wanted.text);
	else
		r = say(text,
			"Choose %s: it gives %s images/s on %.0f cores in %.2f times the bytes. "
			"%s are wanted; the images as they are give %s, and whatever loses less "
			"than this is too slow, too.\n",
			name, rate.text, request->cores, share(request, way), wanted.text,
			now.text);
	if (!r)
		r = say(text,
			"  Where they do not stay in memory, storage must read %s MB/s for that.\n",
			rate_text(&rate, request->wanted * bytes_each(chosen) / 1e6));
	if (!r)
		r = say_smallest(request, way, text);
	return r ? r : say_command(text, chosen);
}

static int say_out_of_reach(const struct advice_request *request, struct buffer *text)
{
	uint32_t fastest = advice_fastest(request);
	struct text_buffer wanted, rate, now;
	char name[NAME_SIZE];

	int r = say(
		text,
		"No way to store them gives the %s images/s wanted on %.0f cores: the fastest, %s, "
		"gives %s, and the images as they are %s.\n",
		rate_text(&wanted, request->wanted), request->cores,
		trial_name(&request->ways[fastest], name, sizeof(name)),
		rate_text(&rate, total(request, fastest)), rate_text(&now, total(request, 0)));
	return r ? r
		 : say(text, "  It would take %.0f cores, or %.0f with the images as they are.\n",
		       ceil(request->wanted / request->ways[fastest].images_per_s),
		       ceil(request->wanted / request->ways[0].images_per_s));
}

static int say_open(const struct advice_request *request, struct buffer *text)
{
	struct text_buffer rate;
	int r = say(
		text,
		"Keep the images as they are while %s images/s are enough (%.0f cores): nothing "
		"is lost. --rate N tells what N need.\n",
		rate_text(&rate, total(request, 0)), request->cores);

	return r ? r : say_ladder(request, 0, text);
}

int advice_write(const struct advice_request *request, struct buffer *text)
{
	uint32_t way = advice_choose(request, request->wanted);
	int r;

	if (!request->count || !request->ways[0].images)
		r = say(text, "None of the images can be used.\n");
	else if (request->wanted <= 0)
		r = say_open(request, text);
	else if (way == UINT32_MAX)
		r = say_out_of_reach(request, text);
	else
		r = say_reached(request, way, text);
	return r ? r : buffer_append(text, "", 1);
}
