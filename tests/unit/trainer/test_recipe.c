/* Recipes: accepted and refused input, and the text of the errors. */
#include "tests/test.h"
#include "trainer/recipe/recipe_value.h"

#include <sys/stat.h>

static char error[RECIPE_ERROR_MAX];

static int setup(void **state)
{
	static struct recipe recipe;
	error[0] = '\0';
	*state = &recipe;
	return recipe_init(&recipe);
}

static int teardown(void **state)
{
	recipe_deinit(*state);
	return 0;
}

static void refused(struct recipe *recipe, const char *text, const char *expected)
{
	assert_int_equal(recipe_load_text(recipe, "r.ini", text, error), -EINVAL);
	if (!strstr(error, expected))
		fail_msg("\"%s\" does not say \"%s\"", error, expected);
}

TEST_WITH(defaults, setup, teardown)
{
	const struct recipe *recipe = *state;
	assert_int_equal(recipe->data.batch_size, 128);
	assert_true(recipe->data.shuffle);
	assert_string_equal(recipe->model.name, "resnet18");
	assert_true(recipe->optim.nesterov);
	assert_int_equal(recipe->schedule.name, SCHEDULE_COSINE);
	assert_int_equal(recipe->schedule.milestones.count, 0);
	assert_true(recipe->model.bn_epsilon == 1e-5);
}

TEST_WITH(every_type, setup, teardown)
{
	struct recipe *recipe = *state;
	int r = recipe_load_text(
		recipe, "r.ini",
		"; a comment\n[data]\ntrain = a b.pimg ; another\npipeline = random_resized_crop(\n"
		"\tsize=128@0;160@6,\n\tscale=0.35:1) hflip(0.5)\nshuffle = off\nbatch_size=64\n"
		"mean = 1, 2.5 ,3\n[schedule]\nname = multi_step\nmilestones = 1,2.5\n"
		"[optim]\nlr = 1e-2\n",
		error);
	if (r)
		fail_msg("%s", error);
	assert_string_equal(recipe->data.train, "a b.pimg");
	assert_string_equal(recipe->data.pipeline,
			    "random_resized_crop( size=128@0;160@6, scale=0.35:1) hflip(0.5)");
	assert_false(recipe->data.shuffle);
	assert_int_equal(recipe->data.batch_size, 64);
	assert_int_equal(recipe->data.mean.count, 3);
	assert_true(recipe->data.mean.value[1] == 2.5);
	assert_int_equal(recipe->schedule.name, SCHEDULE_MULTI_STEP);
	assert_true(recipe->schedule.milestones.value[1] == 2.5);
	assert_true(recipe->optim.lr == 1e-2);
}

TEST_WITH(mistakes, setup, teardown)
{
	struct recipe *recipe = *state;
	refused(recipe, "[data]\nbatch_size = 64\nbatch_sise = 1\n",
		"r.ini:3: no key data.batch_sise; did you mean data.batch_size?");
	refused(recipe, "[train]\n\n\nlr = 1\n",
		"r.ini:4: no key train.lr; did you mean optim.lr?");
	refused(recipe, "[dat]\n", "r.ini:1: no section [dat]; did you mean [data]?");
	refused(recipe, "[nonsense_and_more]\n",
		"no section [nonsense_and_more]; `trainer --help-recipe`");
	refused(recipe, "[data]\nxyzzyxyzzy = 1\n",
		"r.ini:2: no key data.xyzzyxyzzy; `trainer --help-recipe`");
	refused(recipe, "batch_size = 3\n", "r.ini:1: batch_size precedes the first [section]");
	refused(recipe, "; a slip\n[data\nbatch_size = 3\n",
		"r.ini:2: expected ] at the end of [section]");
	refused(recipe, "[data]\nbatch_size 3\n", "r.ini:2: expected [section] or key = value");
	refused(recipe, "[data]\nslots = 3\nbatch_size = 3\nslots = 4\n",
		"r.ini:4: data.slots was already set on line 2");
	refused(recipe, "[data]\nbatch_size = 0\n",
		"data.batch_size = \"0\": expected a whole number from 1 to 65536");
	refused(recipe, "[data]\nbatch_size = -1\n", "expected a whole number");
	refused(recipe, "[data]\nbatch_size = 12x\n", "expected a whole number");
	refused(recipe, "[data]\nbatch_size = 99999999999999999999999\n",
		"expected a whole number");
	refused(recipe, "[optim]\nlr = nan\n",
		"optim.lr = \"nan\": expected a number from 0 to 1000");
	refused(recipe, "[optim]\nlr = 1,5\n", "expected a number");
	refused(recipe, "[optim]\nlr =\n", "expected a number");
	refused(recipe, "[optim]\nnesterov = maybe\n", "expected true or false");
	refused(recipe, "[schedule]\nname = cos\n", "expected one of constant|cosine|");
	refused(recipe, "[schedule]\nname = cosin\n", "; did you mean cosine?");
	refused(recipe, "[train]\ndevice = gpu\n", "expected one of auto|cpu|cuda");
	assert_null(strstr(error, "did you mean"));
	refused(recipe, "[train]\ndevice = cida\n", "; did you mean cuda?");
	refused(recipe, "[data]\n\x01train = x\n",
		"r.ini:2: is not text, but a recipe is an INI file");
	refused(recipe, "[data]\nbatch_size = 3\n[model]\nname = resnet19\n",
		"r.ini:4: model.name = \"resnet19\": expected one of resnet18|resnet34|resnet50|"
		"resnet101|resnet152|resnext50_32x4d|resnext101_32x8d|resnext101_64x4d|"
		"wide_resnet50_2|wide_resnet101_2|resnet_cifar|convnext_tiny|vit_tiny_patch16|"
		"vit_small_patch16|vit_base_patch16|vit_large_patch16|vit_1b_patch14|speednet; did "
		"you mean resnet18?");
	refused(recipe, "[model]\nname = vit\n", "vit_1b_patch14|speednet");
	assert_null(strstr(error, "did you mean"));
	refused(recipe, "[model]\nname =\n", "r.ini:2: model.name = \"\": expected one of");
	refused(recipe, "[model]\ndepth = 21\n",
		"r.ini:2: model.depth = \"21\": expected one of 8, 14, 20, ... 1202; the nearest "
		"are 20 and 26");
	refused(recipe, "[model]\ndepth = 7\n", "expected a whole number from 8 to 1202");
	refused(recipe, "[model]\ndepth = 1203\n", "expected a whole number from 8 to 1202");
	refused(recipe, "[train]\naccumulate = 0\n",
		"train.accumulate = \"0\": expected a whole number from 1 to 65536, or auto");
	refused(recipe, "[schedule]\nmilestones = 1,,2\n",
		"expected at most 128 comma-separated numbers");
	refused(recipe, "[schedule]\nmilestones = 1,\n", "a number is missing after the comma");
	refused(recipe, "[data]\nmean = 1,2,300\n", "from 0 to 255");
}

/* Shares that change with epochs, in the form of sizes that do. */
TEST_WITH(stages, setup, teardown)
{
	static const struct {
		const char *text, *expected;
	} refusals[] = {
		{"3,x", "expected at most 128 comma-separated numbers from 0 to 65536, or several"},
		{"3,-1", "expected at most 128"},
		{"3,", "expected at most 128"},
		{"3,1@1;1,1@6", "the first list begins at epoch 1: begin it at 0"},
		{"3,1@0;1,1@6;0,1@6", "the epochs after @ must ascend: 6 is followed by 6"},
		{"3,1@0;1@6", "the list from epoch 6 on has 1 number, but the first has 2"},
		{"3,1@0;1,1", "expected @ and an epoch from 0 to 100000 after each"},
		{"3,1;1,1@6", "expected @ and an epoch"},
		{"3,1@0;1,1@-1", "expected @ and an epoch"},
		{"3,1@0;1,1@6x", "expected @ and an epoch"},
		{"3,1@0;1,1@200000", "expected @ and an epoch"},
		{"3,1@0;", "a list is missing after the last semicolon"},
		/* a blank before the semicolon: inih takes the rest for a comment */
		{"3,1@0 ; 1,1@6", "r.ini:2: data.shares = \"3,1@0\": leave out @ after a single"},
	};
	char text[RECIPE_TEXT_MAX];
	struct recipe *recipe = *state;
	const struct recipe_stages *shares = &recipe->data.shares;
	for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++) {
		snprintf(text, sizeof(text), "[data]\nshares = %s\n", refusals[i].text);
		refused(recipe, text, refusals[i].expected);
	}
	snprintf(text, sizeof(text), "data.shares=1@0");
	for (unsigned i = 1; i <= RECIPE_STAGES_MAX; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), ";1@%u", i);
	assert_int_equal(recipe_override(recipe, text, error), -EINVAL);
	assert_non_null(strstr(error, "too many lists: there may be 64"));

	assert_int_equal(recipe_override(recipe, "data.shares=3 , 1@0;1,0.5 @ 6; 0,1@7.5", error),
			 0);
	assert_int_equal(shares->stages, 3);
	assert_int_equal(shares->count, 2);
	assert_true(shares->value[3] == 0.5 && shares->value[5] == 1 && shares->from[2] == 7.5);
	assert_true(recipe_key_text(recipe, recipe_find_key("data", "shares"), text, sizeof(text)) >
		    0);
	assert_string_equal(text, "3, 1@0; 1, 0.5@6; 0, 1@7.5");
	assert_int_equal(recipe_key_text(recipe, recipe_find_key("data", "shares"), text, 20),
			 -ENOSPC);
	/* batches of 128, of which 4 copies each are 32 samples: 10 per epoch */
	recipe->data.epoch_samples = 335;
	recipe->data.repeats = 4;
	assert_int_equal(recipe_stage_batch(&recipe->data, 2), 75);
	recipe->data.shares.from[2] = RECIPE_EPOCHS_MAX;
	recipe->data.epoch_samples = UINT64_C(1) << 53;
	assert_true(recipe_stage_batch(&recipe->data, 2) == INT64_MAX);
}

TEST_WITH(long_line_is_refused_not_cut, setup, teardown)
{
	char text[600] = "[data]\npipeline = ";
	memset(text + strlen(text), 'a', 400);
	strcat(text, "\n");
	refused(*state, text, "r.ini:2: the line is longer than");
}

TEST_WITH(overrides, setup, teardown)
{
	struct recipe *recipe = *state;
	assert_int_equal(recipe_override(recipe, "optim.lr=0.5", error), 0);
	assert_true(recipe->optim.lr == 0.5);
	assert_int_equal(recipe_override(recipe, "data.pipeline=pad(4, value=3) hflip", error), 0);
	assert_string_equal(recipe->data.pipeline, "pad(4, value=3) hflip");
	assert_int_equal(recipe_override(recipe, "data.pipeline=", error), 0);
	assert_string_equal(recipe->data.pipeline, "");
	assert_int_equal(recipe_override(recipe, "optim.rl=0.5", error), -EINVAL);
	assert_non_null(strstr(error, "command line: no key optim.rl; did you mean optim.lr?"));
	assert_int_equal(recipe_override(recipe, "lr=0.5", error), -EINVAL);
	assert_non_null(strstr(error, "expected section.key=value"));
	assert_int_equal(recipe_override(recipe, "optim.lr", error), -EINVAL);
	assert_non_null(strstr(error, "\"optim.lr\": expected section.key=value, without blanks"));
	assert_int_equal(recipe_override(recipe, "optm.lr=0.5", error), -EINVAL);
	assert_non_null(strstr(error, "did you mean [optim]?"));
	assert_int_equal(recipe_override(recipe, "--lr", error), -EINVAL);
	assert_int_equal(recipe_override(recipe, "model.name=speed_net", error), -EINVAL);
	assert_non_null(strstr(error, "command line: model.name = \"speed_net\""));
	assert_non_null(strstr(error, "did you mean speednet?"));
	assert_string_equal(recipe->model.name, "resnet18");
}

TEST_WITH(checks, setup, teardown)
{
	struct recipe *recipe = *state;
	assert_int_equal(recipe_check(recipe, true, error), -EINVAL);
	assert_non_null(strstr(error, "data.train is not set"));
	assert_int_equal(recipe_check(recipe, false, error), 0);
	recipe_override(recipe, "data.train=x", error);
	assert_int_equal(recipe_check(recipe, true, error), 0);
	recipe_override(recipe, "data.mean=1,2,3", error);
	assert_int_equal(recipe_check(recipe, true, error), -EINVAL);
	recipe_override(recipe, "data.std=1,2,3", error);
	assert_int_equal(recipe_check(recipe, true, error), 0);
	/* PyTorch's values, for the scale of 0 to 1 */
	recipe_override(recipe, "data.mean=0.485,0.456,0.406", error);
	recipe_override(recipe, "data.std=0.229,0.224,0.225", error);
	assert_int_equal(recipe_check(recipe, true, error), -EINVAL);
	assert_non_null(strstr(error, "data.std = 0.229, 0.224, 0.225 are for pixels from 0 to 1"));
	assert_non_null(strstr(error, "use 123.675, 116.28, 103.53 and 58.395, 57.12, 57.375"));
	recipe_override(recipe, "data.mean=0,0,0", error);
	recipe_override(recipe, "data.std=1,1,1", error); /* leaves pixels unchanged */
	assert_int_equal(recipe_check(recipe, true, error), 0);
	recipe_override(recipe, "data.slots=1", error);
	assert_int_equal(recipe_check(recipe, true, error), -EINVAL);
	assert_non_null(strstr(error, "data.slots = 1: expected at least 2"));
	assert_int_equal(recipe_override(recipe, "data.slots=0", error), 0);
	assert_int_equal(recipe_override(recipe, "train.ema_lookahead=on", error), 0);
	assert_int_equal(recipe_check(recipe, true, error), -EINVAL);
	assert_non_null(strstr(error, "train.ema_lookahead = true requires train.ema above 0"));
	recipe_override(recipe, "data.slots=2", error);
	recipe_override(recipe, "schedule.warmup=90", error);
	assert_int_equal(recipe_check(recipe, true, error), -EINVAL);
	recipe_override(recipe, "schedule.warmup=1", error);
	recipe_override(recipe, "schedule.milestones=3,3", error);
	assert_int_equal(recipe_check(recipe, true, error), -EINVAL);
	assert_non_null(strstr(error, "must be ascending"));
}

TEST_WITH(growth, setup, teardown)
{
	struct recipe *recipe = *state;
	static const char *const settings[] = {"data.train=x", "schedule.name=exponential",
					       "schedule.gamma=1e6", "optim.lr=1e-4",
					       "train.epochs=1"};
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
		assert_int_equal(recipe_override(recipe, settings[i], error), 0);
	assert_int_equal(recipe_check(recipe, true, error), 0);
	recipe_override(recipe, "train.epochs=2", error);
	assert_int_equal(recipe_check(recipe, true, error), -EINVAL);
	assert_non_null(strstr(error, "schedule.gamma = 1e+06 raises optim.lr = 0.0001 to 1e+08 in "
				      "train.epochs = 2: expected at most 1000"));
	recipe_override(recipe, "schedule.name=step", error);
	assert_int_equal(recipe_check(recipe, true, error), -EINVAL);
	assert_non_null(strstr(error, "schedule.gamma = 1e+06: expected at most 1 with"));
	recipe_override(recipe, "schedule.name=cosine", error);
	assert_int_equal(recipe_check(recipe, true, error), 0);
	refused(recipe, "[schedule]\ngamma = 1e13\n", "expected a number from 0 to 1e+12");
}

/* data.train is one path or several; blanks around commas do not count. */
TEST_WITH(train_paths, setup, teardown)
{
	struct recipe *recipe = *state;
	struct recipe_paths paths;
	static const struct {
		const char *text, *path[3];
	} cases[] = {
		{"data.train=a b.pimg", {"a b.pimg"}},
		{"data.train=a.pimg,b.pimg", {"a.pimg", "b.pimg"}},
		{"data.train=a.pimg , b.pimg,c", {"a.pimg", "b.pimg", "c"}},
		{"data.train=a\\,b.pimg,c\\d", {"a,b.pimg", "c\\d"}},
		{"data.train=", {""}},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		unsigned count = 0;
		assert_int_equal(recipe_override(recipe, cases[i].text, error), 0);
		assert_int_equal(recipe_train_paths(&recipe->data, &paths, error), 0);
		for (; count < 3 && cases[i].path[count]; count++)
			assert_string_equal(paths.path[count], cases[i].path[count]);
		assert_int_equal(paths.count, count);
		recipe_paths_free(&paths);
	}
	char many[2 * RECIPE_NUMBERS_MAX + 20];
	int length = snprintf(many, sizeof(many), "data.train=x");
	for (int i = 0; i < RECIPE_NUMBERS_MAX; i++)
		length += snprintf(many + length, sizeof(many) - (size_t)length, ",x");
	assert_int_equal(recipe_override(recipe, many, error), 0);
	assert_int_equal(recipe_train_paths(&recipe->data, &paths, error), -EINVAL);
	assert_string_equal(error, "data.train lists more than 128 datasets");
}

/* Settings that exclude each other: the errors name both keys and a remedy. */
TEST_WITH(pairs, setup, teardown)
{
	static const struct {
		const char *settings[4], *said;
	} cases[] = {
		{{"schedule.name=trapezoid"}, "schedule.decay is 0, but schedule.name = trapezoid"},
		{{"schedule.name=trapezoid", "schedule.decay=8", "schedule.warmup=3"},
		 "schedule.warmup = 3 and schedule.decay = 8 together exceed train.epochs = 10"},
		{{"schedule.name=plateau"},
		 "schedule.name = plateau depends on evaluations, but data.val"},
		{{"schedule.name=plateau", "data.val=y", "train.eval_every=0"},
		 "schedule.name = plateau and train.eval_every = 0 cannot be combined"},
		{{"model.name=speednet", "model.blur=all"},
		 "model.blur = all and model.name = speednet cannot be combined: only ResNets"},
		{{"model.name=speednet", "model.activation=gelu"}, NULL},
		{{"model.name=resnext50_32x4d", "model.blur=all"}, NULL},
		{{"model.name=convnext_tiny", "model.attention_dropout=0.1"},
		 "model.attention_dropout = 0.1 and model.name = convnext_tiny cannot be combined: "
		 "only vision transformers have attention"},
		{{"model.name=vit_tiny_patch16", "model.attention_dropout=0.1"}, NULL},
		{{"train.teacher=a", "train.teacher_weight=0"},
		 "train.teacher = a and train.teacher_weight = 0 cannot be combined: a teacher"},
		{{"train.teacher_recipe=a"},
		 "train.teacher_recipe = a and train.teacher =  cannot be combined: the teacher's "
		 "weights are missing"},
		{{"train.loss=kl", "train.class_weights=1, 2"},
		 "train.loss = kl and train.class_weights = 1, 2 cannot be combined: the "
		 "divergence"},
		{{"train.loss=kl", "train.class_weights=balanced"},
		 "train.loss = kl and train.class_weights = balanced cannot be combined: the "
		 "divergence"},
		{{"train.class_weights=balanced", "train.loss=sigmoid"}, NULL},
		{{"train.class_weights=balanced", "data.class_sampling=balanced"},
		 "train.class_weights = balanced and data.class_sampling = balanced cannot be "
		 "combined: both correct"},
		{{"train.class_weights=balanced", "data.class_sampling=1, 2"},
		 "train.class_weights = balanced and data.class_sampling = 1, 2 cannot be"},
		{{"train.class_weights=1, 2", "data.class_sampling=balanced"}, NULL},
		{{"train.class_weights=balanced", "data.where=label < 5"},
		 "train.class_weights = balanced and data.where = label < 5 cannot be combined"},
		{{"data.class_sampling=0, 0"}, "data.class_sampling: all weights are 0"},
		{{"data.ends=last"},
		 "data.ends = last says when an epoch of several datasets ends"},
		{{"data.train=x,y", "data.ends=last"}, NULL},
		{{"data.train=x,y", "data.ends=last", "data.epoch_samples=9"},
		 "data.ends = last and data.epoch_samples = 9 cannot be combined: both say"},
		{{"data.shares=1, 2"},
		 "data.shares has 2 numbers, but data.train lists 1 dataset: give one"},
		{{"data.train=x,y", "data.shares=0, 0"}, "data.shares: all numbers are 0"},
		{{"data.train=x,y", "data.shares=0.7, 0.3"}, NULL},
		{{"data.train=x,y", "data.shares=3, 1@0;1, 1@6", "data.epoch_samples=1280"}, NULL},
		{{"data.train=x,y", "data.shares=3, 1@0;1, 1@6"},
		 "data.shares changes at epoch 6, but data.epoch_samples is 0: set it"},
		{{"data.train=x,y", "data.shares=3, 1@0;0, 0@6"},
		 "data.shares: all numbers of a list are 0"},
		{{"data.train=x,y", "data.shares=3, 1@0;1, 1@0.04", "data.epoch_samples=1280"},
		 "data.shares: the shares from epoch 0 on would hold for no batch before those "
		 "from epoch 0.04 on, since an epoch has 10 batches"},
		{{"data.shares=3@0;1@6", "data.epoch_samples=1280"},
		 "data.shares changes the shares of several datasets, but data.train is one"},
		{{"data.train=x,y", "data.shares=3, 1@0;1, 1@6", "data.epoch_samples=1280",
		  "train.class_weights=balanced"},
		 "train.class_weights = balanced and data.shares = 3, 1@0; 1, 1@6 cannot be"},
		{{"data.train=x,,y"}, "data.train = \"x,,y\": a dataset is missing beside a comma"},
		{{"data.train=x,"}, "data.train = \"x,\": a dataset is missing beside a comma"},
		{{"train.loss=kl", "train.mixup=0.2"}, NULL},
		{{"model.ghost_batch=32", "model.bn_sync=yes"},
		 "model.ghost_batch = 32 and model.bn_sync = true cannot be combined: one uses"},
		{{"model.ghost_batch=32", "model.name=convnext_tiny"},
		 "model.ghost_batch = 32 and model.name = convnext_tiny cannot be combined: this "
		 "network has no"},
		{{"model.ghost_batch=32", "model.name=speednet"}, NULL},
		{{"data.initial_scale=0.5", "data.delay_fraction=0.9"},
		 "data.delay_fraction = 0.9 and data.finetune_fraction = 0.2 add up to 1.1"},
		{{"data.initial_scale=0.5", "data.colout=0.1"},
		 "data.initial_scale = 0.5 and data.colout = 0.1 cannot be combined: a batch "
		 "either"},
		{{"data.initial_scale=0.5", "model.name=vit_tiny_patch16"},
		 "data.initial_scale = 0.5 and model.name = vit_tiny_patch16 cannot be combined"},
		{{"data.initial_scale=0.5", "data.delay_fraction=0.8"}, NULL},
		{{"train.selective_backprop=0.5", "train.accumulate=auto"},
		 "train.selective_backprop = 0.5 and train.accumulate = auto cannot be combined: "
		 "auto finds"},
		{{"train.selective_backprop=0.5", "train.selective_end=0.4"},
		 "train.selective_start = 0.5 is not before train.selective_end = 0.4"},
		{{"data.repeats=3"},
		 "data.repeats = 3 does not divide data.batch_size = 128, which counts"},
		{{"data.repeats=4"}, NULL},
		{{"train.selective_backprop=0.001"},
		 "train.selective_backprop = 0.001 keeps no sample of data.batch_size = 128"},
		{{"train.selective_backprop=0.5", "train.mixup=0.2", "train.sam=0.1"}, NULL},
		{{"schedule.name=plateau", "data.val=y", "schedule.gamma=2"},
		 "schedule.gamma = 2: expected at most 1 with schedule.name = step"},
		{{"schedule.name=exp_range", "schedule.gamma=2"}, "schedule.gamma = 2: expected"},
		{{"schedule.base_momentum=0.8"},
		 "schedule.base_momentum = 0.8, but the chosen schedule.name"},
		{{"schedule.base_momentum=0.8", "schedule.name=triangular2"}, NULL},
		{{"schedule.name=plateau", "data.val=y"}, NULL},
		{{"schedule.name=trapezoid", "schedule.decay=7", "schedule.warmup=3"}, NULL},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct recipe recipe;
		recipe_init(&recipe);
		recipe_override(&recipe, "data.train=x", error);
		recipe_override(&recipe, "train.epochs=10", error);
		for (size_t k = 0; k < 4 && cases[i].settings[k]; k++)
			assert_int_equal(recipe_override(&recipe, cases[i].settings[k], error), 0);
		assert_int_equal(recipe_check(&recipe, true, error), cases[i].said ? -EINVAL : 0);
		if (cases[i].said && !strstr(error, cases[i].said))
			fail_msg("\"%s\" does not say \"%s\"", error, cases[i].said);
		recipe_deinit(&recipe);
	}
}

/* A written recipe reads back as the same recipe. */
static void check_round_trip(struct recipe *recipe)
{
	char text[32768] = "";
	FILE *file = fmemopen(text, sizeof(text), "w");
	assert_int_equal(recipe_write(recipe, file), 0);
	fclose(file);
	struct recipe copy;
	recipe_init(&copy);
	if (recipe_load_text(&copy, "copy", text, error))
		fail_msg("%s", error);
	for (size_t i = 0; i < recipe_keys_count; i++) {
		char a[RECIPE_TEXT_MAX], b[RECIPE_TEXT_MAX];
		assert_true(recipe_key_text(recipe, &recipe_keys[i], a, sizeof(a)) >= 0);
		assert_true(recipe_key_text(&copy, &recipe_keys[i], b, sizeof(b)) >= 0);
		assert_string_equal(a, b);
	}
	assert_int_equal(recipe_compare(recipe, &copy, RECIPE_TRAJECTORY, error), 0);
	recipe_deinit(&copy);
}

static void set(struct recipe *recipe, const char *argument)
{
	if (recipe_override(recipe, argument, error))
		fail_msg("%s", error);
}

TEST_WITH(round_trip, setup, teardown)
{
	struct recipe *recipe = *state;
	char argument[RECIPE_TEXT_MAX] = "schedule.milestones=";
	set(recipe, "optim.lr=0.1234567890123456");
	for (int i = 0; i < RECIPE_NUMBERS_MAX; i++)
		sprintf(argument + strlen(argument), "%s%d.0625", i ? "," : "", i);
	set(recipe, argument);
	strcpy(argument, "data.pipeline=hflip(0.5)");
	for (int i = 0; i < 60; i++)
		strcat(argument, " hflip(0.5)");
	set(recipe, argument);
	check_round_trip(recipe);
}

/* Strings in which some blanks cannot become line breaks. */
TEST_WITH(round_trip_of_odd_texts, setup, teardown)
{
	static const char *const units[] = {"/folder", "\\",   "a\\ ", "\xc3\xa9", "a  b", "a\t",
					    "#a",      "a #b", ";a",   " [a]",     "a;"};
	char argument[RECIPE_TEXT_MAX];
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		for (unsigned shift = 0; shift < 4; shift++) {
			sprintf(argument, "data.train=%.*s", (int)shift + 1, "/abc");
			while (strlen(argument) < 2000)
				strcat(argument, units[i]);
			strcat(argument, "z\\");
			set(*state, argument);
			check_round_trip(*state);
		}
	}
}

TEST_WITH(texts_that_no_file_can_hold, setup, teardown)
{
	static const char *const refused[][2] = {
		{"data.train=a ;b", "data.train = \"a ;b\" has a word that begins with ;"},
		{"data.train=;b", "has a word that begins with ;"},
		{"data.train=a\nb", "has a control character"},
		{"data.train=a ", "begins or ends with a blank"},
		{"data.train=\ta", "begins or ends with a blank"},
		{"data.train=\xe9", "is not UTF-8"},
	};
	char argument[400] = "data.train=a";
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		assert_int_equal(recipe_override(*state, refused[i][0], error), -EINVAL);
		if (!strstr(error, refused[i][1]))
			fail_msg("\"%s\" does not say \"%s\"", error, refused[i][1]);
	}
	memset(argument + strlen(argument), '#', 300);
	assert_int_equal(recipe_override(*state, argument, error), -EINVAL);
	assert_non_null(strstr(error, "# or ; in a row"));
}

TEST_WITH(compare, setup, teardown)
{
	struct recipe *recipe = *state, saved;
	recipe_init(&saved);
	recipe_override(recipe, "data.threads=7", error);
	recipe_override(recipe, "log.interval=7", error);
	assert_int_equal(recipe_compare(recipe, &saved, RECIPE_TRAJECTORY, error), 0);
	recipe_override(recipe, "train.eval_every=7", error);
	assert_int_equal(recipe_compare(recipe, &saved, RECIPE_TRAJECTORY, error), 0);
	/* with a schedule that depends on evaluations */
	recipe_override(recipe, "schedule.name=plateau", error);
	recipe_override(&saved, "schedule.name=plateau", error);
	assert_int_equal(recipe_compare(recipe, &saved, RECIPE_TRAJECTORY, error), -EINVAL);
	assert_non_null(strstr(error, "train.eval_every is \"7\" but was \"1\""));
	recipe_override(recipe, "train.eval_every=1", error);
	assert_int_equal(recipe_compare(recipe, &saved, RECIPE_TRAJECTORY, error), 0);
	recipe_override(recipe, "optim.lr=7", error);
	assert_int_equal(recipe_compare(recipe, &saved, RECIPE_TRAJECTORY, error), -EINVAL);
	assert_non_null(strstr(error, "optim.lr is \"7\" but was \"0.1\" in the checkpoint"));
	assert_int_equal(recipe_compare(recipe, &saved, RECIPE_FIXED, error), 0);
	recipe_override(recipe, "data.batch_size=7", error);
	assert_int_equal(recipe_compare(recipe, &saved, RECIPE_FIXED, error), -EINVAL);
	assert_non_null(strstr(error, "data.batch_size is \"7\" but was \"128\""));
	assert_int_equal(recipe_compare(recipe, &saved, RECIPE_WEIGHTS, error), 0);
	recipe_override(recipe, "data.batch_size=128", error);
	recipe_override(recipe, "model.width=2", error);
	assert_int_equal(recipe_compare(recipe, &saved, RECIPE_WEIGHTS, error), -EINVAL);
	assert_non_null(strstr(error, "in the checkpoint, whose weights take model.width=1"));
	assert_int_equal(recipe_compare(recipe, &saved, RECIPE_FIXED, error), -EINVAL);
	assert_non_null(strstr(error, "model.width"));
	recipe_deinit(&saved);
}

/*
 * The table: every default is valid (recipe_init() succeeds), names are unique, and every key has a
 * section.
 */
TEST_WITH(table, setup, teardown)
{
	for (size_t i = 0; i < recipe_keys_count; i++) {
		bool known = false;
		for (size_t s = 0; s < recipe_sections_count; s++)
			known |= strcmp(recipe_sections[s].name, recipe_keys[i].section) == 0;
		assert_true(known);
		assert_true(strlen(recipe_keys[i].help) > 10);
		for (size_t k = 0; k < i; k++) {
			assert_int_not_equal(recipe_keys[i].offset, recipe_keys[k].offset);
			assert_true(strcmp(recipe_keys[i].section, recipe_keys[k].section) != 0 ||
				    strcmp(recipe_keys[i].name, recipe_keys[k].name) != 0);
		}
	}
}

/* Errors about files that are not recipes do not print their contents on a terminal. */
TEST_WITH(binary_file, setup, teardown)
{
	static const char *const contents[] = {"PACKIMG\x1b[2J\n", "[data]\nval = a\0b\n"};
	static const size_t sizes[] = {12, 17};
	char path[] = "/tmp/test_recipe.XXXXXX";
	int fd = mkstemp(path);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(pwrite(fd, contents[i], sizes[i], 0), sizes[i]);
		assert_int_equal(recipe_load(*state, path, error), -EINVAL);
		assert_non_null(strstr(error, i ? ":2: is not text" : ":1: is not text"));
		assert_non_null(strstr(error, "use data.train=FILE for a packed dataset"));
	}
	close(fd);
	unlink(path);
	assert_int_equal(recipe_load(*state, "/", error), -EINVAL);
	assert_non_null(strstr(error, "/: cannot be read: Is a directory"));
}

/* Endless files and FIFOs without a writer are refused; pipes are read. */
TEST_WITH(no_files, setup, teardown)
{
	char folder[] = "/tmp/test_recipe.XXXXXX", path[128];
	int ends[2];
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/r.ini", folder);
	assert_int_equal(mkfifo(path, 0666), 0);
	alarm(60);
	assert_int_equal(recipe_load(*state, path, error), -EINVAL);
	assert_non_null(strstr(error, "neither a regular file nor a pipe"));
	assert_int_equal(recipe_load(*state, "/dev/zero", error), -EINVAL);
	alarm(0);
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(write(ends[1], "[train]\nepochs = 7\n", 19), 19);
	close(ends[1]);
	snprintf(path, sizeof(path), "/dev/fd/%d", ends[0]);
	assert_int_equal(recipe_load(*state, path, error), 0);
	close(ends[0]);
	snprintf(path, sizeof(path), "%s/r.ini", folder);
	unlink(path);
	FILE *file = fopen(path, "w");
	for (int i = 0; i < 10001; i++)
		fputc('\n', file);
	fclose(file);
	assert_int_equal(recipe_load(*state, path, error), -EINVAL);
	assert_non_null(strstr(error, "too many lines"));
	unlink(path);
	rmdir(folder);
}

TEST_WITH(missing_file, setup, teardown)
{
	assert_int_equal(recipe_load(*state, "/nonexistent/r.ini", error), -ENOENT);
	assert_non_null(strstr(error, "/nonexistent/r.ini"));
}
