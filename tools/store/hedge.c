#include "tools/store/hedge.h"

#include <stdlib.h>
#include <string.h>

enum {
	CLASS_FIRST = 4096, /* bytes */
	TIMES_MIN = 64,     /* before a class has a 95th percentile */
	REFRESH = 16,       /* times between two computations of it */
	LATE_FACTOR = 3,
	LATE_MIN_MS = 50,       /* below, a busy machine is more often the reason than the store */
	CREDIT_HEDGES_MAX = 32, /* at once, after a long time without any */
};

static unsigned class_of(uint64_t bytes)
{
	unsigned number = 0;

	for (uint64_t end = CLASS_FIRST; number + 1 < HEDGE_CLASSES && bytes > end; end *= 4)
		number++;
	return number;
}

static int compare_times(const void *left, const void *right)
{
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

	return a < b ? -1 : a > b;
}

/* Of the 95th percentile. */
static uint32_t find_late_ms(const struct hedge_class *class)
{
	uint32_t sorted[HEDGE_TIMES];
	unsigned count = class->count < HEDGE_TIMES ? class->count : HEDGE_TIMES;

	memcpy(sorted, class->times_ms, count * sizeof(*sorted));
	qsort(sorted, count, sizeof(*sorted), compare_times);
	uint32_t late_ms = LATE_FACTOR * sorted[count * 19 / 20];
	return late_ms > LATE_MIN_MS ? late_ms : LATE_MIN_MS;
}

void hedging_note(struct hedging *hedging, uint64_t bytes, int64_t took_ms)
{
	struct hedge_class *class = &hedging->classes[class_of(bytes)];

	if (hedging->credit < CREDIT_HEDGES_MAX * HEDGE_PART)
		hedging->credit++;
	class->times_ms[class->count++ % HEDGE_TIMES] =
		took_ms < UINT32_MAX / LATE_FACTOR ? (uint32_t)took_ms : UINT32_MAX / LATE_FACTOR;
	if (class->count >= TIMES_MIN && class->count % REFRESH == 0)
		class->late_ms = find_late_ms(class);
}

int64_t hedging_late_ms(const struct hedging *hedging, uint64_t bytes)
{
	uint32_t late_ms = hedging->classes[class_of(bytes)].late_ms;

	return late_ms ? late_ms : INT64_MAX;
}

bool hedging_spend(struct hedging *hedging)
{
	if (hedging->credit < HEDGE_PART)
		return false;
	hedging->credit -= HEDGE_PART;
	return true;
}
