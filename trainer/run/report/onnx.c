/* --evaluate --onnx: exports the evaluated network for onnxruntime and other runtimes. */
#include "trainer/device/onnx/onnx.h"

#include "format/base/system/atomic_file.h"
#include "trainer/checkpoint/class_names.h"
#include "trainer/device/device.h"
#include "trainer/run/run_internal.h"

#include <stdlib.h>
#include <string.h>

int run_write_onnx(struct run *run)
{
	char error[DEVICE_ERROR_MAX] = "";
	if (!run->ctx.options.onnx)
		return 0;
	const struct class_names *names = &run->evaluation.weights.class_names;
	char *classes = NULL;
	if (run->data.class_names)
		classes = strdup(run->data.class_names);
	else if (names->count == run->data.classes)
		classes = class_names_write(names->name, names->count);
	const char *const entries[] = {"pipeline", run->ctx.recipe->data.val_pipeline,
				       classes ? "classes" : NULL, classes, NULL};
	struct onnx_options options = {
		.weights = network_eval_slot(&run->network, &run->state),
		.bytes = run->evaluation.bytes,
		.producer_version = TRAINER_VERSION,
		.entries = entries,
	};
	void *data = NULL;
	size_t size = 0;
	int r = onnx_encode(run->network.eval.graph, &options, &data, &size, error);
	free(classes);
	if (r < 0)
		return run_fail(&run->ctx, r, "--onnx=%s: %s", run->ctx.options.onnx, error);
	r = atomic_file_put(run->ctx.options.onnx, data, size);
	free(data);
	if (r < 0)
		return run_fail(&run->ctx, r, "--onnx: %s cannot be written: %s",
				run->ctx.options.onnx, strerror(-r));
	return 0;
}
