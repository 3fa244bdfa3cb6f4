/* Scores of logits on the host, against values computed by hand. */
#include "tests/test.h"
#include "trainer/algorithms/score.h"

#include <math.h>

TEST(by_hand)
{
	const float logits[3][6] = {
		{0, 1, 2, 3, 4, 5}, {7, 7, 7, 7, 7, 7}, {1000, 0, 0, 0, 0, -1000}};
	const int32_t labels[3] = {0, 5, 0};
	struct score score = {0};
	score_add(&score, logits[0], labels, 1, 6, 1);
	assert_true(fabs(score.loss - log(1 + exp(1) + exp(2) + exp(3) + exp(4) + exp(5))) < 1e-12);
	assert_int_equal(score.top5, 0);
	score = (struct score){0};
	score_add(&score, logits[1], labels + 1, 1, 6, 3);
	assert_true(fabs(score.loss - log(6)) < 1e-12);
	assert_int_equal(score.top1, 0); /* the label is the last of six equal logits */
	assert_int_equal(score.top5, 0);
	score = (struct score){0};
	score_add(&score, logits[2], labels + 2, 1, 6, 1);
	assert_true(score.loss == 0);
	assert_int_equal(score.top1, 1);
	score = (struct score){0};
	score_add(&score, logits[0], labels, 3, 6, 0.5);
	assert_int_equal(score.samples, 3);
	assert_int_equal(score.top1, 1);
}

TEST(no_label)
{
	const float logits[2][3] = {{1, 2, 3}, {3, 2, 1}};
	const int32_t labels[2] = {-1, 3};
	struct score score = {0};
	score_add(&score, logits[0], labels, 2, 3, 1);
	assert_int_equal(score.samples, 0);
	assert_true(score.loss == 0);
}

/* A diverged network does not count as always correct. */
TEST(not_finite)
{
	const float logits[2][6] = {{NAN, NAN, NAN, NAN, NAN, NAN}, {1, INFINITY, 1, 1, 1, 1}};
	const int32_t labels[2] = {0, 1};
	struct score score = {0};
	score_add(&score, logits[0], labels, 2, 6, 1);
	assert_int_equal(score.samples, 2);
	assert_int_equal(score.top1, 0);
	assert_int_equal(score.top5, 0);
	assert_true(isnan(score.loss));
}
