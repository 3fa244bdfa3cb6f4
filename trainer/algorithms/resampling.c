#include "trainer/algorithms/resampling.h"

#include "trainer/algorithms/mix.h"
#include "trainer/algorithms/progressive.h"

bool resampling_is_on(const struct recipe *recipe)
{
	return mix_is_on(&recipe->train) || recipe->data.colout > 0 ||
	       progressive_is_on(&recipe->data);
}
