/*
 * Recomputed activations (train.recompute) give the same losses and weights bit for bit: for every
 * kind of network, on the CPU and on an emulated GPU, in replayed steps, with micro-batches, SAM
 * and frozen layers, and if a resumed run turns them on.
 */
#include "tests/integration/trainer/trainer_fixture.h"

static const char short_run[] = "train.epochs=0.3", paths[] = "model.drop_path=0.3",
		  dropout[] = "model.dropout=0.2", plain[] = "train.ema=0",
		  val[] = "data.val=", over[] = "--overwrite";

/* settings is terminated by NULL. */
struct network {
	bool bf16;
	const char *settings[6];
};

static const struct network networks[] = {
	{false,
	 {"model.name=resnet_cifar", "model.depth=14", paths, "model.squeeze_excite=yes",
	  "model.blur=all"}},
	{false,
	 {"model.name=resnet50", "model.width=0.125", paths, "model.stem=deep",
	  "model.downsample=average"}},
	{false,
	 {"model.name=vit_tiny_patch16", "model.width=0.25", paths, "model.patch=4",
	  "model.image_size=16"}},
	{false,
	 {"model.name=convnext_tiny", "model.width=0.125", paths, dropout,
	  "data.pipeline=random_crop(32, padding=8)"}},
	{true, {"model.name=speednet", "model.width=0.125", dropout, "model.activation=gelu"}},
	{false,
	 {"model.width=0.25", "train.accumulate=2", "train.sam=0.05", "train.sam_every=2",
	  "model.blur=all"}},
	{true,
	 {"model.width=0.25", "train.freeze=conv1.* bn1.* layer1.*", "train.deterministic=yes"}},
};

/* Compares runs with each setting of train.recompute to one without. */
static void compare(const char *device, const char *precision, const char *const *s)
{
	static const char *const ways[] = {"train.recompute=1", "train.recompute=2"};
	bool emulated = strcmp(device, "--device=cuda") == 0;
	trainer = getenv(emulated ? "TRAINER_EMULATED" : "TRAINER");
	int status = run("kept", over, device, short_run, plain, val, precision, s[0], s[1], s[2],
			 s[3], s[4], NULL);
	expect(status, 0);
	for (int i = 0; i < (emulated ? 1 : 2); i++) {
		status = run("anew", over, device, short_run, plain, val, precision, ways[i], s[0],
			     s[1], s[2], s[3], s[4], NULL);
		trainer = getenv("TRAINER");
		expect(status, 0);
		same_losses("kept", "anew");
		same_file("kept", "anew", "model.safetensors");
	}
}

static void compare_all(const char *device, const char *bf16)
{
	for (size_t i = 0; i < sizeof(networks) / sizeof(*networks); i++)
		compare(device, networks[i].bf16 ? bf16 : "train.precision=auto",
			networks[i].settings);
}

/* Uses fp32 on CPUs without AVX-512, which refuse bf16. */
TEST(cpu)
{
	static const char bf16[] = "train.precision=bf16";
	trainer = getenv("TRAINER");
	bool has = run("bf16", over, "--device=cpu", short_run, plain, val, bf16, NULL) == 0;
	if (!has)
		expect_output("bf16 on the CPU needs AVX-512");
	compare_all("--device=cpu", has ? bf16 : "train.precision=fp32");
}

TEST(gpu)
{
	compare_all("--device=cuda", "train.precision=bf16");
}

/* A run can turn recomputation on or off when it is resumed. */
TEST(resumed)
{
	static const char anew[] = "train.recompute=1";
	expect(run("whole", NULL), 0);
	run_killed("halves", 11, NULL);
	expect(run("halves", "--resume", anew, NULL), 0);
	same_losses("whole", "halves");
	same_file("whole", "halves", "model.safetensors");
}

static int setup(void **state)
{
	trainer_threads = 2;
	return trainer_setup(state);
}

TEST_MAIN(setup, trainer_teardown)
