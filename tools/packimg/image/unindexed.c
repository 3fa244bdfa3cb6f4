#include "tools/packimg/image/unindexed.h"

#include "tools/packimg/common/text.h"

#include <stdio.h>

#define TRANSCODE "convert with --progressive transcode makes them baseline, without loss"
#define REENCODE  "convert with --jpeg quality=95 encodes them again"

static const struct {
	const char *key;    /* key in JSON */
	const char *reason; /* text that follows a number of JPEGs in a sentence */
	const char *remedy;
} words[UNINDEXED_COUNT] = {
	[UNINDEXED_PROGRESSIVE] = {"progressive", "progressive", TRANSCODE},
	[UNINDEXED_ARITHMETIC] = {"arithmetic", "with arithmetic coding", TRANSCODE},
	[UNINDEXED_SCANS] = {"several_scans", "with a scan for each component", TRANSCODE},
	[UNINDEXED_RESTART] = {"restart_intervals", "with restart markers within rows", TRANSCODE},
	[UNINDEXED_CMYK] = {"cmyk", "in CMYK", REENCODE},
	[UNINDEXED_PRECISION] = {"precision", "of more than 8 bits",
				 "no decoder here reads them; make 8-bit files of them"},
	[UNINDEXED_OTHER] = {"other", "of a rare kind (RGB, or unusual sampling)", REENCODE},
	[UNINDEXED_DAMAGED] = {"damaged", "damaged, or with an unexpected scan",
			       "packimg verify names those that do not decode"},
};

enum unindexed unindexed_reason(const struct packimg_jpeg_info *info)
{
	if (info->precision != 8)
		return UNINDEXED_PRECISION;
	if (info->components == 4)
		return UNINDEXED_CMYK;
	if (info->progressive)
		return UNINDEXED_PROGRESSIVE;
	if (info->arithmetic)
		return UNINDEXED_ARITHMETIC;
	if (info->several_scans)
		return UNINDEXED_SCANS;
	if (info->restart_within_rows)
		return UNINDEXED_RESTART;
	return UNINDEXED_OTHER;
}

bool unindexed_can_transcode(enum unindexed reason)
{
	return reason == UNINDEXED_PROGRESSIVE || reason == UNINDEXED_ARITHMETIC ||
	       reason == UNINDEXED_SCANS || reason == UNINDEXED_RESTART;
}

/* Returns the number of JPEGs without an index. */
static uint64_t unindexed_total(const struct unindexed_counts *counts)
{
	uint64_t total = 0;

	for (int i = UNINDEXED_NOT + 1; i < UNINDEXED_COUNT; i++)
		total += counts->counts[i];
	return total;
}

void unindexed_print(const struct unindexed_counts *counts)
{
	uint64_t total = unindexed_total(counts);

	if (!total)
		return;
	printf("  no index  %s JPEGs, which feed slower\n", text_count(TEXT, total));
	for (int i = UNINDEXED_NOT + 1; i < UNINDEXED_COUNT; i++)
		if (counts->counts[i])
			printf("    %s %s: %s\n", text_count(TEXT, counts->counts[i]),
			       words[i].reason, words[i].remedy);
}

json_t *unindexed_json(const struct unindexed_counts *counts)
{
	json_t *json = json_object();

	for (int i = UNINDEXED_NOT + 1; i < UNINDEXED_COUNT; i++)
		if (counts->counts[i])
			json_object_set_new(json, words[i].key,
					    json_integer((json_int_t)counts->counts[i]));
	return json;
}
