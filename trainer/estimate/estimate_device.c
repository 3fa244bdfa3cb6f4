#include "trainer/estimate/estimate_device.h"

#include "format/base/text/sentence.h"
#include "trainer/estimate/estimate.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define estimate_fail(error, code, ...)                                                            \
	sentence_fail((error), ESTIMATE_ERROR_MAX, (code), __VA_ARGS__)

void estimate_device_deinit(struct estimate_device *device)
{
	free(device->name);
	free(device->source);
	free(device->properties);
	for (uint32_t i = 0; i < ESTIMATE_LINKS_MAX; i++) {
		free(device->links[i].kind);
		free(device->links[i].source);
	}
}

static int take_number(const json_t *object, const char *path, const char *key, double *ret_value,
		       char *error)
{
	const json_t *value = json_object_get(object, key);
	if (!json_is_number(value) || !(json_number_value(value) > 0) ||
	    json_number_value(value) > 1e18)
		return estimate_fail(error, -EINVAL, "%s: %s must be a number above 0, up to 1e18",
				     path, key);
	*ret_value = json_number_value(value);
	return 0;
}

static int take_text(const json_t *object, const char *path, const char *key, char **ret_text,
		     char *error)
{
	const char *text = json_string_value(json_object_get(object, key));
	if (!text)
		return estimate_fail(error, -EINVAL, "%s: %s must be a string", path, key);
	*ret_text = strdup(text);
	return *ret_text ? 0 : estimate_fail(error, -ENOMEM, "out of memory");
}

/*
 * Checks properties for which cuDNN accepts any value, but then finds no engine or an unsuitable
 * one.
 */
static int take_properties(const json_t *json, const char *path, char *error)
{
	double version = 0, processors;
	int r = take_number(json, path, "deviceVer", &version, error);
	if (r < 0)
		return r;
	if (version < 800)
		return estimate_fail(
			error, -EINVAL,
			"%s: deviceVer = %g: expected 800 or more, compute capability 8.0", path,
			version);
	return take_number(json, path, "multiProcessorCount", &processors, error);
}

static int read_link(struct estimate_link *link, const json_t *json, const char *path, char *error)
{
	double ranks = 0;
	int r = take_text(json, path, "kind", &link->kind, error);
	if (r == 0)
		r = take_text(json, path, "source", &link->source, error);
	if (r == 0)
		r = take_number(json, path, "ranks", &ranks, error);
	if (r == 0)
		r = take_number(json, path, "bytes_per_second", &link->link.bytes_per_second,
				error);
	if (r == 0)
		r = take_number(json, path, "latency_seconds", &link->link.latency_seconds, error);
	if (r == 0 && (ranks < 2 || ranks > ESTIMATE_RANKS_MAX || ranks != (double)(uint32_t)ranks))
		return estimate_fail(error, -EINVAL,
				     "%s: ranks = %g of links must be a whole number from 2 to %d",
				     path, ranks, ESTIMATE_RANKS_MAX);
	link->link.ranks = (uint32_t)ranks;
	return r;
}

static int read_links(struct estimate_device *device, const json_t *links, const char *path,
		      char *error)
{
	if (!links)
		return 0;
	if (!json_is_array(links) || json_array_size(links) > ESTIMATE_LINKS_MAX)
		return estimate_fail(
			error, -EINVAL,
			"%s: links must be an array of at most %d objects: the link of "
			"a machine's ranks, then the one of machines",
			path, ESTIMATE_LINKS_MAX);
	while (device->link_count < json_array_size(links)) {
		uint32_t i = device->link_count++;
		int r = read_link(&device->links[i], json_array_get(links, i), path, error);
		if (r < 0)
			return r;
		if (i && device->links[i].link.ranks <= device->links[i - 1].link.ranks)
			return estimate_fail(error, -EINVAL,
					     "%s: a later one of links must connect more ranks",
					     path);
	}
	return 0;
}

static int read_device(struct estimate_device *device, json_t *json, const char *path, bool tf32,
		       char *error)
{
	const char *const elements[] = {
		[CUDA_F32] = tf32 ? "tf32" : "fp32", [CUDA_F16] = "fp16", [CUDA_BF16] = "bf16"};
	const json_t *roofline = json_object_get(json, "roofline");
	const json_t *flops = json_object_get(roofline, "flops_per_second");
	double memory = 0;
	if (!json_is_object(roofline) || !json_is_object(flops))
		return estimate_fail(error, -EINVAL,
				     "%s has no \"roofline\" with bytes_per_second and "
				     "flops_per_second; see the files in devices/",
				     path);
	int r = take_text(json, path, "deviceName", &device->name, error);
	if (r < 0)
		return r;
	r = take_text(roofline, path, "source", &device->source, error);
	if (r < 0)
		return r;
	r = take_number(json, path, "totalGlobalMem", &memory, error);
	if (r < 0)
		return r;
	r = take_number(roofline, path, "bytes_per_second", &device->roofline.bytes_per_second,
			error);
	if (r < 0)
		return r;
	for (int i = 0; i < 3; i++) {
		r = take_number(flops, path, elements[i], &device->roofline.flops_per_second[i],
				error);
		if (r < 0)
			return r;
	}
	r = take_properties(json, path, error);
	if (r < 0)
		return r;
	r = read_links(device, json_object_get(json, "links"), path, error);
	if (r < 0)
		return r;
	device->memory_bytes = (uint64_t)memory;
	json_object_del(json, "roofline");
	json_object_del(json, "links");
	device->properties = json_dumps(json, JSON_COMPACT);
	return device->properties ? 0 : estimate_fail(error, -ENOMEM, "out of memory");
}

int estimate_device_init(struct estimate_device *device, const char *path, bool tf32, char *error)
{
	json_error_t where;
	json_t *json = json_load_file(path, JSON_REJECT_DUPLICATES, &where);
	*device = (struct estimate_device){0};
	if (!json && where.line < 1)
		return estimate_fail(error, -EINVAL, "%s", where.text);
	if (!json)
		return estimate_fail(error, -EINVAL, "%s: line %d: %s", path, where.line,
				     where.text);
	int r = read_device(device, json, path, tf32, error);
	json_decref(json);
	if (r < 0)
		estimate_device_deinit(device);
	return r;
}

int estimate_device_properties(const char *path, char **ret_properties, char *error)
{
	struct estimate_device device;
	int r = estimate_device_init(&device, path, false, error);
	if (r < 0)
		return r;
	*ret_properties = device.properties;
	device.properties = NULL;
	estimate_device_deinit(&device);
	return 0;
}
