#include "tools/packimg/image/avif_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

static struct avif_library library;
static bool is_loaded;

static void load(void)
{
	void *handle = dlopen(AVIF_SONAME, RTLD_NOW | RTLD_LOCAL);

	is_loaded = handle;
#define FIND(function)                                                                             \
	library.function = handle ? (__typeof__(&(function)))dlsym(handle, #function) : NULL;      \
	is_loaded = is_loaded && library.function;
	AVIF_FUNCTIONS(FIND)
#undef FIND
}

const struct avif_library *avif_library(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
	return is_loaded ? &library : NULL;
}
