/* loaderd-fetch: copies datasets from stores for the feeds of its user. libfeed starts it. */
#include "format/base/system/io.h"
#include "format/base/text/number.h"
#include "format/base/text/options.h"
#include "proto/socket_path.h"
#include "tools/fetch/server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

__attribute__((visibility("default"))) const char *argp_program_version =
	"loaderd-fetch " LOADERD_VERSION;

enum {
	PATIENCE_S = 60, /* less than a daemon waits for a sample, [io] remote_timeout_ms */
	PATIENCE_MAX_S = 86400,
	MEMORY_BYTES = 256 << 20,
};

struct options {
	const char *socket;
	unsigned ready_fd, idle_s;
};

#define AT(member) offsetof(struct options, member)

static const struct options_row rows[] = {
	{"socket", 's', "PATH", "the socket to listen on", OPTIONS_TEXT, AT(socket)},
	{"ready-fd", 0, "N",
	 "go to the background, and write a line to this descriptor: empty when listening, else "
	 "why "
	 "that is impossible",
	 OPTIONS_UNSIGNED, AT(ready_fd), 3, 1 << 20},
	{"idle", 0, "SECONDS", "end when nobody has been connected for so long (default: 60)",
	 OPTIONS_UNSIGNED, AT(idle_s), 1, 1 << 20},
	{0},
};

static volatile sig_atomic_t stopping;

static void on_signal(int signal)
{
	(void)signal;
	stopping = 1;
}

static bool is_stopping(void)
{
	return stopping;
}

/* Tells the process that has started this one, once. */
static void tell(const struct options *options, const char *text)
{
	if (options->ready_fd) {
		dprintf((int)options->ready_fd, "%s\n", text);
		close((int)options->ready_fd);
	} else if (*text) {
		fprintf(stderr, "loaderd-fetch: %s\n", text);
	}
}

/* Returns in a child, of a session of its own. */
static int go_to_background(void)
{
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid > 0)
		_exit(0);
	setsid();
	return chdir("/") ? -errno : 0;
}

/* Returns the descriptor of the lock, or -EWOULDBLOCK while another fetcher has it. */
static int take_lock(const char *socket)
{
	char path[SOCKET_PATH_MAX + 8];

	snprintf(path, sizeof(path), "%s.lock", socket);
	return io_lock(path);
}

static int listen_on(const char *path)
{
	struct sockaddr_un address;
	socklen_t size = socket_address(path, &address);
	int fd = size ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;

	if (!size)
		return -ENAMETOOLONG;
	if (fd < 0)
		return -errno;
	mode_t mask = umask(0177);
	unlink(path);
	int r = bind(fd, (struct sockaddr *)&address, size) || listen(fd, SOMAXCONN) ? -errno : 0;
	umask(mask);
	if (r)
		close(fd);
	return r ? r : fd;
}

/* No core dump contains the credentials, and no other process of the user attaches to it. */
static void protect(void)
{
	const struct rlimit none = {0, 0};

	setrlimit(RLIMIT_CORE, &none);
	prctl(PR_SET_DUMPABLE, 0);
}

/* A descriptor for each connection, client and file: the usual limit of 1,024 may be too low. */
static void raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

/* How long a store that has answered before may stay away. */
static int read_patience(unsigned *ret_ms, struct packimg_error *error)
{
	const char *given = getenv("LOADERD_FETCH_PATIENCE");
	uint64_t seconds = PATIENCE_S;

	if (given && *given && number_u64(given, 0, PATIENCE_MAX_S, &seconds))
		return packimg_fail(error, -EINVAL,
				    "LOADERD_FETCH_PATIENCE is \"%s\", which is not a number of "
				    "seconds, at most %d",
				    given, PATIENCE_MAX_S);
	*ret_ms = (unsigned)seconds * 1000;
	return 0;
}

/* How much memory requests may take. */
static int read_memory(uint64_t *ret_bytes, struct packimg_error *error)
{
	const char *given = getenv("LOADERD_FETCH_MEMORY");

	*ret_bytes = MEMORY_BYTES;
	if (given && *given && (number_bytes(given, ret_bytes) || *ret_bytes < FETCHER_MEMORY_MIN))
		return packimg_fail(error, -EINVAL,
				    "LOADERD_FETCH_MEMORY is \"%s\", which is not a size of at "
				    "least %dM",
				    given, FETCHER_MEMORY_MIN >> 20);
	return 0;
}

static int serve(const struct options *options, int listen_fd)
{
	struct packimg_error error = {{0}};
	struct fetcher fetcher = {0};
	struct store_options store_options = {.hedge = true, .stopped = is_stopping};
	struct server *server = NULL;
	int r = cache_init(&fetcher.cache, &error);

	if (!r)
		r = read_patience(&store_options.patience_ms, &error);
	if (!r)
		r = read_memory(&fetcher.memory, &error);
	if (!r)
		r = store_open(&store_options, &fetcher.store, &error);
	if (!r)
		r = fetch_sandbox_enter(&fetcher.cache, fetcher.store, options->socket,
					&fetcher.sandbox, &error);
	if (r) {
		close(listen_fd);
		tell(options, error.text);
		return r;
	}
	if (!options->ready_fd)
		fprintf(stderr, "loaderd-fetch: sandbox: %s\n", fetcher.sandbox.text);
	schedule_init(&fetcher);
	r = server_new(&fetcher, listen_fd, &server);
	tell(options, r ? "out of memory" : "");
	if (!r) {
		r = server_run(server, options->idle_s, is_stopping);
		unlink(options->socket);
		server_free(server);
	}
	/* another fetcher is waited for, which takes over what the feeds have */
	while (fetcher.datasets && !fetch_sandbox_outdated(&fetcher.sandbox)) {
		struct remote_dataset *dataset = fetcher.datasets;

		fetcher.datasets = dataset->next;
		if (!dataset->under_way)
			dataset_close(dataset);
	}
	store_close(fetcher.store);
	schedule_close(&fetcher);
	return r;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		.doc = "Copy datasets from stores (s3://, https://) for the feeds of this user. "
		       "libfeed starts it; see loaderd-fetch(1).",
	};
	const struct sigaction action = {.sa_handler = on_signal};
	struct options options = {.idle_s = 60};
	char text[512];

	argp_err_exit_status = EX_USAGE;
	options_read(rows, &argp, argc, argv, &options);
	if (!options.socket) {
		fputs("loaderd-fetch: --socket is missing\n", stderr);
		return EX_USAGE;
	}
	if (options.ready_fd && go_to_background())
		return EX_OSERR;
	protect();
	raise_descriptor_limit();
	signal(SIGPIPE, SIG_IGN);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	int lock = take_lock(options.socket);
	if (lock == -EWOULDBLOCK) {
		tell(&options, "");
		return EX_OK;
	}
	int fd = lock < 0 ? lock : listen_on(options.socket);
	if (fd < 0) {
		snprintf(text, sizeof(text), "%s: %s", options.socket, strerror(-fd));
		tell(&options, text);
		return EX_OSERR;
	}
	return serve(&options, fd) ? EX_SOFTWARE : EX_OK;
}
