#include "loaderd/worker/worker.h"

#include "format/base/system/memory.h"
#include "loaderd/config.h"
#include "loaderd/log.h"
#include "loaderd/worker/sandbox.h"
#include "loaderd/worker/server_internal.h"
#include "loaderd/worker/storage.h"
#include "loaderd/worker_ipc.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
	HEAPS = 4,
	STACK_USUAL = 8 << 20,
	OOM_STEP = 10, /* thousandths of the machine's memory */
};
/* Beside what decoding takes: what a thread has for effects on pictures, and what is there once. */
#define THREAD_BYTES (UINT64_C(256) << 20)
#define FIXED_BYTES  (UINT64_C(1) << 30)

int worker_join_group(void)
{
	char text[24];
	const int size = snprintf(text, sizeof(text), "%d\n", (int)getpid());
	int r = write(IPC_GROUP_FD, text, (size_t)size) == size ? 0 : -errno;
	close(IPC_GROUP_FD);
	return r;
}

/*
 * Where memory is short the kernel ends the process with most memory, and oom_score_adj is added to
 * that. The supervisor should not come first, but neither should workers come before a program that
 * takes all memory, or such a program could have those of all users ended. So this is no more than
 * what outweighs the supervisor's own few MiB, and the same for all workers: among them the one
 * that uses most memory comes first. Raising the value takes no privilege. A supervisor that its
 * manager protects (a negative value) does not pass that on.
 */
static void raise_oom_score(void)
{
	static const char path[] = "/proc/self/oom_score_adj";
	enum { MOST = 1000 };
	int own = 0;
	FILE *file = fopen(path, "r+e");
	if (!file || fscanf(file, "%d", &own) != 1) {
		log_warning("%s: %s: the kernel may end the supervisor before this worker", path,
			    strerror(errno));
	} else {
		int score = (own < 0 ? 0 : own) + OOM_STEP;
		rewind(file);
		fprintf(file, "%d\n", score > MOST ? MOST : score);
	}
	if (file && fclose(file) != 0)
		log_warning("%s: %s: the kernel may end the supervisor before this worker", path,
			    strerror(errno));
}

/* What the C library opens when it is first asked, it is asked for now. */
static void open_files_of_libraries(void)
{
	tzset();
	(void)memory_available();
}

static uint64_t add_product(uint64_t sum, uint64_t a, uint64_t b)
{
	uint64_t product;
	if (__builtin_mul_overflow(a, b, &product) || __builtin_add_overflow(sum, product, &sum))
		return UINT64_MAX;
	return sum;
}

/*
 * What its threads decode with and its feeds read ahead, if that is less than half of what the
 * machine or its control group has. The other half is left to page cache and to others. Only a
 * control group limits all workers together, and what the kernel holds for them. Stacks count as
 * they are reserved.
 */
struct sandbox_limits worker_limits(const struct server *server)
{
	struct rlimit stack;
	const struct config *config = server->config;
	const uint64_t threads = server_threads_max(server), half = memory_available() / 2;
	/* Each thread may hold a sample's stored bytes, too, where files are not mapped. */
	uint64_t need = add_product(FIXED_BYTES, pool_worker_indices(server->pool),
				    2 * config->decode_bytes + THREAD_BYTES);
	need = add_product(need, config->feeds_per_user, config->readahead_bytes);
	if (getrlimit(RLIMIT_STACK, &stack) < 0 || stack.rlim_cur == RLIM_INFINITY)
		stack.rlim_cur = STACK_USUAL;
	return (struct sandbox_limits){
		.memory = add_product(need < half ? need : half, threads, stack.rlim_cur),
		.threads = threads,
	};
}

static int worker_serve(struct config *config, uid_t uid, struct config_error *error)
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
	/* RLIMIT_FSIZE is an error like others. */
	signal(SIGXFSZ, SIG_IGN);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	raise_oom_score();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", IPC_CONFIG_FD);
	storage_init(shared);
	int r = config_read(&config, path, &error);
	close(IPC_CONFIG_FD);
	if (r == 0) {
		log_init((enum log_level)config.log_level);
		log_to_supervisor();
		r = worker_serve(&config, uid, &error);
	}
	if (r < 0)
		log_error("the worker ends: %s", error.text[0] != '\0' ? error.text : strerror(-r));
	return r < 0 ? -r : EXIT_SUCCESS;
}
