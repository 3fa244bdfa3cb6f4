/*
 * Which instruction set the kernels of this folder use. Chosen when an object with kernels is made
 * (resize_new, transform_scratch_new), from what the processor has and the cap in the environment
 * variable LOADERD_ISA (c, avx2, avx512bw or avx512). Every set computes the same bytes, so the
 * choice is about speed and about tests. No state; any thread.
 */
#pragma once

enum augment_isa {
	AUGMENT_ISA_C = 0,        /* the reference */
	AUGMENT_ISA_AVX2 = 1,     /* AVX2, FMA, F16C */
	AUGMENT_ISA_AVX512BW = 2, /* AVX-512 F, BW, DQ, VL */
	AUGMENT_ISA_AVX512 = 3,   /* these, VBMI and VNNI */
	AUGMENT_ISA_COUNT
};

/*
 * The best set that processor, operating system and this build have, whatever the environment says.
 */
enum augment_isa augment_isa_supported(void);
/*
 * The same under the cap of LOADERD_ISA; a value that is none of the names is no cap, and for
 * programs to refuse (packimg_isa_check).
 */
enum augment_isa augment_isa_chosen(void);
/* "c", "avx2", "avx512bw", "avx512". */
const char *augment_isa_name(enum augment_isa isa);
