#include "loaderd/worker/worker.h"

#include "format/base/system/memory.h"
#include "loaderd/config.h"
#include "loaderd/link.h"
#include "loaderd/log.h"
#include "loaderd/worker/sandbox.h"
#include "loaderd/worker/server.h"
#include "loaderd/worker/storage.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { HEAPS = 4, STACK_USUAL = 8 << 20 };

/* What the C library opens when it is first asked, it is asked for now. */
static void open_files_of_libraries(void)
{
	tzset();
	(void)memory_available();
}

/*
 * A worker may need what its feeds read ahead and what its threads decode with; half of what there
 * is leaves room for others, and for the rings that are made of the other half. Stacks count as
 * they are reserved.
 */
struct sandbox_limits worker_limits(const struct server *server)
{
	struct rlimit stack;
	uint64_t threads = server_threads_most(server);
	if (getrlimit(RLIMIT_STACK, &stack) < 0 || stack.rlim_cur == RLIM_INFINITY)
		stack.rlim_cur = STACK_USUAL;
	return (struct sandbox_limits){
		.memory = memory_available() / 2 + threads * stack.rlim_cur,
		.threads = threads,
	};
}

static int worker_serve(const struct config *config, uid_t uid, struct config_error *error)
{
	struct server *server;
	int r = sandbox_prepare(error);
	if (r == 0)
		r = server_new(config, uid, &server, error);
	if (r < 0)
		return r;
	open_files_of_libraries();
	const struct sandbox_limits limits = worker_limits(server);
	r = sandbox_enter(&limits, error);
	if (r == 0) {
		if (sandbox_exceptions()[0] != '\0')
			log_warning("%s", sandbox_exceptions());
		r = server_run(server);
	}
	server_free(server);
	return r;
}

int worker_run(uid_t uid, bool shared)
{
	char path[32];
	struct config config;
	struct config_error error = {{0}};
	/* Started as /proc/self/exe, it would be called "exe" in lists of processes. */
	prctl(PR_SET_NAME, "loaderd");
	config_init(&config);
	log_init(LOG_LEVEL_WARNING);
	log_to_supervisor();
	/*
	 * Threads come and go with what waits; what they allocate should not stay in a heap of
	 * each.
	 */
	mallopt(M_ARENA_MAX, HEAPS);
	/*
	 * A signal to the whole process group is for the supervisor, who tells its workers to
	 * drain.
	 */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", LINK_CONFIG_FD);
	storage_init(shared);
	int r = config_read(&config, path, &error);
	close(LINK_CONFIG_FD);
	if (r == 0) {
		log_init((enum log_level)config.log_level);
		log_to_supervisor();
		r = worker_serve(&config, uid, &error);
	}
	if (r < 0)
		log_error("the worker ends: %s", error.text[0] != '\0' ? error.text : strerror(-r));
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
