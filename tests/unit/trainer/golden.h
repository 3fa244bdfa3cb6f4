/*
 * Shared code for tests that compare training with JSON references (tests/golden/networks and
 * tests/golden/trajectories): digests of tensors, and trajectories of steps. All functions fail the
 * calling test on a difference.
 */
#pragma once

#include "tests/unit/trainer/trainer_test.h"
#include "trainer/device/params.h"

#include <jansson.h>

/* Loads a file; `name` is relative to tests/golden/networks. */
json_t *golden_load(const char *name);
double golden_number(const json_t *json, const char *key);
void golden_near(double value, double expected, double tolerance, const char *what);
/*
 * Compares a slot of every parameter named in the digests; the tolerance is relative to the norm.
 */
void golden_compare(struct fixture *fixture, const json_t *digests, enum device_slot slot,
		    double tolerance);

/* Training steps with reference losses and learning rates; each step is one epoch. */
struct golden_trajectory {
	const struct recipe *recipe;
	struct device_graph *graph;
	const json_t *reference;
	uint64_t seed; /* for images and labels */
	uint32_t count, side;
	/*
	 * called before each step with its index, counted from 0; may replace the graph; may be
	 * NULL
	 */
	void (*prepare)(struct golden_trajectory *trajectory, size_t step);
};

/* The tolerance applies to losses. */
void golden_follow(struct golden_trajectory *trajectory, double tolerance);
