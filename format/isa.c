#include "format/error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int packimg_isa_check(struct packimg_error *error)
{
	static const char *const names[] = {"c", "avx2", "avx512bw", "avx512"};
	const char *cap = getenv("LOADERD_ISA");

	if (!cap || !*cap)
		return 0;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(cap, names[i]))
			return 0;
	return packimg_fail(error, -EINVAL,
			    "LOADERD_ISA = \"%.100s\" in the environment: expected c, avx2, "
			    "avx512bw or avx512, or leave it unset",
			    cap);
}
