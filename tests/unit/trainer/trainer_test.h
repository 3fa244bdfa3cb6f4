/*
 * Shared code for the trainer's tests: a CPU device with a model, and weights and images made as in
 * tests/golden/networks/make.py.
 */
#pragma once

#include "trainer/device/device.h"
#include "trainer/device/graph.h"
#include "trainer/device/params.h"
#include "trainer/model/model.h"
#include "trainer/recipe/recipe.h"

struct fixture {
	struct recipe recipe;
	struct device *device;
	struct device_params *params;
	struct model *model;
};

/*
 * `settings` are "section.key=value" and paths of recipes, separated by spaces. Fails the test on
 * an error.
 */
void fixture_init(struct fixture *fixture, const char *settings, uint32_t classes,
		  const struct device_optimizer_spec *optimizer);
void fixture_deinit(struct fixture *fixture);
/* Returns a planned graph. If keep_all is set, every value can be read. */
struct device_graph *fixture_graph(struct fixture *fixture, enum device_mode mode, uint32_t count,
				   uint32_t side, double smoothing, bool keep_all);

/* fill(), images() and labels() of make.py. */
void golden_fill(struct fixture *fixture, uint64_t seed);
void golden_images(uint64_t seed, const char *name, uint32_t count, uint32_t side,
		   uint8_t *ret_pixels);
void golden_labels(uint64_t seed, const char *name, uint32_t count, int32_t *ret_labels);
extern const double golden_mean[3], golden_std[3];
