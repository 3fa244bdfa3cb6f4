/*
 * libavif, loaded when the first AVIF is read, so that packimg runs without it. Its structures
 * differ between versions, and distributions have different ones: loads only AVIF_SONAME, the
 * soname of the headers in the build. Any thread.
 */
#pragma once

#include <avif/avif.h>

#define AVIF_FUNCTIONS(X)                                                                          \
	X(avifDecoderCreate)                                                                       \
	X(avifDecoderDestroy)                                                                      \
	X(avifDecoderNextImage)                                                                    \
	X(avifDecoderParse)                                                                        \
	X(avifDecoderSetIOMemory)                                                                  \
	X(avifImageYUVToRGB)                                                                       \
	X(avifRGBImageSetDefaults)                                                                 \
	X(avifResultToString)

/* Pointers to libavif's functions, under their own names: library->avifDecoderCreate(). */
struct avif_library {
#define MEMBER(function) __typeof__(&(function)) function;
	AVIF_FUNCTIONS(MEMBER)
#undef MEMBER
};

/* NULL if the library is not installed. It is not unloaded. */
const struct avif_library *avif_library(void);
