/*
 * Instruction set levels of the kernels. Each level includes the one before it. The level used is
 * what the processor and operating system support, capped by the environment variable LOADERD_ISA.
 * The choice affects speed only; the cap is for tests. Stateless; any thread.
 */
#pragma once

#include <stddef.h>

enum cpu_isa {
	CPU_ISA_C = 0,        /* the reference */
	CPU_ISA_AVX2 = 1,     /* AVX2, FMA, F16C */
	CPU_ISA_AVX512BW = 2, /* AVX-512 F, BW, DQ, VL */
	CPU_ISA_AVX512 = 3,   /* AVX512BW, VBMI, VBMI2 and VNNI */
	CPU_ISA_COUNT
};

/* Initialiser of an array of kernels indexed by enum cpu_isa: NAME_c, NAME_avx2 and so on. */
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

/* The highest supported level, ignoring the environment. */
enum cpu_isa cpu_isa_supported(void);
/*
 * The highest level that LOADERD_ISA allows. There is no cap if LOADERD_ISA is unset, empty or
 * invalid.
 */
enum cpu_isa cpu_isa_cap(void);
/* The highest level that is both supported and allowed. */
enum cpu_isa cpu_isa_chosen(void);
/* "c", "avx2", "avx512bw", "avx512". */
const char *cpu_isa_name(enum cpu_isa isa);
/*
 * Returns -EINVAL, with a message in ret_error, if LOADERD_ISA is invalid. Programs then exit at
 * start-up.
 */
int cpu_isa_check(char *ret_error, size_t size);
