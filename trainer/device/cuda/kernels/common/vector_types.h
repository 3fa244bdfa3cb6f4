/*
 * The vector types that kernels over tensors are instantiated for: 16 bytes of an element type, or
 * a single element if the number of channels or the alignment of a pointer does not allow 16 bytes.
 * Such a kernel is a template over a type V; it loads V from memory and computes in V::LANES fp32
 * registers.
 */
#ifndef TRAINER_DEVICE_CUDA_VECTOR_TYPES_H
#define TRAINER_DEVICE_CUDA_VECTOR_TYPES_H

#include "trainer/device/cuda/kernels/common/kernel.h"

/* LANES adjacent elements in memory format: load early, unpack when needed. */
template <enum cuda_element element, uint32_t lanes> struct vector {
	static constexpr enum cuda_element ELEMENT = element;
	static constexpr uint32_t LANES = lanes;
	struct kernel_pack pack;
};

template <enum cuda_element element> struct vector<element, 1> {
	static constexpr enum cuda_element ELEMENT = element;
	static constexpr uint32_t LANES = 1;
	float value;
};

using f32x4 = vector<CUDA_F32, 4>;
using f32x1 = vector<CUDA_F32, 1>;
using f16x8 = vector<CUDA_F16, 8>;
using f16x1 = vector<CUDA_F16, 1>;
using bf16x8 = vector<CUDA_BF16, 8>;
using bf16x1 = vector<CUDA_BF16, 1>;

/*
 * All instances of a kernel template, in the order of kernel_instance(). Additional template
 * arguments follow the name of the kernel.
 */
/* clang-format off */
#define INSTANCES(kernel, ...)                                                                     \
	{                                                                                          \
		KERNEL(kernel<f32x4, ##__VA_ARGS__>), KERNEL(kernel<f32x1, ##__VA_ARGS__>),        \
		KERNEL(kernel<f16x8, ##__VA_ARGS__>), KERNEL(kernel<f16x1, ##__VA_ARGS__>),        \
		KERNEL(kernel<bf16x8, ##__VA_ARGS__>), KERNEL(kernel<bf16x1, ##__VA_ARGS__>)       \
	}
/* clang-format on */

/* Loads the vector that begins with element `at`. */
template <typename V> DEVICE V load(const void *from, uint64_t at)
{
	V raw;

	if constexpr (V::LANES == 1)
		raw.value = kernel_load(from, at, V::ELEMENT);
	else
		raw.pack = kernel_load16((const char *)from + at * (16 / V::LANES));
	return raw;
}

template <typename V> DEVICE void unpack(float *v, V raw)
{
	if constexpr (V::LANES == 1) {
		v[0] = raw.value;
	} else if constexpr (V::LANES == 4) {
		EACH(i, 4)
			v[i] = kernel_from_bits(raw.pack.word[i]);
	} else {
		EACH(i, 4) {
			uint32_t word = raw.pack.word[i];

			v[2 * i] = V::ELEMENT == CUDA_F16 ? kernel_from_f16((uint16_t)word)
							  : kernel_from_bits(word << 16);
			v[2 * i + 1] = V::ELEMENT == CUDA_F16
					       ? kernel_from_f16((uint16_t)(word >> 16))
					       : kernel_from_bits(word & 0xffff0000);
		}
	}
}

template <typename V> DEVICE void store(void *to, uint64_t at, const float *v)
{
	if constexpr (V::LANES == 1) {
		kernel_store(to, at, V::ELEMENT, v[0]);
	} else {
		struct kernel_pack pack;

		EACH(i, 4) {
			if constexpr (V::LANES == 4)
				pack.word[i] = kernel_to_bits(v[i]);
			else if constexpr (V::ELEMENT == CUDA_F16)
				pack.word[i] = kernel_to_f16x2(v[2 * i], v[2 * i + 1]);
			else
				pack.word[i] = kernel_to_bf16x2(v[2 * i], v[2 * i + 1]);
		}
		kernel_store16((char *)to + at * (16 / V::LANES), pack);
	}
}

template <uint32_t LANES> DEVICE void fill(float (&v)[LANES], float value)
{
	EACH(i, LANES)
		v[i] = value;
}

/* v += w */
template <uint32_t LANES> DEVICE void add(float (&v)[LANES], const float (&w)[LANES])
{
	EACH(i, LANES)
		v[i] += w[i];
}

/*
 * Loads channels `channel` .. `channel` + LANES - 1 of an fp32 vector; fills v with `otherwise` if
 * the vector is NULL.
 */
template <uint32_t LANES>
DEVICE void load_channels(float (&v)[LANES], const float *from, uint32_t channel, float otherwise)
{
	if (!from) {
		fill(v, otherwise);
		return;
	}
	if constexpr (LANES == 1) {
		v[0] = from[channel];
	} else {
		UNROLL
		for (uint32_t i = 0; i < LANES; i += 4) {
			struct kernel_pack pack = kernel_load16(from + channel + i);

			EACH(j, 4)
				v[i + j] = kernel_from_bits(pack.word[j]);
		}
	}
}

/* LANES bytes in memory format. */
template <uint32_t LANES> struct byte_vector {
	uint32_t word[(LANES + 3) / 4];
};

template <uint32_t LANES>
DEVICE struct byte_vector<LANES> load_bytes(const uint8_t *from, uint64_t at) {
	struct byte_vector<LANES> raw;

	if constexpr (LANES == 1) {
		raw.word[0] = from[at];
	} else if constexpr (LANES == 4) {
		raw.word[0] = kernel_load4(from + at);
	} else {
		struct kernel_half_pack pack = kernel_load8(from + at);

		raw.word[0] = pack.word[0];
		raw.word[1] = pack.word[1];
	}
	return raw;
}

template <uint32_t LANES>
DEVICE uint32_t byte_at(const struct byte_vector<LANES> &raw, uint32_t lane)
{
	return raw.word[lane / 4] >> 8 * (lane % 4) & 0xff;
}

template <uint32_t LANES>
DEVICE void store_bytes(uint8_t *to, uint64_t at, const uint32_t (&v)[LANES])
{
	if constexpr (LANES == 1) {
		to[at] = (uint8_t)v[0];
	} else if constexpr (LANES == 4) {
		kernel_store4(to + at, v[0] | v[1] << 8 | v[2] << 16 | v[3] << 24);
	} else {
		struct kernel_half_pack pack;

		pack.word[0] = v[0] | v[1] << 8 | v[2] << 16 | v[3] << 24;
		pack.word[1] = v[4] | v[5] << 8 | v[6] << 16 | v[7] << 24;
		kernel_store8(to + at, pack);
	}
}

#endif
