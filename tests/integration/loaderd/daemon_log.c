#include "tests/integration/loaderd/daemon_log.h"
#include "tests/test.h"

#include <sys/mman.h>
#include <sys/stat.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = true };
#else
enum { SANITIZED = false };
#endif

int daemon_log_new(void)
{
	struct stat status;
	if (!SANITIZED || (fstat(STDERR_FILENO, &status) == 0 && S_ISREG(status.st_mode)))
		return -1;
	int log = memfd_create("log", MFD_CLOEXEC);
	assert_true(log >= 0);
	return log;
}

void daemon_log_use(int log)
{
	if (log >= 0)
		dup2(log, STDERR_FILENO);
}

void daemon_log_end(int log)
{
	char line[4096];
	bool found = false;
	if (log < 0)
		return;
	FILE *file = fdopen(log, "r");
	assert_non_null(file);
	rewind(file);
	while (fgets(line, sizeof(line), file)) {
		fputs(line, stderr);
		found |= strstr(line, "ERROR: AddressSanitizer") != NULL ||
			 strstr(line, "ERROR: LeakSanitizer") ||
			 strstr(line, "WARNING: ThreadSanitizer") ||
			 strstr(line, "runtime error: ");
	}
	fclose(file);
	if (found)
		fail_msg("a sanitizer has found something in the daemon");
}
