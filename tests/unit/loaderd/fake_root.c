#include "tests/unit/loaderd/fake_root.h"

#include "tests/test.h"

#include <ftw.h>
#include <limits.h>
#include <sys/stat.h>

char fake_root[] = "/tmp/loaderd_test.XXXXXX";

static int remove_below_root(const char *path, const struct stat *status, int type,
			     struct FTW *walk)
{
	return strcmp(path, fake_root) == 0 ? 0 : remove(path);
}

int fake_root_setup(void **state)
{
	return !mkdtemp(fake_root) ? -1 : 0;
}

int fake_root_teardown(void **state)
{
	fake_root_clear();
	return rmdir(fake_root);
}

void fake_root_clear(void)
{
	nftw(fake_root, remove_below_root, 8, FTW_DEPTH | FTW_PHYS);
}

void fake_root_write(const char *path, const char *text)
{
	char full[PATH_MAX];
	int n = snprintf(full, sizeof(full), "%s%s", fake_root, path);
	assert_true(n > 0 && n < PATH_MAX);
	for (char *slash = full + strlen(fake_root) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		assert_true(mkdir(full, 0777) == 0 || errno == EEXIST);
		*slash = '/';
	}
	FILE *file = fopen(full, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}
