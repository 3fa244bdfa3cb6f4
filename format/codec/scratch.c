#include "scratch.h"

#include <errno.h>
#include <stdlib.h>

/* the slack is a multiple of the alignment, as aligned_alloc() wants the whole */
enum { SCRATCH_ALIGN = 128, SCRATCH_SLACK = 128, SCRATCH_STEP = 1 << 16 };

int scratch_reserve(struct scratch *scratch, size_t size)
{
	if (size <= scratch->size)
		return 0;
	if (size > SIZE_MAX / 2)
		return -ENOMEM;
	/* a quarter more than asked, in whole steps, so that slowly growing images do not reallocate each time */
	size_t grown = (size + size / 4 + SCRATCH_STEP - 1) / SCRATCH_STEP * SCRATCH_STEP;
	uint8_t *data = aligned_alloc(SCRATCH_ALIGN, grown + SCRATCH_SLACK);
	if (!data)
		return -ENOMEM;
	free(scratch->data);
	scratch->data = data;
	scratch->size = grown;
	return 0;
}

void scratch_deinit(struct scratch *scratch)
{
	free(scratch->data);
	*scratch = (struct scratch){0};
}
