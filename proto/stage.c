#include "proto/stage.h"

#include "proto/feed.pb-c.h"

const struct stage_row stages[STAGE_COUNT] = {
#define STAGE(constant, name, limit, place, column, waits_for)                                     \
	{#name,     #name "_ns",   column,                                                         \
	 waits_for, LIMIT_##limit, offsetof(Loaderd__FeedStatus, name##_ns)},
	STAGES(STAGE)
#undef STAGE
};

void stages_put(const uint64_t times[STAGE_COUNT], Loaderd__FeedStatus *status)
{
	for (enum stage i = 0; i < STAGE_COUNT; i++)
		*(uint64_t *)(void *)((char *)status + stages[i].field) = times[i];
}

void stages_add(uint64_t times[STAGE_COUNT], const Loaderd__FeedStatus *status)
{
	for (enum stage i = 0; i < STAGE_COUNT; i++)
		times[i] +=
			*(const uint64_t *)(const void *)((const char *)status + stages[i].field);
}

uint64_t stages_work(const uint64_t times[STAGE_COUNT])
{
	uint64_t all = 0;
	for (enum stage i = 0; i < STAGE_WORK_COUNT; i++)
		all += times[i];
	return all;
}
