#include "trainer/device/cuda/load.h"

#include "trainer/device/device.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *load_library(const char *name)
{
	const char *folders = getenv(LOAD_FOLDERS);
	char path[4096];
	void *library = NULL;

	while (folders && *folders && !library) {
		int length = (int)strcspn(folders, ":");

		if (snprintf(path, sizeof(path), "%.*s/%s", length, folders, name) <
		    (int)sizeof(path))
			library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		folders += length + (folders[length] == ':');
	}
	return library ? library : dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

int load_not_found(const char *name, const char *package, char *error)
{
	const char *words = dlerror();

	snprintf(error, DEVICE_ERROR_MAX,
		 "%s cannot be loaded: %s. Install %s, or loaderd[cuda] by pip, or name the folder "
		 "it is in by " LOAD_FOLDERS,
		 name, words ? words : "no reason given", package);
	return -ENODEV;
}

int load_no_function(const char *name, const char *function, char *error)
{
	snprintf(error, DEVICE_ERROR_MAX,
		 "%s has no function %s: it is not the release this program was built for", name,
		 function);
	return -ENODEV;
}
