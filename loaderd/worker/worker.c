#include "loaderd/worker/worker.h"

#include "format/base/sandbox/syscall_filter.h"
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
/* Memory besides decode_bytes: augmentation buffers of a thread, and a fixed part. */
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
 * Makes the kernel kill this worker before the supervisor when memory is short. The OOM killer
 * picks the process with the most memory plus oom_score_adj. Workers must not come before an
 * unrelated program that takes all memory, or such a program could get all users' workers killed.
 * So the increment only outweighs the supervisor's few MiB, and it is the same for all workers:
 * among them, the one with the most memory is killed first. Raising the value needs no privilege. A
 * negative value, by which systemd protects the supervisor, is not inherited.
 */
static void raise_oom_score(void)
{
	static const char path[] = "/proc/self/oom_score_adj";
	enum { MOST = 1000 };
	int own = 0;
	FILE *file = fopen(path, "r+e");
	if (!file || fscanf(file, "%d", &own) != 1) {
		log_warning("%s: %s: the kernel may kill the supervisor before this worker", path,
			    strerror(errno));
	} else {
		int score = (own < 0 ? 0 : own) + OOM_STEP;
		rewind(file);
		fprintf(file, "%d\n", score > MOST ? MOST : score);
	}
	if (file && fclose(file) != 0)
		log_warning("%s: %s: the kernel may kill the supervisor before this worker", path,
			    strerror(errno));
}

/* Makes the C library open its files now, before the sandbox forbids it. */
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
 * Memory limit: what the threads need to decode and the feeds to read ahead, but at most half of
 * the memory of the machine or cgroup; the other half is for the page cache and other processes.
 * Only a cgroup limits all workers together, and the kernel memory held for them. RLIMIT_DATA
 * counts stacks as reserved.
 */
struct sandbox_limits worker_limits(const struct server *server)
{
	struct rlimit stack;
	const struct config *config = server->config;
	const uint64_t threads = server_threads_max(server), half = memory_available() / 2;
	/*
	 * Count decode_bytes three times: if files are not mapped, a thread may also hold the
	 * sample's encoded bytes; and pictures and rasters that views share
	 * (pipeline_scratch_limit()).
	 */
	uint64_t need = add_product(FIXED_BYTES, pool_thread_indices(server->pool),
				    3 * config->decode_bytes + THREAD_BYTES);
	need = add_product(need, config->feeds_per_user, config->readahead_bytes);
	/* The tables of one order, and the lists from which they are being made. */
	need = add_product(need, 3, config->order_bytes);
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
	if (r < 0)
		return r;
	r = server_new(config, uid, &server, error);
	if (r < 0)
		return r;
	open_files_of_libraries();
	const struct sandbox_limits limits = worker_limits(server);
	r = sandbox_enter(&limits, error);
	if (r == 0) {
		if (syscall_filter_exceptions()[0] != '\0')
			log_warning("%s", syscall_filter_exceptions());
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
	/* Spawned from /proc/self/exe, it would be named "exe" in process lists. */
	prctl(PR_SET_NAME, "loaderd");
	config_init(&config);
	log_init(LOG_LEVEL_WARNING);
	log_to_supervisor();
	/*
	 * Threads come and go with blocked jobs; limit arenas so that freed memory does not stay in
	 * one per thread.
	 */
	mallopt(M_ARENA_MAX, HEAPS);
	/* A signal to the process group is for the supervisor, which then drains its workers. */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	/* Fail with EFBIG instead of a signal when RLIMIT_FSIZE is exceeded. */
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
		log_error("the worker exits: %s",
			  error.text[0] != '\0' ? error.text : strerror(-r));
	return r < 0 ? -r : EXIT_SUCCESS;
}
