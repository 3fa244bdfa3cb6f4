/*
 * stages: what each stage of making random-resized crops costs one core, by our own code and by
 * libjpeg-turbo. A struct crops is chosen once, from a dataset that outlives it, and not changed;
 * stages_measure() then runs in a process of its own for each lane, as the instruction set is
 * chosen once per process. Times are CPU time, so that other programs count little.
 */
#pragma once

#include "bench/stages/turbo.h"
#include "format/base/system/cpu.h"
#include "format/packimg.h"

struct crop {
	struct packimg_sample sample;
	struct turbo_crop part; /* of the stored image */
};

struct crops {
	const char *pipeline;
	uint32_t side;
	struct crop *crops;
	uint32_t count, indexed;
	/* samples that our own decoder does not read, or that are not stored upright */
	uint64_t passed_over;
	double pixels; /* in all parts */
	double bytes;  /* of all JPEGs */
};

/*
 * Draws count crops for a pipeline, which begins with a random-resized crop, from samples all over
 * the dataset. 0, or -1 with error.
 */
int crops_choose(const struct packimg *dataset, const char *pipeline, uint32_t count,
		 struct crops *ret_crops, struct packimg_error *error);
void crops_deinit(struct crops *crops);

/* Who does the work: our code with each of the instruction sets (enum cpu_isa), or libjpeg-turbo.
 */
enum lane { LANE_TURBO = CPU_ISA_COUNT, LANE_COUNT };

/* Microseconds a crop; NAN where a lane has no such thing. */
enum crop_stage {
	CROP_ENTROPY, /* coefficients of the crop */
	CROP_DECODE,  /* that, and the crop's pixels from them */
	CROP_SAMPLE,  /* that, resized, flipped and stored: the finished sample */
	/* CROP_ENTROPY and CROP_SAMPLE again, with all that they use in cache: */
	CROP_WARM_ENTROPY,
	/* each crop a few times in a row, to one place; its least time counts */
	CROP_WARM_SAMPLE,
	CROP_IMAGE,        /* the whole image's pixels */
	CROP_COEFFICIENTS, /* the whole image's coefficients */
	CROP_STAGES,
};

struct times {
	double us[CROP_STAGES];
	char error[PACKIMG_ERROR_MAX]; /* empty: it worked */
};

const char *lane_name(enum lane lane);
const char *stage_name(enum crop_stage stage);

/*
 * In a process of its own, goes through all crops twice for each stage, to warm up and to measure:
 * a crop's image is then the next in the file, and the place of its sample the next in a batch, as
 * in the daemon. The warm stages are for comparison with what repeats one crop. error is filled in
 * if that fails.
 */
void stages_measure(const struct crops *crops, enum lane lane, struct times *ret_times);
/*
 * Writes the crops' pixels: width and height as little-endian uint32, then RGB, one crop after the
 * other. Chooses this process's instruction set, so not before the last stages_measure(). 0 or a
 * negative errno.
 */
int stages_dump(const struct crops *crops, const char *path);
