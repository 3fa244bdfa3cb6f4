#include "trainer/recipe/recipe.h"

#define AT(field) offsetof(struct recipe, field)
#define TEXT(section, name, fallback, resume, help)                                                \
	{                                                                                          \
#section, #name, RECIPE_TEXT, AT(section.name), fallback, 0, 0, NULL, resume, help \
	}
#define ONE_OF(section, name, fallback, words, resume, help)                                       \
	{                                                                                          \
#section, #name, RECIPE_TEXT, AT(section.name), fallback, 0, 0, words, resume,     \
			help                                                                       \
	}
#define INTEGER(section, name, fallback, min, max, resume, help)                                   \
	{                                                                                          \
#section, #name, RECIPE_INTEGER, AT(section.name), fallback, min, max, NULL,       \
			resume, help                                                               \
	}
#define STEPS(section, name, fallback, min, step, max, resume, help)                               \
	{                                                                                          \
#section, #name, RECIPE_INTEGER, AT(section.name), fallback, min, max, NULL,       \
			resume, help, step                                                         \
	}
#define NUMBER(section, name, fallback, min, max, resume, help)                                    \
	{                                                                                          \
#section, #name, RECIPE_NUMBER, AT(section.name), fallback, min, max, NULL,        \
			resume, help                                                               \
	}
#define BOOLEAN(section, name, fallback, resume, help)                                             \
	{                                                                                          \
#section, #name, RECIPE_BOOLEAN, AT(section.name), fallback, 0, 0, NULL, resume,   \
			help                                                                       \
	}
#define WORD(section, name, fallback, words, resume, help)                                         \
	{                                                                                          \
#section, #name, RECIPE_WORD, AT(section.name), fallback, 0, 0, words, resume,     \
			help                                                                       \
	}
#define NUMBERS(section, name, fallback, min, max, resume, help)                                   \
	{                                                                                          \
#section, #name, RECIPE_NUMBERS, AT(section.name), fallback, min, max, NULL,       \
			resume, help                                                               \
	}

const struct recipe_section recipe_sections[] = {
	{"data", "What is fed: datasets, transforms, batches."},
	{"model", "The network."},
	{"optim", "How weights follow gradients."},
	{"schedule", "The learning rate over time. It is evaluated at every step; lengths are in "
		     "epochs and may be fractions."},
	{"train", "Length, seed, device, precision, and what goes on around the steps."},
	{"log", "What is said while it runs."},
	{"checkpoint", "What is kept to resume from."},
};
const size_t recipe_sections_count = sizeof(recipe_sections) / sizeof(recipe_sections[0]);

const struct recipe_key recipe_keys[] = {
	TEXT(data, train, "", RECIPE_FREE,
	     "Packed dataset to train on. Relative paths start at the current "
	     "directory."),
	TEXT(data, val, "", RECIPE_FREE,
	     "Packed dataset to evaluate on, with the classes of train; empty: no evaluation."),
	TEXT(data, pipeline, "", RECIPE_FIXED,
	     "Transforms of training samples, in the grammar of loaderd(1); u8 is normalised on "
	     "the device by mean and std, floats are taken as they are. Empty: pixels as stored."),
	TEXT(data, val_pipeline, "", RECIPE_FREE,
	     "Transforms of evaluation samples; u8 or floats, as pipeline. Empty: pixels as "
	     "stored."),
	INTEGER(data, batch_size, "128", 1, 65536, RECIPE_FIXED,
		"Samples per step, of all ranks together; each takes an equal share."),
	INTEGER(data, val_batch_size, "0", 0, 65536, RECIPE_FREE,
		"Samples per evaluation batch, of all ranks together; 0: as batch_size."),
	BOOLEAN(data, shuffle, "true", RECIPE_FIXED,
		"A new order in each epoch; false: as stored."),
	WORD(data, bad, "substitute", "substitute|fail", RECIPE_FIXED,
	     "What a sample that cannot be decoded does: it is replaced, or it ends the run."),
	INTEGER(data, threads, "0", 0, 1024, RECIPE_FREE,
		"Worker threads of the private daemon; 0: one per CPU, or per four CPUs where they "
		"train, too."),
	INTEGER(data, slots, "0", 0, 64, RECIPE_FREE,
		"Batches that may wait in shared memory; 0: the daemon chooses."),
	INTEGER(data, reconnect, "60", 0, 604800, RECIPE_FREE,
		"Seconds to wait for the next daemon when the one in use goes away; training "
		"goes on with the very next batch. 0: the run ends at once."),
	NUMBERS(data, mean, "", 0, 255, RECIPE_FIXED,
		"Mean of R, G, B, 0 to 255, subtracted from pixels. Empty: as recorded in the "
		"training set, or to evaluate in the weights."),
	NUMBERS(data, std, "", 0.001, 255, RECIPE_FIXED,
		"Standard deviation of R, G, B that pixels are divided by. Empty: as mean."),

	ONE_OF(model, name, "resnet18",
	       "resnet18|resnet34|resnet50|resnet101|resnet152|resnet_cifar|speednet",
	       RECIPE_WEIGHTS, "Kind of network."),
	STEPS(model, depth, "20", 8, 6, 1202, RECIPE_WEIGHTS,
	      "Layers of resnet_cifar: 6 n + 2. The paper has 20, 32, 44, 56, 110 and 1202."),
	NUMBER(model, width, "1", 0.0625, 16, RECIPE_WEIGHTS,
	       "Factor on the channels of every layer, rounded to multiples of 8."),
	INTEGER(model, classes, "0", 0, 1000000, RECIPE_WEIGHTS,
		"Outputs; 0: as many as the training set has classes, or to evaluate as the "
		"weights have."),
	WORD(model, stem, "auto", "auto|imagenet|cifar", RECIPE_WEIGHTS,
	     "First layer of ResNets: imagenet is 7 x 7 with stride 2 and pooling, cifar is 3 x 3. "
	     "auto: cifar for "
	     "resnet_cifar, imagenet for the others."),
	BOOLEAN(model, zero_init, "true", RECIPE_FIXED,
		"Start the last batch norm of each residual block at zero, so that blocks start as "
		"identities."),
	BOOLEAN(model, whiten, "true", RECIPE_WEIGHTS,
		"speednet: the first convolution is fixed to whiten 2 x 2 patches of the training "
		"set."),
	WORD(model, activation, "relu", "relu|gelu", RECIPE_WEIGHTS,
	     "speednet: activation of every layer."),
	NUMBER(model, logit_scale, "0", 0, 100, RECIPE_WEIGHTS,
	       "Factor on the logits; 0: the model's own, 1/9 for speednet and 1 for the others."),
	NUMBER(model, bn_momentum, "0.1", 0, 1, RECIPE_TRAJECTORY,
	       "Share of each batch in the running statistics of batch norms."),
	NUMBER(model, bn_epsilon, "1e-5", 1e-12, 1, RECIPE_WEIGHTS,
	       "Added to variances in batch norms."),
	BOOLEAN(model, bn_sync, "false", RECIPE_TRAJECTORY,
		"Several ranks: normalise by the statistics of the whole batch, as one rank would, "
		"not of each rank's share. Slower: two sums over ranks per batch norm and step."),
	TEXT(model, pretrained, "", RECIPE_FREE,
	     "safetensors file to start from; a last layer of another number of classes is started "
	     "afresh."),

	WORD(optim, name, "sgd", "sgd|adamw", RECIPE_FIXED,
	     "Optimizer: SGD with momentum, or AdamW."),
	NUMBER(optim, lr, "0.1", 0, 1000, RECIPE_TRAJECTORY,
	       "Highest learning rate of the schedule, but for one that grows by schedule.gamma."),
	NUMBER(optim, momentum, "0.9", 0, 1, RECIPE_TRAJECTORY, "Momentum of SGD."),
	BOOLEAN(optim, nesterov, "true", RECIPE_TRAJECTORY, "sgd: Nesterov's form of momentum."),
	NUMBER(optim, beta1, "0.9", 0, 0.999999, RECIPE_TRAJECTORY,
	       "adamw: decay of the gradient's running mean."),
	NUMBER(optim, beta2, "0.999", 0, 0.999999, RECIPE_TRAJECTORY,
	       "adamw: decay of the running mean of the gradient's square."),
	NUMBER(optim, epsilon, "1e-8", 1e-12, 1, RECIPE_TRAJECTORY,
	       "adamw: added to the square root that the step is divided by."),
	NUMBER(optim, weight_decay, "5e-5", 0, 10, RECIPE_TRAJECTORY,
	       "Weight decay; batch norms and biases have none."),
	WORD(optim, decay, "coupled", "coupled|decoupled", RECIPE_TRAJECTORY,
	     "sgd: coupled adds weight_decay * w to the gradient; decoupled shrinks w by lr * "
	     "weight_decay beside the step, as adamw does."),
	BOOLEAN(optim, decay_all, "false", RECIPE_TRAJECTORY, "Decay batch norms and biases too."),
	NUMBER(optim, bias_lr, "1", 0, 1000, RECIPE_TRAJECTORY,
	       "Factor on the learning rate of the batch norms' biases; with decay_all they decay "
	       "as without it."),
	NUMBER(optim, whiten_bias_epochs, "0", 0, 100000, RECIPE_TRAJECTORY,
	       "speednet: epochs for which the bias of the convolution that whitens is trained; it "
	       "stays as it is then. 0: to the end."),
	NUMBER(optim, clip_norm, "0", 0, 1e9, RECIPE_TRAJECTORY,
	       "Largest norm of all gradients together, to which larger ones are scaled down; 0: "
	       "as "
	       "they are."),

	WORD(schedule, name, "cosine",
	     "constant|cosine|linear|one_cycle|step|multi_step|exponential|polynomial|triangular",
	     RECIPE_TRAJECTORY, "Shape of the learning rate over the run."),
	NUMBER(schedule, warmup, "0", 0, 100000, RECIPE_TRAJECTORY,
	       "Epochs of linear warm-up; the schedule proper runs over the epochs that remain."),
	NUMBER(schedule, warmup_from, "0", 0, 1, RECIPE_TRAJECTORY,
	       "Share of the learning rate at which warm-up starts."),
	NUMBER(schedule, final, "0", 0, 1, RECIPE_TRAJECTORY,
	       "Share of the learning rate at the end of cosine, linear, one_cycle, polynomial."),
	NUMBER(schedule, step, "30", 0.001, 100000, RECIPE_TRAJECTORY,
	       "step: epochs from drop to drop."),
	NUMBER(schedule, gamma, "0.1", 0, 1e12, RECIPE_TRAJECTORY,
	       "step, multi_step: factor at each drop, at most 1; exponential: factor per epoch, "
	       "above "
	       "1 too, with which the learning rate begins at optim.lr and grows."),
	NUMBERS(schedule, milestones, "", 0, 100000, RECIPE_TRAJECTORY,
		"multi_step: epochs of the drops, rising."),
	NUMBER(schedule, power, "1", 0.01, 100, RECIPE_TRAJECTORY, "polynomial: exponent."),
	NUMBER(schedule, peak, "0.3", 0, 1, RECIPE_TRAJECTORY,
	       "one_cycle: share of the epochs after which the rate is highest."),
	NUMBER(schedule, start, "0.04", 0, 1, RECIPE_TRAJECTORY,
	       "one_cycle: share of the learning rate at the start; triangular: at the low "
	       "points."),
	NUMBER(schedule, period, "0", 0, 100000, RECIPE_TRAJECTORY,
	       "cosine: epochs from restart to restart, 0: none; triangular: epochs of a whole "
	       "cycle, 0: one cycle."),

	NUMBER(train, epochs, "90", 0, 100000, RECIPE_TRAJECTORY,
	       "Length of the run; fractions are allowed."),
	INTEGER(train, seed, "0", 0, 9007199254740992.0, RECIPE_FIXED,
		"Seed of weights, order and augmentation: the same everywhere and always."),
	WORD(train, device, "auto", "auto|cpu|cuda", RECIPE_TRAJECTORY,
	     "Where the arithmetic happens. auto: a GPU if there is one and this build can use "
	     "it."),
	WORD(train, precision, "auto", "auto|fp32|bf16|fp16", RECIPE_TRAJECTORY,
	     "Arithmetic of activations; weights and updates are always fp32. auto: bf16 where the "
	     "device is faster for it. fp16 (cuda) trains with dynamic loss scaling."),
	WORD(train, fusion, "auto", "auto|none|b|c", RECIPE_TRAJECTORY,
	     "cuda: how far layers are fused. none: each by itself; b: norm, residual and "
	     "activation in one pass; c: these inside the convolutions, too. auto: c in fp16, b "
	     "otherwise."),
	BOOLEAN(train, autotune, "false", RECIPE_FREE,
		"cuda: time what cuDNN offers for each convolution before the first step, and keep "
		"the fastest for later runs."),
	BOOLEAN(train, deterministic, "false", RECIPE_TRAJECTORY,
		"cuda: use only kernels that repeat bit for bit, so that a resumed run has the "
		"losses of an unbroken one; autotune would choose others from run to run."),
	BOOLEAN(train, tf32, "false", RECIPE_TRAJECTORY,
		"cuda in fp32: convolutions and matrix products may round their inputs to 10 bits "
		"of mantissa (TensorFloat-32)."),
	INTEGER(train, threads, "0", 0, 1024, RECIPE_FREE,
		"Threads of the CPU device; 0: all CPUs. More than there are CPUs are slower. "
		"Losses "
		"are bitwise equal only for the same number."),
	NUMBER(train, label_smoothing, "0", 0, 0.999, RECIPE_TRAJECTORY,
	       "Share of the target spread evenly over all classes."),
	NUMBER(train, ema, "0", 0, 0.999999, RECIPE_WEIGHTS,
	       "Decay per update of an average of the weights and of the batch norms' statistics, "
	       "which is what is evaluated then; 0: none."),
	INTEGER(train, ema_every, "1", 1, 100000, RECIPE_TRAJECTORY,
		"Steps from update to update of the average."),
	NUMBER(train, ema_warmup, "0", 0, 100000, RECIPE_TRAJECTORY,
	       "Epochs in which the average just follows the weights."),
	NUMBER(train, ema_rise, "0", 0, 100, RECIPE_TRAJECTORY,
	       "Over the run the decay rises from 0 to ema as this power of the share that is "
	       "done; 0: it is ema throughout."),
	BOOLEAN(train, lookahead, "false", RECIPE_TRAJECTORY,
		"Weights go on from their average at each of its updates (Lookahead, Zhang et al. "
		"2019); needs ema, and an ema_every of 5 or so."),
	NUMBER(train, eval_every, "1", 0, 100000, RECIPE_FREE,
	       "Epochs from evaluation to evaluation; the end is always evaluated. 0: only the "
	       "end."),
	BOOLEAN(train, eval_flip, "false", RECIPE_FREE,
		"Evaluate each image and its mirror image, and average the logits: slower, a "
		"little "
		"better."),
	INTEGER(train, eval_shift, "0", 0, 64, RECIPE_FREE,
		"Evaluate each image where it is and moved by so many pixels, left and up, right "
		"and down, over reflected borders; its logits count half, the others' a quarter "
		"each. With eval_flip the mirror image of all three, too. 0: only where it is."),

	INTEGER(log, interval, "20", 1, 1000000, RECIPE_FREE,
		"Steps per object in log.jsonl and per plain progress line."),
	BOOLEAN(log, samples, "false", RECIPE_FREE,
		"Write down in samples.jsonl which samples each step took, by their index in the "
		"dataset."),
	WORD(log, progress, "auto", "auto|bar|plain|off", RECIPE_FREE,
	     "Progress on standard error: a bar on a terminal, plain lines elsewhere."),

	NUMBER(checkpoint, every, "1", 0, 100000, RECIPE_FREE,
	       "Epochs from checkpoint to checkpoint; the end is always kept. 0: only the end."),
	INTEGER(checkpoint, every_steps, "0", 0, 1000000000, RECIPE_FREE,
		"Steps from checkpoint to checkpoint, besides; 0: none."),
	INTEGER(checkpoint, keep, "2", 1, 1000, RECIPE_FREE, "Newest checkpoints that are kept."),
	BOOLEAN(checkpoint, best, "true", RECIPE_FREE,
		"Keep the checkpoint of the highest top-1 as best.safetensors."),
};
const size_t recipe_keys_count = sizeof(recipe_keys) / sizeof(recipe_keys[0]);
