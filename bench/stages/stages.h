/*
 * Measures what each stage of making random-resized crops costs one core, in our own code and in
 * libjpeg-turbo. A struct crops is chosen once and then constant; the dataset must outlive it.
 * stages_measure() measures each decoder in a separate process, since the instruction set is chosen
 * once per process. Times are CPU time, so other programs have little effect on them.
 */
#pragma once

#include "bench/stages/turbo.h"
#include "format/base/system/cpu.h"
#include "format/packimg.h"

struct crop {
	struct packimg_sample sample;
	struct turbo_crop part; /* region of the stored image */
};

struct crops {
	const char *pipeline;
	uint32_t side;
	struct crop *crops;
	uint32_t count, indexed;
	/* samples skipped: our decoder cannot read them, or they are not stored upright */
	uint64_t skipped;
	double pixels; /* sum over all crops */
	double bytes;  /* sum over all JPEGs */
};

/*
 * Draws count crops for a pipeline that begins with a random-resized crop, from samples all over
 * the dataset. Returns 0, or -1 with error.
 */
int crops_choose(const struct packimg *dataset, const char *pipeline, uint32_t count,
		 struct crops *ret_crops, struct packimg_error *error);
void crops_deinit(struct crops *crops);

/*
 * Implementation under test: our code with each instruction set (enum cpu_isa), or libjpeg-turbo.
 */
enum decoder { DECODER_TURBO = CPU_ISA_COUNT, DECODER_COUNT };

/* Microseconds per crop; NAN if a decoder lacks the stage. */
enum crop_stage {
	CROP_ENTROPY, /* entropy decoding of the crop */
	CROP_DECODE,  /* entropy decoding plus the crop's pixels */
	CROP_SAMPLE,  /* CROP_DECODE plus resize, flip and store: the finished sample */
	/*
	 * CROP_ENTROPY with warm caches: each crop is decoded several times in a row into one
	 * buffer; the minimum counts
	 */
	CROP_WARM_ENTROPY,
	/* CROP_SAMPLE with warm caches, measured likewise */
	CROP_WARM_SAMPLE,
	CROP_IMAGE,        /* pixels of the whole image */
	CROP_COEFFICIENTS, /* coefficients of the whole image */
	CROP_STAGES,
};

struct times {
	double us[CROP_STAGES];
	char error[PACKIMG_ERROR_MAX]; /* empty on success */
};

const char *decoder_name(enum decoder decoder);
const char *stage_name(enum crop_stage stage);

/*
 * Runs in a separate process. Goes through all crops twice per stage, once to warm up and once to
 * measure, in file order and writing to consecutive places of a batch, like the daemon. The warm
 * stages allow a comparison with benchmarks that repeat one crop. Fills in error on failure.
 */
void stages_measure(const struct crops *crops, enum decoder decoder, struct times *ret_times);
/*
 * Writes the crops' pixels: width and height as little-endian uint32, then RGB, one crop after the
 * other. Selects this process's instruction set, so call it only after the last stages_measure().
 * Returns 0 or a negative errno.
 */
int stages_dump(const struct crops *crops, const char *path);
