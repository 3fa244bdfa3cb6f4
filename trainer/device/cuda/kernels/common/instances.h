/*
 * Includes the file named by KERNEL_BODY once per kernel instance. ELEMENT is the element type of
 * the tensors, LANES the number of adjacent elements per thread, and NAME(x) appends the instance's
 * suffix to x. INSTANCES(x) then defines the table x_kernels, in the order of columns_instance().
 */
#include "trainer/device/cuda/kernels/common/kernel.h"

#include "trainer/device/cuda/kernels/common/activation_grad.h"
#include "trainer/device/cuda/kernels/row_reduce.h"

#define ELEMENT CUDA_F32
#define LANES   4
#define NAME(x) x##_f32x4
#include "trainer/device/cuda/kernels/common/lanes.h"

#define LANES   1
#define NAME(x) x##_f32x1
#include "trainer/device/cuda/kernels/common/lanes.h"
#undef ELEMENT

#define ELEMENT CUDA_F16
#define LANES   8
#define NAME(x) x##_f16x8
#include "trainer/device/cuda/kernels/common/lanes.h"

#define LANES   1
#define NAME(x) x##_f16x1
#include "trainer/device/cuda/kernels/common/lanes.h"
#undef ELEMENT

#define ELEMENT CUDA_BF16
#define LANES   8
#define NAME(x) x##_bf16x8
#include "trainer/device/cuda/kernels/common/lanes.h"

#define LANES   1
#define NAME(x) x##_bf16x1
#include "trainer/device/cuda/kernels/common/lanes.h"
#undef ELEMENT

#define INSTANCES(x)                                                                               \
	KERNEL_TABLE x##_kernels[KERNEL_INSTANCES] = {                                             \
		KERNEL(x##_f32x4), KERNEL(x##_f32x1),  KERNEL(x##_f16x8),                          \
		KERNEL(x##_f16x1), KERNEL(x##_bf16x8), KERNEL(x##_bf16x1),                         \
	};
