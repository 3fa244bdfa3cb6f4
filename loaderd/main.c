/*
 * The daemon's main(): command line, configuration, listening sockets; then runs the supervisor or,
 * as --worker, a worker. loaderd(1).
 */
#include "format/base/system/cpu.h"
#include "format/base/system/memory.h"
#include "format/base/text/options.h"
#include "format/base/text/printable.h"
#include "loaderd/config.h"
#include "loaderd/listen.h"
#include "loaderd/log.h"
#include "loaderd/notify.h"
#include "loaderd/supervisor/supervisor.h"
#include "loaderd/worker/worker.h"
#include "loaderd/worker_ipc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <unistd.h>

enum {
	KEY_SOCKET = 's',
	KEY_THREADS = 't',
	KEY_CONFIG = 'c',
	KEY_SET = 'o',
	KEY_CPUS = 0x100,
	KEY_IO,
	KEY_LOG_LEVEL,
	KEY_ALLOW,
	KEY_LIMIT,
	KEY_LISTEN_FD,
	KEY_LIFELINE_FD,
	KEY_PRIVATE,
	KEY_CHECK,
	KEY_WORKER,
	KEY_WORKER_NICE,
	KEY_WORKER_GROUP,
	SETTINGS_MAX = 128,
	DESCRIPTORS_MIN = 64, /* below this, not even the daemon's own files can be opened */
};

struct arguments {
	const char *config_path;            /* NULL for the default, which may be missing */
	const char *settings[SETTINGS_MAX]; /* "section.key=value", owned, applied after the file */
	unsigned setting_count;
	int listen_fd, lifeline_fd;
	bool private_only; /* serve only the user that runs the daemon */
	bool check;
	long worker_uid; /* -1 if this is not a worker */
};

/* Exported, because argp in the C library looks it up by name. */
__attribute__((visibility("default"))) const char *argp_program_version =
	"loaderd " LOADERD_VERSION;
static const char doc[] =
	"Decodes, augments and batches packed image datasets for training, and serves the batches "
	"through shared memory.\vOptions override the configuration file. With --private or "
	"--listen-fd, loaderd reads one only if --config names it, and rejects other users. See "
	"loaderd(1) and loaderd.conf(5).";
static const struct argp_option options[] = {
	{"config", KEY_CONFIG, "FILE", 0, "Read FILE instead of " CONFIG_PATH, 0},
	{"check-config", KEY_CHECK, NULL, 0, "Check the configuration, print it in full, and exit",
	 0},
	{"socket", KEY_SOCKET, "PATH", 0, "Listen on PATH, or on the abstract name @NAME", 1},
	{"threads", KEY_THREADS, "N", 0,
	 "Threads of each user's worker (default: one per available CPU)", 1},
	{"cpus", KEY_CPUS, "LIST", 0, "Run these threads on these CPUs, such as 0-3,8", 1},
	{"io", KEY_IO, "auto|mmap|uring", 0, "How to read files", 1},
	{"allow", KEY_ALLOW, "PATH", OPTION_HIDDEN, NULL,
	 1}, /* removed; setting the key reports why */
	{"limit", KEY_LIMIT, "NAME=VALUE", 0, "Set a key of the [limits] section", 1},
	{"log-level", KEY_LOG_LEVEL, "error|warning|info|debug", 0, "Which messages to log", 1},
	{"set", KEY_SET, "SECTION.KEY=VALUE", 0, "Set any key of the configuration", 1},
	{"private", KEY_PRIVATE, NULL, 0, "Serve only the user who runs the daemon", 2},
	{"listen-fd", KEY_LISTEN_FD, "FD", 0, "Serve on this inherited listening socket", 2},
	{"lifeline-fd", KEY_LIFELINE_FD, "FD", 0,
	 "Exit at once when this descriptor reads end of file", 2},
	/* Used by the supervisor only: */
	{"worker", KEY_WORKER, "UID", OPTION_HIDDEN, NULL, 3},
	{"nice", KEY_WORKER_NICE, "N", OPTION_HIDDEN, NULL, 3},
	{"group", KEY_WORKER_GROUP, NULL, OPTION_HIDDEN, NULL, 3},
	{0},
};

static void add_setting(struct argp_state *state, const char *prefix, const char *text)
{
	struct arguments *arguments = state->input;
	char *setting;
	if (arguments->setting_count == SETTINGS_MAX)
		argp_error(state, "too many settings");
	if (asprintf(&setting, "%s%s", prefix, text) < 0)
		argp_failure(state, EXIT_FAILURE, ENOMEM, "%s", prefix);
	arguments->settings[arguments->setting_count++] = setting;
}

static int descriptor(struct argp_state *state, const char *flag, const char *text)
{
	char *end;
	errno = 0;
	long fd = strtol(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' || fd < 0 || fd > INT32_MAX)
		argp_error(state, "%s %s: expected the number of a file descriptor", flag, text);
	if (fcntl((int)fd, F_SETFD, FD_CLOEXEC) < 0)
		argp_error(state, "%s %s: %s", flag, text, strerror(errno));
	return (int)fd;
}

/* Options that set a configuration key; prefix + argument has the form SECTION.KEY=VALUE. */
static const struct {
	int key;
	const char *prefix;
} setting_options[] = {
	{KEY_SOCKET, "daemon.socket="}, {KEY_LOG_LEVEL, "daemon.log_level="},
	{KEY_THREADS, "pool.threads="}, {KEY_CPUS, "pool.cpus="},
	{KEY_IO, "io.mode="},           {KEY_ALLOW, "access.allow="},
	{KEY_LIMIT, "limits."},         {KEY_SET, ""},
};

static error_t parse_option(int key, char *text, struct argp_state *state)
{
	struct arguments *arguments = state->input;
	for (size_t i = 0; i < sizeof(setting_options) / sizeof(setting_options[0]); i++)
		if (setting_options[i].key == key) {
			add_setting(state, setting_options[i].prefix, text);
			return 0;
		}
	switch (key) {
	case KEY_CONFIG:
		arguments->config_path = text;
		return 0;
	case KEY_CHECK:
		arguments->check = true;
		return 0;
	case KEY_WORKER:
		arguments->worker_uid = strtol(text, NULL, 10);
		return 0;
	case KEY_WORKER_NICE:
		/* Applies to this thread, the only one; later threads inherit it. */
		if (setpriority(PRIO_PROCESS, 0, atoi(text)) < 0)
			argp_failure(state, EXIT_FAILURE, errno,
				     "cannot set the worker's nice value to %s", text);
		return 0;
	case KEY_WORKER_GROUP:
		/* Before anything else: memory is charged to the cgroup that a process is in. */
		if (worker_join_group() < 0)
			argp_failure(state, WORKER_HAS_NO_GROUP, errno,
				     "the worker cannot enter its user's control group");
		return 0;
	case KEY_PRIVATE:
		arguments->private_only = true;
		return 0;
	case KEY_LISTEN_FD:
		arguments->listen_fd = descriptor(state, "--listen-fd", text);
		arguments->private_only = true;
		return 0;
	case KEY_LIFELINE_FD:
		arguments->lifeline_fd = descriptor(state, "--lifeline-fd", text);
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "%s: loaderd takes no arguments; clients name the dataset", text);
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int apply_setting(struct config *config, const char *setting, struct config_error *error)
{
	char section[64], key[64];
	const char *equals = strchr(setting, '=');
	const char *dot = strchr(setting, '.');
	if (!equals || !dot || dot > equals || (size_t)(dot - setting) >= sizeof(section) ||
	    (size_t)(equals - dot - 1) >= sizeof(key))
		return config_fail(error, -EINVAL, "\"%.200s\": expected SECTION.KEY=VALUE",
				   setting);
	snprintf(section, sizeof(section), "%.*s", (int)(dot - setting), setting);
	snprintf(key, sizeof(key), "%.*s", (int)(equals - dot - 1), dot + 1);
	return config_set(config, section, key, equals + 1, error);
}

/* Returns whether a configuration file is read; a private daemon reads one only if named. */
static bool has_file(const struct arguments *arguments)
{
	return arguments->config_path || !arguments->private_only;
}

static int load_config(struct config *config, const struct arguments *arguments,
		       struct config_error *error)
{
	const char *path = arguments->config_path;
	int r = 0;
	if (has_file(arguments))
		r = config_read(config, path ? path : CONFIG_PATH, error);
	if (r == -ENOENT && !path)
		r = 0;
	for (unsigned i = 0; r == 0 && i < arguments->setting_count; i++)
		r = apply_setting(config, arguments->settings[i], error);
	return r;
}

/*
 * Raises RLIMIT_NOFILE to its hard limit, which workers inherit. Each connection uses one fd, each
 * feed two more, each shard one.
 */
static void raise_descriptor_limit(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/*
 * Checks only that the daemon's own files can be opened. The supervisor later checks what one user
 * needs.
 */
static int check_descriptor_limit(struct config_error *error)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= DESCRIPTORS_MIN)
		return 0;
	return config_fail(error, -EMFILE,
			   "RLIMIT_NOFILE is %llu (ulimit -n, LimitNOFILE=): the daemon cannot "
			   "start with so few descriptors; raise it, ideally to 65536",
			   (unsigned long long)limit.rlim_cur);
}

static int inherit_listener(int fd, struct supervisor_options *how, struct config_error *error)
{
	int listening = 0;
	socklen_t size = sizeof(listening);
	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) < 0 || !listening)
		return config_fail(error, -EINVAL, "--listen-fd %d: not a listening socket", fd);
	how->listen_fds[how->listen_count++] = fd;
	return fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

/* Warns of keys that systemd's socket units override. */
static void warn_of_ignored(const struct config *config)
{
	struct config usual;
	config_init(&usual);
	if (strcmp(config->socket, usual.socket) != 0)
		log_warning(
			"[daemon] socket = %.200s is ignored because systemd created the sockets; "
			"set ListenStream= of loaderd.socket (systemctl edit loaderd.socket)",
			config->socket);
	if (config->socket_mode != usual.socket_mode)
		log_warning("[daemon] socket_mode = %04llo is ignored because systemd created the "
			    "sockets; set SocketMode=%04llo of loaderd.socket (systemctl edit "
			    "loaderd.socket)",
			    (unsigned long long)config->socket_mode,
			    (unsigned long long)config->socket_mode);
	if (config->socket_group[0] != '\0')
		log_warning("[daemon] socket_group = %.64s is ignored because systemd created the "
			    "sockets; set SocketGroup=%.64s of loaderd.socket (systemctl edit "
			    "loaderd.socket)",
			    config->socket_group, config->socket_group);
}

/* r: error of notify_listen_fds(). */
static int refuse_listeners(int r, struct config_error *error)
{
	if (r == -E2BIG)
		return config_fail(error, r,
				   "systemd passed more than %d sockets; remove ListenStream= "
				   "lines from loaderd.socket",
				   SUPERVISOR_LISTENERS_MAX);
	if (r == -EEXIST)
		return config_fail(error, r,
				   "systemd passed more than one socket named admin; leave one "
				   "FileDescriptorName=admin in the socket units");
	return config_fail(error, r, "cannot take the sockets that systemd passed: %s",
			   strerror(-r));
}

/* Opens or inherits the listening sockets. */
static int find_listeners(const struct arguments *arguments, struct supervisor_options *how,
			  struct config_error *error)
{
	if (arguments->listen_fd >= 0)
		return inherit_listener(arguments->listen_fd, how, error);
	int count = notify_listen_fds(how->listen_fds, SUPERVISOR_LISTENERS_MAX, &how->admin_fd);
	if (count < 0)
		return refuse_listeners(count, error);
	how->activated = count > 0;
	how->listen_count = how->activated ? (unsigned)count : 1;
	if (how->activated) {
		warn_of_ignored(how->config);
		return 0;
	}
	if (how->admin_fd < 0)
		return listen_open(how->config, how->listen_fds, &how->admin_fd, error);
	log_warning("systemd passed only the administrator's socket: the daemon creates the "
		    "clients' socket %.200s itself; enable loaderd.socket",
		    how->config->socket);
	return listen_open(how->config, how->listen_fds, NULL, error);
}

static int read_again(const void *arguments, struct config *ret_config, struct config_error *error)
{
	config_init(ret_config);
	return load_config(ret_config, arguments, error);
}

static int main_serve(const struct config *config, const struct arguments *arguments,
		      struct config_error *error)
{
	struct supervisor_options how = {
		.config = config,
		.admin_fd = -1,
		.lifeline_fd = arguments->lifeline_fd,
		.private_only = arguments->private_only,
		.read_config = has_file(arguments) ? read_again : NULL,
		.read_context = arguments,
	};
	int r = check_descriptor_limit(error);
	if (r < 0)
		return r;
	r = find_listeners(arguments, &how, error);
	if (r < 0)
		return r;
	r = supervisor_run(&how, error);
	/* created by find_listeners() */
	if (arguments->listen_fd < 0 && !how.activated)
		listen_remove(config);
	return r;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {options, parse_option, NULL, doc, NULL, NULL, NULL};
	struct arguments arguments = {.listen_fd = -1, .lifeline_fd = -1, .worker_uid = -1};
	struct config config;
	struct config_error error = {{0}};
	options_parse(&argp, argc, argv, &arguments);
	if (arguments.worker_uid >= 0)
		return worker_run((uid_t)arguments.worker_uid, !arguments.private_only);
	log_init(LOG_LEVEL_INFO);
	config_init(&config);
	int r = cpu_isa_check(error.text, sizeof(error.text)), status = EXIT_FAILURE;
	if (r == 0) {
		r = load_config(&config, &arguments, &error);
		status = r < 0 ? EX_CONFIG : EXIT_FAILURE;
	}
	if (r < 0) {
		printable_line(stderr, "loaderd: %s", error.text);
	} else if (arguments.check) {
		config_print(&config, stdout);
	} else {
		log_init((enum log_level)config.log_level);
		raise_descriptor_limit();
		signal(SIGPIPE, SIG_IGN);
		/* RLIMIT_FSIZE also applies to memfds: fail with EFBIG instead of a signal. */
		signal(SIGXFSZ, SIG_IGN);
		memory_init();
		r = main_serve(&config, &arguments, &error);
		if (r < 0)
			log_error("%s", error.text[0] != '\0' ? error.text : strerror(-r));
	}
	for (unsigned i = 0; i < arguments.setting_count; i++)
		free((char *)arguments.settings[i]);
	return r < 0 ? status : EXIT_SUCCESS;
}
