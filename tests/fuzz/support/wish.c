#include "tests/fuzz/support/wish.h"

#include "proto/filling.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Filters of a part of an order. */
static const char *const filters[] = {
	"",
	"width >= 1",
	"label in (0, 2, 4294967295, -1)",
	"sample < 3 and not sample = 1",
	"has(note) or id > 2",
	"class like '*a*?*' or key like '*'",
	"note like '*1*' and caption like '*?\\\\*'",
	"class = class and width(image) * height < 9e300",
	"sample * 18446744073709551615 / 0 = label",
	"count(caption) + count(blob) - id * score > -1",
	"sample < 0",
	"sample <",
};

/* Entries of lists, beside numbers. Weights have the same bytes. */
static const float weights[] = {
	0, 1, 0.5F, 1e-45F, 3.4e38F, 1e30F, -1, -0.0F, __builtin_inff(), __builtin_nanf(""),
};

enum { FILTERS = sizeof(filters) / sizeof(*filters), WEIGHTS = sizeof(weights) / sizeof(*weights) };
enum { LIST_MAX = 64, LIST_EMPTY = 0xfd, LIST_SPARSE = 0xfe, LIST_RAGGED = 0xff };
/* Of the byte of the lists' kind: files are being filled; numbers of blocks follow. */
enum { FILLING = 0xe0, WITH_BLOCKS = 0xf0 };

/* Returns a map or a page of files that are being filled, or of what looks like it. */
static int filling_file(const struct wish *wish, Loaderd__PartFile kind)
{
	enum { SAMPLES_MAX = 64, SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };
	bool map = kind == LOADERD__PART_FILE__PART_FILLING_MAP;
	uint8_t turns[SAMPLES_MAX];
	int fd = memfd_create("filling", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	off_t size = map ? wish->length % SAMPLES_MAX : FILLING_PAGE_SIZE;
	for (unsigned i = 0; i < SAMPLES_MAX; i++)
		turns[i] = (uint8_t)(wish->values * (i + 1) | (wish->filling & 1 ? 1 : 0));
	if (ftruncate(fd, size + (wish->filling & 2 ? !map : 0)) < 0)
		abort();
	ssize_t n = map ? pwrite(fd, turns, (size_t)size, 0) : 0;
	(void)n;
	(void)fcntl(fd, F_ADD_SEALS, wish->filling & 4 ? F_SEAL_SHRINK : SEALS);
	return fd;
}

int wish_list_file(const struct wish *wish, Loaderd__PartFile kind)
{
	if (kind > LOADERD__PART_FILE__PART_CLASS_WEIGHTS)
		return filling_file(wish, kind);
	int fd = memfd_create("list", MFD_CLOEXEC);
	bool numbers = kind == LOADERD__PART_FILE__PART_LIST;
	size_t size = numbers ? sizeof(uint64_t) : sizeof(float);
	for (unsigned i = 0; i < wish->length % LIST_MAX && wish->length < LIST_EMPTY; i++) {
		uint64_t entry = wish->values & 0x80 ? script_number((uint8_t)(wish->values + i))
						     : i % (1u + wish->values % 8u);
		float weight = weights[(wish->values / 8u + i * (wish->values % 4u)) % WEIGHTS];
		ssize_t n = write(fd, numbers ? (const void *)&entry : &weight, size);
		(void)n;
	}
	off_t end = wish->length == LIST_SPARSE ? (off_t)1 << 40 : 9;
	if (wish->length > LIST_EMPTY && ftruncate(fd, end) < 0)
		abort();
	return fd;
}

static void wish_part(struct wish *wish, uint32_t p, struct script *script)
{
	Loaderd__Choice *choice = &wish->choice[p];
	uint8_t how = script_next(script);
	loaderd__part__init(&wish->part[p]);
	loaderd__choice__init(choice);
	wish->part[p].dataset = (char *)"/fuzz.pimg";
	wish->part[p].choice = how & 0x80 ? NULL : choice;
	wish->part[p].filling = (how & 64) != 0;
	wish->part_list[p] = &wish->part[p];
	choice->listed = how & 1;
	choice->weighted = (how & 2) != 0;
	choice->class_weighted = (how & 4) != 0;
	choice->balanced = (how & 8) != 0;
	if (how & 16)
		choice->classes_per_batch = (uint32_t)script_number(script_next(script));
	if (how & 32)
		choice->where = (char *)filters[script_next(script) % FILTERS];
}

static void wish_stage(struct wish *wish, uint32_t s, struct script *script)
{
	Loaderd__Stage *stage = &wish->stage[s];
	loaderd__stage__init(stage);
	wish->stage_list[s] = stage;
	stage->from = s == 0 ? 0 : script_number(script_next(script));
	stage->shares = wish->shares[s];
	stage->n_shares = wish->parts == 1 ? 0 : wish->parts;
	for (uint32_t p = 0; p < stage->n_shares; p++)
		wish->shares[s][p] = (uint32_t)script_number(script_next(script));
}

void wish_plan(struct wish *wish, struct script *script)
{
	uint8_t counts = script_next(script);
	*wish = (struct wish){.parts = 1 + counts % ORDER_PARTS_MAX,
			      .stages = counts / 4 % ORDER_STAGES_MAX,
			      .buckets = counts / 16 % ORDER_BUCKETS_MAX,
			      .part_batches = counts & 64,
			      .ends = counts & 128};
	wish->epoch_samples = script_number(script_next(script));
	wish->length = script_next(script);
	wish->values = script_next(script);
	uint8_t kind = script_next(script);
	wish->kind = kind < 16 ? kind % 8 : 0;
	wish->filling = kind >= FILLING && kind < WITH_BLOCKS ? 8 | kind % 8 : 0;
	if (kind >= WITH_BLOCKS) {
		wish->block_samples = (uint32_t)script_number(script_next(script));
		wish->group_blocks = (uint32_t)script_number(script_next(script));
	}
	for (uint32_t p = 0; p < wish->parts; p++)
		wish_part(wish, p, script);
	for (uint32_t s = 0; s < wish->stages; s++)
		wish_stage(wish, s, script);
	for (uint32_t b = 0; b < wish->buckets; b++) {
		loaderd__bucket__init(&wish->bucket[b]);
		wish->bucket_list[b] = &wish->bucket[b];
		wish->bucket[b].width = (uint32_t)script_number(script_next(script));
		wish->bucket[b].height = (uint32_t)script_number(script_next(script));
	}
	uint8_t tokens = script_next(script);
	if (tokens & 1) {
		wish->batch_tokens = (uint32_t)script_number(script_next(script));
		wish->tokens_field = tokens & 2 ? "id" : tokens & 4 ? "absent" : "";
	}
}

void wish_ask(struct wish *wish, Loaderd__OpenFeed *open)
{
	open->dataset = (char *)"";
	open->n_parts = wish->parts;
	open->parts = wish->part_list;
	open->n_stages = wish->stages;
	open->stages = wish->stage_list;
	open->n_buckets = wish->buckets;
	open->buckets = wish->bucket_list;
	open->batch_tokens = wish->batch_tokens;
	open->tokens_field = (char *)(wish->tokens_field ? wish->tokens_field : "");
	open->part_batches = wish->part_batches;
	open->ends = wish->ends ? LOADERD__ENDS__ENDS_LAST : LOADERD__ENDS__ENDS_FIRST;
	open->epoch_samples = wish->epoch_samples;
	open->block_samples = wish->block_samples;
	open->group_blocks = wish->group_blocks;
	open->filling = wish->filling != 0 ? FILLING_VERSION + (wish->filling == 15) : 0;
	wish->parts = 0;
}
