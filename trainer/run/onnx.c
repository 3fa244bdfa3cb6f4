/* --evaluate --onnx: the network that was evaluated, for onnxruntime and others. */
#include "trainer/device/onnx/onnx.h"

#include "format/base/system/whole_file.h"
#include "trainer/checkpoint/class_names.h"
#include "trainer/run/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int run_open_onnx(struct run *run)
{
	const char *path = run->options.onnx;
	int r = path ? run_refuse_ranks(run, "--onnx", path) : 0;
	if (!path || r)
		return r;
	struct whole_file *file = calloc(1, sizeof(*file));
	if (!file)
		return run_fail(run, -ENOMEM, "out of memory");
	r = whole_file_create(file, path);
	if (r) {
		free(file);
		return run_fail(run, r, "--onnx=%s: %s", path, strerror(-r));
	}
	run->onnx = file;
	return 0;
}

static int onnx_put(struct run *run)
{
	char error[DEVICE_ERROR_MAX] = "";
	const struct class_names *names = &run->weights.class_names;
	char *classes = NULL;
	if (run->data.class_names)
		classes = strdup(run->data.class_names);
	else if (names->count == run->data.classes)
		classes = class_names_write(names->name, names->count);
	const char *const entries[] = {"pipeline", run->recipe->data.val_pipeline,
				       classes ? "classes" : NULL, classes, NULL};
	struct onnx_options options = {
		.weights = run_weights(run),
		.bytes = run->eval_bytes,
		.producer_version = TRAINER_VERSION,
		.entries = entries,
	};
	void *data = NULL;
	size_t size = 0;
	int r = onnx_encode(run->eval.graph, &options, &data, &size, error);
	free(classes);
	if (r)
		return run_fail(run, r, "--onnx=%s: %s", run->options.onnx, error);
	r = whole_file_write(run->onnx, data, size);
	free(data);
	return r;
}

int run_close_onnx(struct run *run, int r)
{
	if (!run->onnx)
		return r;
	int was = r;
	r = r ? r : onnx_put(run);
	bool said = was || *run->error;
	r = whole_file_close(run->onnx, r);
	free(run->onnx);
	run->onnx = NULL;
	return r && !said ? run_fail(run, r, "--onnx=%s: %s", run->options.onnx, strerror(-r)) : r;
}
