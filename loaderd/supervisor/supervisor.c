#include "loaderd/supervisor/supervisor.h"

#include "format/base/system/clock.h"
#include "format/base/system/memory.h"
#include "loaderd/cpus.h"
#include "loaderd/log.h"
#include "loaderd/notify.h"
#include "loaderd/supervisor/admin.h"
#include "loaderd/supervisor/blocking_pool.h"
#include "loaderd/supervisor/rate_limit.h"
#include "loaderd/supervisor/startup_checks.h"
#include "loaderd/supervisor/worker_manager.h"
#include "proto/overflow_uid.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/param.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	ACCEPTS_PER_TURN = 16,
	/*
	 * refusals per turn, of users over their rate limit; each is cheap, so as many as the
	 * listen queue holds
	 */
	REFUSALS_PER_TURN = 128,
	/*
	 * After a batch of refusals, stop accepting for this many times the CPU time that it took,
	 * so that a flood waits in the listen queue. No longer, because other users wait there,
	 * too.
	 */
	REFUSALS_REST = 2,
	ACCEPT_AGAIN_MS = 100, /* pause when out of fds */
	ACCEPT_SHORT_MS = 10,  /* pause when short of fds: those being closed are soon free */
	/*
	 * Send buffer of a connection, in bytes. The kernel splits writes into chunks of up to half
	 * of it, and stores a chunk that exceeds a page together with its header in separate pages;
	 * chunks of 3584 bytes do not.
	 */
	SEND_BUFFER = 7168,
	END_MS = 2000, /* time for workers to exit after the grace period or SIGKILL */
	/* parent-death signal: sent when the thread that started a private daemon exits */
	PARENT_SIGNAL = SIGUSR1,
};
#define MS_NS UINT64_C(1000000)

enum phase { RUNNING, DRAINING, KILLING, DONE };

enum accept_state {
	ACCEPT_RUNNING, /* the listening sockets are in epoll */
	ACCEPT_PAUSED,  /* until accept_again_ns */
	ACCEPT_STOPPED, /* for good */
};

struct listener {
	struct event_source source;
	struct supervisor *supervisor;
	bool admin;
};

struct supervisor {
	const struct supervisor_options *options;
	struct config config;  /* the current one */
	uint64_t usual_memory; /* default limit of all rings, and of a user's cgroup, in bytes */
	struct worker_manager manager;
	struct blocking_pool *blocking_pool;
	int epoll_fd;
	struct event_source signals, lifeline;
	struct listener listeners[SUPERVISOR_LISTENERS_MAX + 1];
	unsigned listener_count;
	enum accept_state accept_state;
	uint64_t accept_again_ns; /* ACCEPT_PAUSED: when to go on */
	struct rate_limit rate_limit;
	enum phase phase;
	uint64_t deadline_ns; /* when the phase must end */
	uint64_t watchdog_ns, watchdog_next_ns;
	uid_t overflow_uid;
	int parent;
};

static void leave_listeners(struct supervisor *supervisor, enum accept_state state)
{
	supervisor->accept_state = state;
	for (unsigned i = 0; i < supervisor->listener_count; i++)
		event_source_remove(supervisor->epoll_fd, &supervisor->listeners[i].source);
}

static void pause_accepting(struct supervisor *supervisor, uint64_t for_ns)
{
	leave_listeners(supervisor, ACCEPT_PAUSED);
	supervisor->accept_again_ns = clock_ns(CLOCK_MONOTONIC) + for_ns;
}

static int start_accepting(struct supervisor *supervisor)
{
	supervisor->accept_state = ACCEPT_RUNNING;
	for (unsigned i = 0; i < supervisor->listener_count; i++) {
		int r = event_source_add(supervisor->epoll_fd, &supervisor->listeners[i].source,
					 EPOLLIN);
		if (r < 0)
			return r;
	}
	return 0;
}

static void supervisor_enter(struct supervisor *supervisor, enum phase phase, uint64_t within_ms)
{
	supervisor->phase = phase;
	supervisor->deadline_ns = clock_ns(CLOCK_MONOTONIC) + within_ms * MS_NS;
}

static void end_now(struct supervisor *supervisor)
{
	if (supervisor->phase >= KILLING)
		return;
	leave_listeners(supervisor, ACCEPT_STOPPED);
	manager_kill_all(&supervisor->manager);
	supervisor_enter(supervisor, KILLING, END_MS);
}

static void supervisor_begin_drain(void *user)
{
	struct supervisor *supervisor = user;
	if (supervisor->phase != RUNNING) {
		log_info("received a second stop request: stopping now");
		end_now(supervisor);
		return;
	}
	notify_say("STOPPING=1");
	log_info("stopping");
	/*
	 * Keep accepting while draining, so that clients can query the status and are told why they
	 * get no feed. With socket activation they wait for the next daemon instead.
	 */
	if (supervisor->options->activated)
		leave_listeners(supervisor, ACCEPT_STOPPED);
	manager_drain(&supervisor->manager);
	supervisor_enter(supervisor, DRAINING, supervisor->config.grace_ms + END_MS);
}

static void supervisor_reload(struct supervisor *supervisor);

static void supervisor_on_signal(struct event_source *source, uint32_t events)
{
	struct supervisor *supervisor = CONTAINER_OF(supervisor, signals, source);
	struct signalfd_siginfo info;
	while (read(source->fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGHUP) {
			supervisor_reload(supervisor);
		} else if (info.ssi_signo != PARENT_SIGNAL) {
			supervisor_begin_drain(supervisor);
		} else if (supervisor->parent != 0 && getppid() != supervisor->parent) {
			/*
			 * The signal also arrives when only the thread that started us has exited;
			 * the process is then still our parent.
			 */
			log_info("the parent process has exited: stopping");
			end_now(supervisor);
		}
	}
}

static void on_lifeline(struct event_source *source, uint32_t events)
{
	struct supervisor *supervisor = CONTAINER_OF(supervisor, lifeline, source);
	char byte;
	ssize_t n = read(source->fd, &byte, 1);
	if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
		return;
	/* Stop watching it: at EOF the fd stays readable. */
	event_source_remove(supervisor->epoll_fd, source);
	log_info("the client that started this daemon is gone: stopping");
	end_now(supervisor);
}

/*
 * Gets the peer's credentials, as seen in this user namespace. Returns false if the uid is the
 * overflow uid, which all unmapped users share.
 */
static bool supervisor_identify(const struct supervisor *supervisor, int fd, struct ucred *ret_peer)
{
	socklen_t size = sizeof(*ret_peer);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret_peer, &size) < 0)
		return false;
	return ret_peer->uid != supervisor->overflow_uid && ret_peer->uid != (uid_t)-1;
}

/*
 * Shrinks the send buffer. Unread replies use the service's memory: about 10 KiB with this buffer,
 * over 200 KiB by default. Replies never get separate pages, which a client could keep in pipes
 * (splice()) after it has read everything.
 */
static void limit_unread(int fd)
{
	const int size = SEND_BUFFER / 2; /* the kernel doubles it, see socket(7) */
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}

/*
 * Handles an accepted connection and takes over fd. Returns false if its user is over the rate
 * limit.
 */
static bool supervisor_receive(struct supervisor *supervisor, const struct listener *listener,
			       int fd)
{
	struct ucred peer;
	if (!supervisor_identify(supervisor, fd, &peer)) {
		manager_reject(&supervisor->manager, supervisor->overflow_uid, fd, EPERM,
			       "this client's uid is not mapped in the daemon's user namespace, so "
			       "it cannot be told from others; map it, or run a private daemon");
		return rate_limit_take(&supervisor->rate_limit, supervisor->overflow_uid,
				       clock_ns(CLOCK_MONOTONIC));
	}
	if (listener->admin && (peer.uid == 0 || peer.uid == geteuid())) {
		(void)admin_open(&supervisor->manager, fd, supervisor_begin_drain, supervisor);
		return true;
	}
	/* A private daemon has no other user to protect. */
	if (!supervisor->options->private_only &&
	    !rate_limit_take(&supervisor->rate_limit, peer.uid, clock_ns(CLOCK_MONOTONIC))) {
		manager_reject(&supervisor->manager, peer.uid, fd, EDQUOT,
			       "this user connects too often (the limit is %d connections at once, "
			       "then %d per second); try again, and keep connections open",
			       CONNECTS_AT_ONCE, CONNECTS_PER_SECOND);
		return false;
	}
	if (listener->admin || (supervisor->options->private_only && peer.uid != geteuid())) {
		manager_reject(&supervisor->manager, peer.uid, fd, EPERM,
			       "this socket belongs to another user");
	} else {
		limit_unread(fd);
		manager_add_connection(&supervisor->manager, peer.uid, peer.pid, fd);
	}
	return true;
}

static void accept_failed(struct supervisor *supervisor, int error)
{
	if (error != EMFILE && error != ENFILE && error != ENOBUFS && error != ENOMEM)
		return;
	/* Pause: level-triggered epoll would spin. */
	log_warning("accepting no connections for %d ms: %s", ACCEPT_AGAIN_MS, strerror(error));
	pause_accepting(supervisor, ACCEPT_AGAIN_MS * MS_NS);
}

static void on_connection(struct event_source *source, uint32_t events)
{
	struct listener *listener = (struct listener *)source;
	struct supervisor *supervisor = listener->supervisor;
	const uint64_t start_ns =
		clock_ns(CLOCK_PROCESS_CPUTIME_ID); /* includes the closing threads' CPU time */
	unsigned taken = 0, refused = 0;
	while (taken < ACCEPTS_PER_TURN && refused < REFUSALS_PER_TURN &&
	       supervisor->accept_state == ACCEPT_RUNNING) {
		int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0) {
			accept_failed(supervisor, errno);
			break;
		}
		if (manager_is_short_of_fds(&supervisor->manager, fd))
			pause_accepting(supervisor, ACCEPT_SHORT_MS * MS_NS);
		if (supervisor_receive(supervisor, listener, fd))
			taken++;
		else
			refused++;
	}
	/* While refusals are few, other users are served without a pause. */
	if (supervisor->accept_state == ACCEPT_RUNNING && refused > taken)
		pause_accepting(supervisor,
				REFUSALS_REST * (clock_ns(CLOCK_PROCESS_CPUTIME_ID) - start_ns));
}

static int new_signal_fd(bool reloads)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, PARENT_SIGNAL);
	if (reloads)
		sigaddset(&set, SIGHUP);
	int r = -pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (r < 0)
		return r;
	int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

/*
 * Disables SCM_RIGHTS on accepted connections until their worker enables it, so that clients cannot
 * queue fds unasked. SO_PASSRIGHTS, Linux 6.16; accepted sockets inherit it from the listening one.
 * Returns false if the kernel lacks it.
 */
static bool refuse_descriptors(int listen_fd)
{
	enum { PASS_RIGHTS = 83 };
	const int no = 0;
	return setsockopt(listen_fd, SOL_SOCKET, PASS_RIGHTS, &no, sizeof(no)) == 0;
}

static void add_listener(struct supervisor *supervisor, int fd, bool admin)
{
	if (fd < 0 || supervisor->listener_count > SUPERVISOR_LISTENERS_MAX)
		return;
	if (!refuse_descriptors(fd))
		supervisor->manager.clients_may_pass_fds = true;
	supervisor->listeners[supervisor->listener_count++] = (struct listener){
		.source = {fd, on_connection}, .supervisor = supervisor, .admin = admin};
}

static int supervisor_watch_all(struct supervisor *supervisor)
{
	const struct supervisor_options *options = supervisor->options;
	int signal_fd = new_signal_fd(options->read_config != NULL);
	if (signal_fd < 0)
		return signal_fd;
	supervisor->signals = (struct event_source){signal_fd, supervisor_on_signal};
	supervisor->lifeline = (struct event_source){options->lifeline_fd, on_lifeline};
	for (unsigned i = 0; i < options->listen_count; i++)
		add_listener(supervisor, options->listen_fds[i], false);
	add_listener(supervisor, options->admin_fd, true);
	int r = event_source_add(supervisor->epoll_fd, &supervisor->signals, EPOLLIN);
	if (r < 0)
		return r;
	if (options->lifeline_fd >= 0) {
		r = event_source_add(supervisor->epoll_fd, &supervisor->lifeline, EPOLLIN);
		if (r < 0)
			return r;
	}
	return start_accepting(supervisor);
}

/*
 * Checks that workers can get their nice values: lowering the value needs a privilege or
 * RLIMIT_NICE. Reports at startup what would otherwise fail when a user connects. Tries it on this
 * thread and restores the value.
 */
static int check_nice(const struct config *config, struct config_error *error)
{
	const struct config_nice *nice = &config->nice;
	const int own = getpriority(PRIO_PROCESS, 0);
	int least = nice->given ? nice->default_nice : own;
	char whose[16] = "";
	for (unsigned i = 0; i < nice->named; i++) {
		if (nice->users[i].nice >= least)
			continue;
		least = nice->users[i].nice;
		snprintf(whose, sizeof(whose), "%u:", (unsigned)nice->users[i].uid);
	}
	if (least >= own)
		return 0;
	if (setpriority(PRIO_PROCESS, 0, least) == 0 && setpriority(PRIO_PROCESS, 0, own) == 0)
		return 0;
	int r = -errno;
	return config_fail(error, r,
			   "[users] nice = %s%d: this is below the daemon's own nice value, %d, "
			   "but the system refuses it: %s; allow it with LimitNICE=%d in the "
			   "service's unit, or raise the other values",
			   whose, least, own, strerror(-r), least);
}

enum {
	/* threads of the supervisor, and of a worker outside its pool, at start */
	OTHER_THREADS = 13,
	/* maximum threads of a worker besides its pool and read-ahead threads */
	JOB_THREADS = 128,
	WORKERS_AT_ONCE = 2, /* one that serves, and one that is exiting */
};

static uint64_t threads_per_pool(const struct config *config, const struct cpus *cpus)
{
	return config->threads != 0 ? config->threads : cpus->quota;
}

/* Checks that the cgroup controllers for the configured limits exist. */
static int check_limits_held(const struct config *config, const struct user_cgroups *cgroups,
			     const char *why, struct config_error *error)
{
	const bool memory = config->memory != 0 && !cgroups->memory;
	if (!memory && (config->user_threads == 0 || cgroups->threads))
		return 0;
	return config_fail(error, -EINVAL,
			   "[users] %s: needs a cgroup v2 with the controller %s ([users] "
			   "control_group, loaderd.conf(5))%s%.300s",
			   memory ? "memory" : "threads", memory ? "memory" : "pids",
			   why[0] != '\0' ? ": " : "", why);
}

static struct user_cgroup_limits groups_limits_of(const struct supervisor *supervisor,
						  const struct config *config,
						  const struct cpus *cpus)
{
	/* as server_threads_max() */
	const uint64_t most = 2 * (threads_per_pool(config, cpus) + config->feeds_per_user);
	return (struct user_cgroup_limits){
		.memory = config->memory != 0 ? config->memory : supervisor->usual_memory,
		.threads = config->user_threads != 0 ? config->user_threads
						     : WORKERS_AT_ONCE * (most + JOB_THREADS),
	};
}

/* Opens the parent cgroup and logs what the cgroups enforce. */
static int supervisor_open_groups(struct supervisor *supervisor, const struct cpus *cpus,
				  struct config_error *error)
{
	const struct config *config = &supervisor->config;
	struct user_cgroups *cgroups = &supervisor->manager.cgroups;
	const bool is_auto = strcmp(config->control_group, "auto") == 0;
	const struct user_cgroup_limits limits = groups_limits_of(supervisor, config, cpus);
	struct config_error why = {{0}};
	/* A private daemon has one user and needs no isolation between users. */
	const bool none = is_auto && supervisor->options->private_only;
	int r = user_cgroups_open(cgroups, none ? "" : config->control_group, &limits, &why);
	if (r < 0)
		return config_fail(error, r, "%s", why.text);
	r = check_limits_held(config, cgroups, why.text, error);
	if (r < 0)
		return r;
	if (!cgroups->weights) {
		r = check_nice(config, error);
		if (r < 0)
			return r;
	}
	if (supervisor->options->private_only)
		return 0;
	if (!user_cgroups_enabled(cgroups))
		log_info("[users] control_group = %s: users get no control groups%s%s",
			 config->control_group, why.text[0] != '\0' ? ": " : "", why.text);
	else
		log_info("control groups for users:%s%s%s%s", cgroups->weights ? " weights" : "",
			 cgroups->memory ? " memory" : "", cgroups->threads ? " threads" : "",
			 cgroups->own ? ", in the service's own group" : "");
	return 0;
}

/* Checks RLIMIT_NOFILE. Call it when all long-lived fds are open. */
static int check_descriptors(const struct supervisor *supervisor, struct config_error *error)
{
	unsigned least;
	int newest = fcntl(supervisor->epoll_fd, F_DUPFD_CLOEXEC, 0);
	if (newest >= 0)
		close(newest);
	const unsigned most = supervisor->manager.fds_max;
	if (newest < 0)
		newest = (int)most;
	if (manager_has_fds(&supervisor->manager, newest, &least))
		return 0;
	return config_fail(error, -EMFILE,
			   "RLIMIT_NOFILE is %u (ulimit -n, LimitNOFILE=): to serve one user the "
			   "daemon needs at least %u descriptors; raise it, ideally to 65536",
			   most, least);
}

static int start_blocking_pool(struct supervisor *supervisor, struct config_error *error)
{
	int r = supervisor->epoll_fd < 0 ? -errno : blocking_pool_new(&supervisor->blocking_pool);
	if (r == -EAGAIN)
		return config_fail(
			error, r,
			"cannot start threads: %s: RLIMIT_NPROC (ulimit -u, LimitNPROC=), "
			"RLIMIT_AS or RLIMIT_DATA (ulimit -v, -d), TasksMax= or sysctl "
			"kernel.threads-max is too small for the threads that run already",
			strerror(-r));
	return r;
}

static uint64_t ring_memory(const struct supervisor *supervisor, const struct config *config)
{
	return config->shared_memory != 0 ? config->shared_memory : supervisor->usual_memory;
}

/* Checks at startup what each worker would otherwise report. */
static int supervisor_check(const struct supervisor *supervisor, const struct config *config,
			    struct cpus *ret_cpus, struct config_error *error)
{
	int r = config_cpus(config, ret_cpus, error);
	if (r < 0)
		return r;
	return startup_check(2 * threads_per_pool(config, ret_cpus) + OTHER_THREADS,
			     config->shared_memory_per_user != 0
				     ? config->shared_memory_per_user
				     : ring_memory(supervisor, config) / 2,
			     supervisor->options->private_only, error);
}

static int supervisor_prepare(struct supervisor *supervisor, struct config_error *error)
{
	struct cpus cpus;
	int r = supervisor_check(supervisor, &supervisor->config, &cpus, error);
	if (r < 0)
		return r;
	r = start_blocking_pool(supervisor, error);
	if (r < 0)
		return r;
	r = manager_init(&supervisor->manager, &supervisor->config, supervisor->blocking_pool,
			 supervisor->epoll_fd, ring_memory(supervisor, &supervisor->config),
			 supervisor->options->private_only);
	return r < 0 ? r : supervisor_open_groups(supervisor, &cpus, error);
}

/* Checks a new configuration as at startup. */
static int check_reload(const struct supervisor *supervisor, const struct config *config,
			struct cpus *ret_cpus, struct config_error *error)
{
	const struct user_cgroups *cgroups = &supervisor->manager.cgroups;
	int r = supervisor_check(supervisor, config, ret_cpus, error);
	if (r < 0)
		return r;
	r = check_limits_held(config, cgroups, "", error);
	return r < 0 || cgroups->weights ? r : check_nice(config, error);
}

static void log_change(void *context, const struct config_change *change)
{
	const struct supervisor *supervisor = context;
	/* Without cpu.weight, a worker sets its nice value when it starts. */
	const bool is_late = !change->is_number && !supervisor->manager.cgroups.weights;
	if (change->takes == CONFIG_TAKES_RESTART)
		log_warning("reload: [%s] %s has changed, but needs a restart of the daemon; until "
			    "then the old value applies",
			    change->section, change->name);
	else
		log_info("reload: [%s] %s has changed; it applies %s", change->section,
			 change->name,
			 change->takes == CONFIG_TAKES_WORKER || is_late
				 ? "to workers that start from now on"
				 : "at once");
}

static int reload(struct supervisor *supervisor, struct config_error *error)
{
	const struct supervisor_options *options = supervisor->options;
	struct config next;
	struct cpus cpus;
	int r = options->read_config(options->read_context, &next, error);
	if (r < 0)
		return r;
	struct config wanted = next;
	config_keep_restart_keys(&next, &supervisor->config);
	r = check_reload(supervisor, &next, &cpus, error);
	if (r < 0)
		return r;
	r = manager_reload(&supervisor->manager, &next, ring_memory(supervisor, &next));
	if (r < 0)
		return r;
	supervisor->manager.cgroups.limits = groups_limits_of(supervisor, &next, &cpus);
	/* Log the changes at the more verbose of the old and the new level. */
	if (next.log_level > supervisor->config.log_level)
		log_set_level((enum log_level)next.log_level);
	config_compare(&supervisor->config, &wanted, log_change, supervisor);
	log_info("reload: done");
	log_set_level((enum log_level)next.log_level);
	supervisor->config = next;
	return 0;
}

/*
 * Announces a reload, for Type=notify-reload (systemd.service(5)); with Type=notify, systemd shows
 * the same state.
 */
static void notify_reloading(void)
{
	char text[64];
	snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%llu",
		 (unsigned long long)clock_ns(CLOCK_MONOTONIC) / 1000);
	notify_say(text);
}

static void supervisor_reload(struct supervisor *supervisor)
{
	struct config_error error = {{0}};
	if (supervisor->phase != RUNNING) {
		log_info("ignoring a reload request while stopping");
		return;
	}
	notify_reloading();
	int r = reload(supervisor, &error);
	if (r < 0)
		log_error("reload: %s; keeping the old configuration",
			  error.text[0] != '\0' ? error.text : strerror(-r));
	notify_say("READY=1");
}

static int supervisor_init(struct supervisor *supervisor, const struct supervisor_options *options,
			   struct config_error *error)
{
	*supervisor = (struct supervisor){
		.options = options,
		.config = *options->config,
		.usual_memory = memory_available() / 2,
		.manager = {.config_fd = -1, .cgroups.fd = -1},
		.epoll_fd = epoll_create1(EPOLL_CLOEXEC),
		.signals.fd = -1,
		.overflow_uid = overflow_uid(),
	};
	/* Workers run as the same user and must not be able to trace this process. */
	prctl(PR_SET_DUMPABLE, 0);
	int r = supervisor_prepare(supervisor, error);
	if (r < 0)
		return r;
	r = supervisor_watch_all(supervisor);
	if (r < 0)
		return r;
	r = check_descriptors(supervisor, error);
	if (r < 0)
		return r;
	if (options->private_only) {
		r = manager_prestart(&supervisor->manager, geteuid());
		if (r < 0)
			return r;
	}
	if (options->lifeline_fd >= 0) {
		supervisor->parent = getppid();
		prctl(PR_SET_PDEATHSIG, PARENT_SIGNAL);
	}
	supervisor->watchdog_ns = notify_watchdog_ns() / 2;
	log_info("ready: at most %llu MiB of shared memory",
		 (unsigned long long)(supervisor->manager.ring_quota.bytes_max >> 20));
	return 0;
}

static void supervisor_deinit(struct supervisor *supervisor)
{
	for (unsigned i = 0; i < supervisor->listener_count; i++)
		close(supervisor->listeners[i].source.fd);
	manager_deinit(&supervisor->manager);
	blocking_pool_free(supervisor->blocking_pool);
	if (supervisor->signals.fd >= 0)
		close(supervisor->signals.fd);
	if (supervisor->epoll_fd >= 0)
		close(supervisor->epoll_fd);
}

static uint64_t supervisor_due_ns(const struct supervisor *supervisor)
{
	uint64_t next_ns = manager_due_ns(&supervisor->manager);
	if (supervisor->watchdog_ns != 0)
		next_ns = MIN(next_ns, supervisor->watchdog_next_ns);
	if (supervisor->phase != RUNNING)
		next_ns = MIN(next_ns, supervisor->deadline_ns);
	if (supervisor->accept_state == ACCEPT_PAUSED)
		next_ns = MIN(next_ns, supervisor->accept_again_ns);
	return next_ns;
}

static void supervisor_advance(struct supervisor *supervisor, uint64_t now_ns)
{
	if (supervisor->phase == RUNNING)
		return;
	if (supervisor->manager.worker_count == 0) {
		supervisor->phase = DONE;
	} else if (now_ns >= supervisor->deadline_ns) {
		/* A worker that survives SIGKILL hangs in storage and exits when that responds. */
		if (supervisor->phase == KILLING)
			supervisor->phase = DONE;
		else
			end_now(supervisor);
	}
}

static void supervisor_on_time(struct supervisor *supervisor, uint64_t now_ns)
{
	if (supervisor->watchdog_ns != 0 && now_ns >= supervisor->watchdog_next_ns) {
		notify_say("WATCHDOG=1");
		supervisor->watchdog_next_ns = now_ns + supervisor->watchdog_ns;
	}
	if (supervisor->accept_state == ACCEPT_PAUSED && now_ns >= supervisor->accept_again_ns &&
	    start_accepting(supervisor) < 0)
		pause_accepting(supervisor, ACCEPT_AGAIN_MS * MS_NS);
	manager_on_time(&supervisor->manager, now_ns);
	supervisor_advance(supervisor, now_ns);
}

/* Returns when the daemon has stopped, or -errno if it cannot go on. */
static int supervisor_loop(struct supervisor *supervisor)
{
	while (supervisor->phase != DONE) {
		int r = event_loop_run_once(supervisor->epoll_fd, supervisor_due_ns(supervisor));
		if (r < 0)
			return r;
		supervisor_on_time(supervisor, clock_ns(CLOCK_MONOTONIC));
	}
	return 0;
}

int supervisor_run(const struct supervisor_options *options, struct config_error *error)
{
	static struct supervisor supervisor;
	int r = supervisor_init(&supervisor, options, error);
	if (r == 0) {
		notify_say("READY=1");
		r = supervisor_loop(&supervisor);
		log_info("stopped");
	}
	if (r < 0 && error->text[0] == '\0')
		config_say(error, "the daemon cannot continue: %s", strerror(-r));
	supervisor_deinit(&supervisor);
	return r;
}
