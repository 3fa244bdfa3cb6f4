#include "tests/security/compromised_worker/agent.h"

#include "format/base/system/memory.h"
#include "loaderd/config.h"
#include "loaderd/log.h"
#include "loaderd/worker/sandbox.h"
#include "loaderd/worker/server.h"
#include "loaderd/worker/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int agent_run(uid_t uid, bool shared); /* main() calls it instead of worker_run() */

enum { LINE_MAX_BYTES = 512, ANSWER_WITHIN_MS = 5000 };

static const struct command {
	const char *name;
	void (*run)(const struct agent *agent, const char *arguments);
} commands[] = {
	{"calls", escape_attempts_run},
	{"foreign", escape_attempts_foreign_call},
	{"records", bad_records},
	{"log", bad_log},
	{"page", bad_page},
	{"memory", exhaust_memory},
	{"threads", exhaust_threads},
	{"rings", exhaust_rings},
	{"silence", hang_silently},
	{"spin", hang_spinning},
	{"bad_feed", bad_feed_run},
	{"leave", abandon_descriptors},
};

/* Drops root before main() begins, because the service runs as an unprivileged user. */
__attribute__((constructor)) static void give_up_root(void)
{
	const char *uid = getenv("AGENT_SERVICE");
	if (!uid || geteuid() != 0)
		return;
	unsigned number = (unsigned)atoi(uid);
	if (setgroups(0, NULL) < 0 || setgid(number) < 0 || setuid(number) < 0)
		abort();
}

void agent_send(const struct agent *agent, const char *format, ...)
{
	char line[LINE_MAX_BYTES];
	va_list arguments;
	va_start(arguments, format);
	int n = vsnprintf(line, sizeof(line) - 1, format, arguments);
	va_end(arguments);
	size_t size = n < 0 ? 0 : (size_t)n < sizeof(line) - 1 ? (size_t)n : sizeof(line) - 2;
	line[size++] = '\n';
	/* Waits for room: the socket is non-blocking and its buffer holds only a few lines. */
	struct pollfd room = {.fd = agent->client, .events = POLLOUT};
	while (send(agent->client, line, size, MSG_NOSIGNAL) < 0 && errno == EAGAIN)
		if (poll(&room, 1, ANSWER_WITHIN_MS) != 1)
			return;
}

_Bool agent_await(enum ipc_order_kind kind, struct ipc_order *ret_order, int fds[IPC_FDS_MAX])
{
	for (;;) {
		struct pollfd p = {.fd = IPC_SOCKET_FD, .events = POLLIN};
		if (poll(&p, 1, ANSWER_WITHIN_MS) != 1 ||
		    ipc_receive(IPC_SOCKET_FD, ret_order, fds) < 0)
			return false;
		if (ret_order->kind == kind)
			return true;
		for (unsigned i = 0; i < IPC_FDS_MAX; i++)
			if (fds[i] >= 0)
				close(fds[i]);
	}
}

static bool read_line(int fd, char line[LINE_MAX_BYTES])
{
	size_t size = 0;
	while (size < LINE_MAX_BYTES - 1) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		if (poll(&p, 1, -1) < 0 || read(fd, line + size, 1) != 1)
			return false;
		if (line[size] == '\n') {
			line[size] = '\0';
			return true;
		}
		size++;
	}
	return false;
}

static void obey(const struct agent *agent)
{
	char line[LINE_MAX_BYTES];
	const size_t magic = strlen(AGENT_MAGIC);
	if (!read_line(agent->client, line) || strncmp(line, AGENT_MAGIC, magic) != 0)
		return;
	char *name = line + magic, *arguments = name + strcspn(name, " ");
	if (*arguments != '\0')
		*arguments++ = '\0';
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		if (strcmp(commands[i].name, name) == 0)
			commands[i].run(agent, arguments);
	agent_send(agent, AGENT_END);
}

/* Ignores IPC_DRAIN and IPC_RETIRE. */
static void execute_orders(struct agent *agent)
{
	for (;;) {
		struct ipc_order order;
		int fds[IPC_FDS_MAX];
		struct pollfd p = {.fd = IPC_SOCKET_FD, .events = POLLIN};
		if (poll(&p, 1, -1) != 1 || ipc_receive(IPC_SOCKET_FD, &order, fds) < 0)
			continue;
		if (order.kind == IPC_CLIENT && fds[0] >= 0) {
			agent->client = fds[0];
			agent->client_id = order.client;
			obey(agent);
			fds[0] = -1;
			close(agent->client);
		}
		for (unsigned i = 0; i < IPC_FDS_MAX; i++)
			if (fds[i] >= 0)
				close(fds[i]);
	}
}

static void take_gifts(struct agent *agent)
{
	agent->self = getpid();
	agent->supervisor = getppid();
	agent->supervisor_pidfd = (int)syscall(SYS_pidfd_open, agent->supervisor, 0);
	agent->root_folder = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	agent->datagram = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	agent->stream = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	agent->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	(void)listen(agent->listener, 1);
	agent->memory = memfd_create("gift", MFD_CLOEXEC);
	agent->page =
		mmap(NULL, STATUS_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, IPC_PAGE_FD, 0);
}

int agent_run(uid_t uid, bool shared)
{
	const char *peer = getenv("AGENT_USER");
	if (!peer || (uid_t)atoi(peer) != uid)
		return worker_run(uid, shared);
	static struct agent agent;
	char path[32];
	struct config config;
	struct config_error error = {{0}};
	struct server *server;
	/* Same steps as in worker_run(). */
	config_init(&config);
	log_init(LOG_LEVEL_WARNING);
	log_to_supervisor();
	signal(SIGPIPE, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", IPC_CONFIG_FD);
	if (config_read(&config, path, &error) < 0)
		return EXIT_FAILURE;
	close(IPC_CONFIG_FD);
	if (sandbox_prepare(&error) < 0 || server_new(&config, uid, &server, &error) < 0)
		return EXIT_FAILURE;
	tzset();
	take_gifts(&agent);
	const struct sandbox_limits limits = worker_limits(server);
	if (sandbox_enter(&limits, &error) < 0)
		return EXIT_FAILURE;
	execute_orders(&agent);
	return EXIT_SUCCESS;
}
