/* Without libcurl or expat: refuses addresses. */
#include "format/base/text/text.h"
#include "format/error.h"
#include "tools/packimg/common/remote.h"
#include "tools/packimg/common/remote_output.h"

#include <string.h>

int remote_open(const char *path, bool quiet, struct packimg **ret_dataset,
		struct remote **ret_remote, struct packimg_error *error)
{
	(void)quiet;
	*ret_remote = NULL;
	if (text_is_address(path))
		return packimg_fail(error, -ENOTSUP,
				    "%.300s: this packimg was built without libcurl or expat, as "
				    "that of the wheel is, and cannot read from stores: use that "
				    "of a build with them, such as the Debian package, or copy the "
				    "file with the store's own program",
				    path);
	return packimg_open(path, ret_dataset, error);
}

int remote_connect(const char *address, bool unsealed, bool quiet, struct remote **ret_remote,
		   struct packimg_error *error)
{
	struct packimg *none;

	(void)unsealed;
	return remote_open(address, quiet, &none, ret_remote, error);
}

int remote_receive(struct remote *remote, const struct packimg_receiver *receiver,
		   struct packimg **ret_dataset, struct packimg_error *error)
{
	(void)remote, (void)receiver, (void)ret_dataset, (void)error;
	return -ENOTSUP;
}

uint32_t remote_shards(const struct remote *remote)
{
	(void)remote;
	return 0;
}

int remote_seal(struct remote *remote, char **ret_address, struct packimg_error *error)
{
	(void)remote, (void)ret_address, (void)error;
	return -ENOTSUP;
}

int remote_fetch_samples(struct remote *remote, const uint64_t *samples, uint64_t count,
			 struct packimg_error *error)
{
	(void)remote, (void)samples, (void)count, (void)error;
	return 0;
}

int remote_fetch_all(struct remote *remote, struct packimg_error *error)
{
	(void)remote, (void)error;
	return 0;
}

struct remote_counters remote_counters(const struct remote *remote)
{
	(void)remote;
	return (struct remote_counters){0};
}

void remote_close(struct remote *remote, struct packimg *dataset)
{
	(void)remote;
	packimg_close(dataset);
}

int remote_output_new(const char *address, bool force, struct remote_output **ret_output,
		      const char **ret_path, struct packimg_error *error)
{
	(void)force, (void)ret_output, (void)ret_path;
	return packimg_fail(
		error, -ENOTSUP,
		"%.300s: this packimg was built without libcurl or expat, as that of the "
		"wheel is, and cannot write to stores: write a file, and copy it with the "
		"store's own program",
		address);
}

int remote_output_send(struct remote_output *output, bool quiet, struct packimg_error *error)
{
	(void)output, (void)quiet, (void)error;
	return 0;
}

void remote_output_free(struct remote_output *output)
{
	(void)output;
}
