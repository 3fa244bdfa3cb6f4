/*
 * The shapes image set is not trivial: a linear classifier on the pixels stays below 40 % accuracy
 * on held-out images.
 *
 * Draws the set with tools/shapes like tools/quickstart, and trains multinomial logistic regression
 * on all training images, at several resolutions and strengths of L2 regularisation, each for a
 * full schedule. The test compares the best held-out accuracy of all these models with the limit,
 * which favours the linear classifier. The accuracy on the training images shows that the training
 * works: it must be high at full resolution, where there are more pixels than images.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jpeglib.h>

enum {
	SIDE = 64,
	CLASSES = 10,
	LANES = 12, /* number of classes, padded to whole vectors */
	BATCH = 50,
	EPOCHS = 15,
	IMAGES_MAX = 20000,
};

#define LIMIT 0.40

struct set {
	size_t count;
	unsigned side;
	uint8_t *pixels; /* [count][side][side][3] */
	uint8_t *labels; /* [count] */
};

static size_t set_features(const struct set *set)
{
	return (size_t)set->side * set->side * 3;
}

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static void read_image(const char *path, uint8_t *pixels)
{
	struct jpeg_decompress_struct jpeg;
	struct jpeg_error_mgr errors;
	FILE *file = fopen(path, "rb");

	if (!file)
		die(path);
	jpeg.err = jpeg_std_error(&errors);
	jpeg_create_decompress(&jpeg);
	jpeg_stdio_src(&jpeg, file);
	jpeg_read_header(&jpeg, TRUE);
	jpeg_start_decompress(&jpeg);
	if (jpeg.output_width != SIDE || jpeg.output_height != SIDE ||
	    jpeg.output_components != 3) {
		fprintf(stderr, "%s is not %d x %d in colour\n", path, SIDE, SIDE);
		exit(1);
	}
	while (jpeg.output_scanline < SIDE) {
		JSAMPROW row = pixels + (size_t)jpeg.output_scanline * SIDE * 3;

		jpeg_read_scanlines(&jpeg, &row, 1);
	}
	jpeg_finish_decompress(&jpeg);
	jpeg_destroy_decompress(&jpeg);
	fclose(file);
}

static int skip_hidden(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

/* Reads and deletes every image below the directory. The n-th subdirectory by name is class n. */
static void set_read(struct set *set, const char *directory)
{
	struct dirent **folders, **files;
	char path[PATH_MAX];
	int folder_count = scandir(directory, &folders, skip_hidden, alphasort);

	if (folder_count != CLASSES) {
		fprintf(stderr, "%s has %d classes instead of %d\n", directory, folder_count,
			CLASSES);
		exit(1);
	}
	*set = (struct set){.side = SIDE};
	set->pixels = malloc((size_t)IMAGES_MAX * SIDE * SIDE * 3);
	set->labels = malloc(IMAGES_MAX);
	if (!set->pixels || !set->labels)
		die("memory");
	for (int class = 0; class < CLASSES; class ++) {
		snprintf(path, sizeof(path), "%s/%s", directory, folders[class]->d_name);
		int file_count = scandir(path, &files, skip_hidden, alphasort);

		for (int i = 0; i < file_count && set->count < IMAGES_MAX; i++) {
			snprintf(path, sizeof(path), "%s/%s/%s", directory, folders[class]->d_name,
				 files[i]->d_name);
			read_image(path, set->pixels + set->count * set_features(set));
			set->labels[set->count++] = (uint8_t) class;
			unlink(path);
			free(files[i]);
		}
		free(files);
		snprintf(path, sizeof(path), "%s/%s", directory, folders[class]->d_name);
		rmdir(path);
		free(folders[class]);
	}
	free(folders);
	rmdir(directory);
}

static void set_free(struct set *set)
{
	free(set->pixels);
	free(set->labels);
}

/* Averages squares of factor x factor pixels. */
static struct set set_shrink(const struct set *set, unsigned factor)
{
	struct set small = {.count = set->count, .side = set->side / factor};

	small.pixels = malloc(small.count * set_features(&small));
	small.labels = malloc(small.count);
	if (!small.pixels || !small.labels)
		die("memory");
	memcpy(small.labels, set->labels, small.count);
	for (size_t i = 0; i < small.count; i++)
		for (unsigned y = 0; y < small.side; y++)
			for (unsigned x = 0; x < small.side * 3; x++) {
				unsigned sum = 0;

				for (unsigned v = 0; v < factor; v++)
					for (unsigned u = 0; u < factor; u++)
						sum += set->pixels[((i * SIDE + y * factor + v) *
									    SIDE +
								    x / 3 * factor + u) *
									   3 +
								   x % 3];
				small.pixels[(i * small.side + y) * small.side * 3 + x] =
					(uint8_t)(sum / (factor * factor));
			}
	return small;
}

struct model {
	size_t features;
	float *mean,
		*scale; /* [features], mean and scale of each feature over the training images */
	float (*weights)[LANES];    /* [features] */
	float (*gradient)[LANES];   /* [features] */
	float (*moments)[2][LANES]; /* [features], Adam's two moments */
	float bias[LANES];
};

static struct model model_new(const struct set *train)
{
	struct model model = {.features = set_features(train)};
	size_t n = model.features;

	model.mean = calloc(n, sizeof(float));
	model.scale = calloc(n, sizeof(float));
	model.weights = calloc(n, sizeof(*model.weights));
	model.gradient = calloc(n, sizeof(*model.gradient));
	model.moments = calloc(n, sizeof(*model.moments));
	if (!model.mean || !model.scale || !model.weights || !model.gradient || !model.moments)
		die("memory");
	for (size_t j = 0; j < n; j++) {
		double sum = 0, squares = 0;

		for (size_t i = 0; i < train->count; i++) {
			double value = train->pixels[i * n + j];

			sum += value;
			squares += value * value;
		}
		double mean = sum / (double)train->count;

		model.mean[j] = (float)mean;
		model.scale[j] =
			(float)(1 / sqrt(squares / (double)train->count - mean * mean + 1));
	}
	return model;
}

static void model_free(struct model *model)
{
	free(model->mean);
	free(model->scale);
	free(model->weights);
	free(model->gradient);
	free(model->moments);
}

static void model_logits(const struct model *model, const uint8_t *pixels, float *logits)
{
	memcpy(logits, model->bias, sizeof(model->bias));
	for (size_t j = 0; j < model->features; j++) {
		float x = ((float)pixels[j] - model->mean[j]) * model->scale[j];

		for (size_t k = 0; k < LANES; k++)
			logits[k] += x * model->weights[j][k];
	}
}

/* Adds the gradient of one image's cross-entropy. */
static void model_learn(struct model *model, const uint8_t *pixels, unsigned label, float rate)
{
	float error[LANES] = {0}, logits[LANES], top = -INFINITY, sum = 0;

	model_logits(model, pixels, logits);
	for (size_t k = 0; k < CLASSES; k++)
		top = fmaxf(top, logits[k]);
	for (size_t k = 0; k < CLASSES; k++)
		sum += error[k] = expf(logits[k] - top);
	for (size_t k = 0; k < CLASSES; k++)
		error[k] = (error[k] / sum - (k == label)) / BATCH;
	for (size_t j = 0; j < model->features; j++) {
		float x = ((float)pixels[j] - model->mean[j]) * model->scale[j];

		for (size_t k = 0; k < LANES; k++)
			model->gradient[j][k] += x * error[k];
	}
	for (size_t k = 0; k < CLASSES; k++)
		model->bias[k] -= rate * error[k];
}

/*
 * Applies one step of AdamW (Loshchilov, Hutter, 2019) with the accumulated gradient, then clears
 * the gradient.
 */
static void model_step(struct model *model, unsigned step, float rate, float decay)
{
	const float keep[2] = {0.9f, 0.999f};
	float correct[2] = {1 - powf(keep[0], (float)step), 1 - powf(keep[1], (float)step)};

	for (size_t j = 0; j < model->features; j++)
		for (size_t k = 0; k < LANES; k++) {
			float g = model->gradient[j][k];
			float *m = &model->moments[j][0][k], *v = &model->moments[j][1][k];

			*m = keep[0] * *m + (1 - keep[0]) * g;
			*v = keep[1] * *v + (1 - keep[1]) * g * g;
			model->weights[j][k] -=
				rate * (*m / correct[0] / (sqrtf(*v / correct[1]) + 1e-8f) +
					decay * model->weights[j][k]);
			model->gradient[j][k] = 0;
		}
}

static double model_accuracy(const struct model *model, const struct set *set)
{
	size_t right = 0;

	for (size_t i = 0; i < set->count; i++) {
		float logits[LANES];
		unsigned best = 0;

		model_logits(model, set->pixels + i * model->features, logits);
		for (unsigned k = 1; k < CLASSES; k++)
			if (logits[k] > logits[best])
				best = k;
		right += best == set->labels[i];
	}
	return (double)right / (double)set->count;
}

static void shuffle(uint32_t *order, size_t count, uint64_t *state)
{
	for (size_t i = count; i > 1; i--) {
		*state = *state * 6364136223846793005u + 1442695040888963407u;
		size_t j = (size_t)((*state >> 33) * i >> 31);
		uint32_t other = order[j];

		order[j] = order[i - 1];
		order[i - 1] = other;
	}
}

/* Trains a new model; returns its accuracy on both sets. */
static void train_linear(const struct set *train, const struct set *held_out, float decay,
			 double *ret_train, double *ret_held_out)
{
	struct model model = model_new(train);
	size_t batches = train->count / BATCH;
	unsigned steps = (unsigned)(EPOCHS * batches);
	uint32_t *order = malloc(train->count * sizeof(*order));
	uint64_t state = 1;
	/* With more inputs, a smaller step changes the output by the same amount. */
	float rate_max = 0.2f / sqrtf((float)model.features);

	if (!order)
		die("memory");
	for (uint32_t i = 0; i < train->count; i++)
		order[i] = i;
	for (unsigned step = 0; step < steps; step++) {
		float rate = rate_max * 0.5f * (1 + cosf((float)M_PI * (float)step / (float)steps));
		size_t first = step % batches * BATCH;

		if (!first)
			shuffle(order, train->count, &state);
		for (size_t i = first; i < first + BATCH; i++)
			model_learn(&model, train->pixels + order[i] * model.features,
				    train->labels[order[i]], rate);
		model_step(&model, step + 1, rate, decay / rate_max);
	}
	*ret_train = model_accuracy(&model, train);
	*ret_held_out = model_accuracy(&model, held_out);
	free(order);
	model_free(&model);
}

static void draw(const char *program, const char *directory)
{
	pid_t child = fork();
	int status;

	if (child < 0)
		die("fork");
	if (!child) {
		execl(program, program, directory, (char *)NULL);
		die(program);
	}
	if (waitpid(child, &status, 0) < 0 || status) {
		fprintf(stderr, "%s failed\n", program);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	static const unsigned factors[] = {8, 4, 1};
	static const float decays[] = {0, 0.01f};
	const char *parent = getenv("TMPDIR");
	char directory[PATH_MAX - 16], path[PATH_MAX];
	struct set train, held_out;
	double best = 0, fitted = 0;

	if (argc != 2) {
		fprintf(stderr, "usage: %s SHAPES\n", argv[0]);
		return 1;
	}
	snprintf(directory, sizeof(directory), "%s/shapes-XXXXXX", parent ? parent : "/tmp");
	if (!mkdtemp(directory))
		die(directory);
	draw(argv[1], directory);
	snprintf(path, sizeof(path), "%s/train", directory);
	set_read(&train, path);
	snprintf(path, sizeof(path), "%s/val", directory);
	set_read(&held_out, path);
	rmdir(directory);

	for (size_t f = 0; f < sizeof(factors) / sizeof(factors[0]); f++) {
		struct set small_train = set_shrink(&train, factors[f]);
		struct set small_held_out = set_shrink(&held_out, factors[f]);

		for (size_t d = 0; d < sizeof(decays) / sizeof(decays[0]); d++) {
			double on_train, on_held_out;

			train_linear(&small_train, &small_held_out, decays[d], &on_train,
				     &on_held_out);
			printf("%2u x %2u pixels, decay %.3f: %5.1f %% of %zu training images, "
			       "%5.1f %% of %zu held out\n",
			       small_train.side, small_train.side, (double)decays[d],
			       100 * on_train, train.count, 100 * on_held_out, held_out.count);
			fflush(stdout);
			best = fmax(best, on_held_out);
			fitted = fmax(fitted, on_train);
		}
		set_free(&small_train);
		set_free(&small_held_out);
	}
	set_free(&train);
	set_free(&held_out);
	printf("best linear classifier: %.1f %% of held-out images (limit %.0f %%, chance %d %%)\n",
	       100 * best, 100 * LIMIT, 100 / CLASSES);
	if (fitted < 0.8) {
		printf("FAILED: it does not even fit the training images, so it proves nothing\n");
		return 1;
	}
	return best < LIMIT ? 0 : 1;
}
