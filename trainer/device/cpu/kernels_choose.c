/* Picks the kernels of the fastest instruction set that is there and admitted. */
#include "trainer/device/cpu/kernels.h"

#include <stdlib.h>
#include <string.h>

const struct kernels *kernels_choose(void)
{
	const struct kernels *chosen = &kernels_c;
#ifdef HAVE_X86_KERNELS
	const char *cap = getenv("LOADERD_ISA");

	if (cap && !strcmp(cap, "c"))
		return chosen;
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		chosen = &kernels_avx2;
	if (cap && !strcmp(cap, "avx2"))
		return chosen;
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
		chosen = &kernels_avx512;
#endif
	return chosen;
}
