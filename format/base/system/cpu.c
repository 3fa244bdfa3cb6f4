#include "format/base/system/cpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[CPU_ISA_COUNT] = {"c", "avx2", "avx512bw", "avx512"};

enum cpu_isa cpu_isa_supported(void)
{
#ifdef __x86_64__
	/* Not every compiler can test for F16C, but every processor with AVX2 has it. */
	if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
		return CPU_ISA_C;
	if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
	    !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
		return CPU_ISA_AVX2;
	if (!__builtin_cpu_supports("avx512vbmi") || !__builtin_cpu_supports("avx512vbmi2") ||
	    !__builtin_cpu_supports("avx512vnni"))
		return CPU_ISA_AVX512BW;
	return CPU_ISA_AVX512;
#else
	return CPU_ISA_C;
#endif
}

/* Returns the level that LOADERD_ISA names, or -EINVAL. */
static int read_cap(const char *cap)
{
	if (!cap || !*cap)
		return CPU_ISA_COUNT - 1;
	for (int i = 0; i < CPU_ISA_COUNT; i++)
		if (strcmp(cap, names[i]) == 0)
			return i;
	return -EINVAL;
}

enum cpu_isa cpu_isa_cap(void)
{
	int cap = read_cap(getenv("LOADERD_ISA"));

	return cap < 0 ? CPU_ISA_COUNT - 1 : (enum cpu_isa)cap;
}

enum cpu_isa cpu_isa_chosen(void)
{
	enum cpu_isa supported = cpu_isa_supported(), cap = cpu_isa_cap();

	return cap < supported ? cap : supported;
}

const char *cpu_isa_name(enum cpu_isa isa)
{
	return names[isa];
}

int cpu_isa_check(char *ret_error, size_t size)
{
	const char *cap = getenv("LOADERD_ISA");

	if (read_cap(cap) >= 0)
		return 0;
	snprintf(ret_error, size,
		 "LOADERD_ISA = \"%.100s\" in the environment: expected c, avx2, avx512bw or "
		 "avx512, or leave it unset",
		 cap);
	return -EINVAL;
}
