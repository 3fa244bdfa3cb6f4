/*
 * The instruction sets that kernels are written for, each with all of the one before it: what
 * processor and operating system have, under the cap of the environment variable LOADERD_ISA. The
 * choice is about speed and about tests. No state; any thread.
 */
#pragma once

#include <stddef.h>

enum cpu_isa {
	CPU_ISA_C = 0,        /* the reference */
	CPU_ISA_AVX2 = 1,     /* AVX2, FMA, F16C */
	CPU_ISA_AVX512BW = 2, /* AVX-512 F, BW, DQ, VL */
	CPU_ISA_AVX512 = 3,   /* these, VBMI, VBMI2 and VNNI */
	CPU_ISA_COUNT
};

/* The initializer of an array of a library's kernels by enum cpu_isa: NAME_c, NAME_avx2 and so on.
 */
#ifdef __x86_64__
#define CPU_ISA_EACH(name)                                                                         \
	{                                                                                          \
		&name##_c, &name##_avx2, &name##_avx512bw, &name##_avx512                          \
	}
#else
#define CPU_ISA_EACH(name)                                                                         \
	{                                                                                          \
		&name##_c                                                                          \
	}
#endif

/* The best that is there, whatever the environment says. */
enum cpu_isa cpu_isa_supported(void);
/* What the environment admits: the last where it says nothing, or none of the names. */
enum cpu_isa cpu_isa_cap(void);
/* The best that is there and admitted. */
enum cpu_isa cpu_isa_chosen(void);
/* "c", "avx2", "avx512bw", "avx512". */
const char *cpu_isa_name(enum cpu_isa isa);
/* -EINVAL, and a sentence in ret_error: LOADERD_ISA is none of the names. For programs to refuse.
 */
int cpu_isa_check(char *ret_error, size_t size);
