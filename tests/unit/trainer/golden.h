/*
 * What tests that compare training with references in JSON share (tests/golden/networks and
 * tests/golden/trajectories): digests of tensors, and trajectories of steps. All fail the test that
 * calls them where something differs.
 */
#pragma once

#include "tests/unit/trainer/trainer_test.h"

#include <jansson.h>

/* A file of tests/golden/networks, by its path from there. */
json_t *golden_load(const char *name);
double golden_number(const json_t *json, const char *key);
void golden_near(double value, double expected, double tolerance, const char *what);
/* Compares a slot of every parameter that the digests name; tolerance relative to the norm. */
void golden_compare(struct fixture *fixture, const json_t *digests, enum device_slot slot,
		    double tolerance);

/* Steps of training whose losses and learning rates a reference has; each is an epoch. */
struct golden_trajectory {
	const struct recipe *recipe;
	struct device_graph *graph;
	const json_t *reference;
	uint64_t seed; /* of images and labels */
	uint32_t count, side;
	/* before the step that follows `step`, or NULL: may make another graph */
	void (*prepare)(struct golden_trajectory *trajectory, size_t step);
};

/* tolerance: of losses. */
void golden_follow(struct golden_trajectory *trajectory, double tolerance);
