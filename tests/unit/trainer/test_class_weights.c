/* Balanced class weights. */
#include "tests/test.h"
#include "trainer/algorithms/class_weights.h"

#include <math.h>

/* Expects the weights of scikit-learn's compute_class_weight("balanced") for these label counts. */
TEST(as_scikit_learn)
{
	static const double counts[] = {3, 1, 6, 40};
	static const double expected[] = {4.166666666666667, 12.5, 2.0833333333333335, 0.3125};
	float weights[4];
	class_weights_balanced(counts, 4, weights);
	for (int i = 0; i < 4; i++)
		assert_true(fabs((double)weights[i] - expected[i]) < 1e-6 * expected[i]);
}

/* A class without samples gets weight 1 and does not change the other weights. */
TEST(class_without_samples)
{
	static const double counts[] = {3, 0, 1, 6, 40, 0}, some[] = {3, 1, 6, 40};
	float weights[6], of_some[4];
	class_weights_balanced(counts, 6, weights);
	class_weights_balanced(some, 4, of_some);
	assert_true(weights[1] == 1 && weights[5] == 1);
	assert_true(weights[0] == of_some[0] && weights[2] == of_some[1]);
	assert_true(weights[3] == of_some[2] && weights[4] == of_some[3]);
}
