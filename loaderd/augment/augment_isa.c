#include "loaderd/augment/augment_isa.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"c", "avx2", "avx512bw", "avx512"};

enum augment_isa augment_isa_supported(void)
{
#ifdef AUGMENT_HAVE_AVX2
	/* F16C has no name in every compiler's list, but no processor has AVX2 without it. */
	if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
		return AUGMENT_ISA_C;
#ifdef AUGMENT_HAVE_AVX512
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
		return __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni")
			       ? AUGMENT_ISA_AVX512
			       : AUGMENT_ISA_AVX512BW;
#endif
	return AUGMENT_ISA_AVX2;
#else
	return AUGMENT_ISA_C;
#endif
}

enum augment_isa augment_isa_chosen(void)
{
	enum augment_isa isa = augment_isa_supported();
	const char *cap = getenv("LOADERD_ISA");

	for (int i = 0; cap && i < (int)isa; i++)
		if (strcmp(cap, names[i]) == 0)
			return (enum augment_isa)i;
	return isa;
}

const char *augment_isa_name(enum augment_isa isa)
{
	return names[isa];
}
