/* Selects the kernel table of an instruction set. */
#include "trainer/device/cpu/kernels.h"

const struct kernels *kernels_of(enum cpu_isa isa)
{
#ifdef __x86_64__
	if (isa >= CPU_ISA_AVX512BW)
		return &kernels_avx512;
	if (isa >= CPU_ISA_AVX2)
		return &kernels_avx2;
#endif
	return &kernels_c;
}
