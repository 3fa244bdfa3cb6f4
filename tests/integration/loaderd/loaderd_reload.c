/*
 * SIGHUP: settings that change while feeds are served, settings that are refused, and settings that
 * require a restart. Also settings that systemd units override.
 */
#include "proto/feed.pb-c.h"
#include "tests/integration/loaderd/loaderd_fixture.h"
#include "tests/test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

static const char pipeline[] = "random_resized_crop(32) hflip(0.5)";

struct stage {
	struct fixture fixture;
	char config[PATH_MAX + 16], log[PATH_MAX + 16], dataset[PATH_MAX];
};

static int set_up(void **state)
{
	static struct stage stage;
	fixture_init(&stage.fixture);
	stage.fixture.logs_as_configured = true;
	snprintf(stage.config, sizeof(stage.config), "%s/loaderd.conf", stage.fixture.folder);
	snprintf(stage.log, sizeof(stage.log), "%s/log", stage.fixture.folder);
	strcpy(stage.dataset, fixture_dataset(&stage.fixture, "images", 100, FIXTURE_JPEG, 0));
	*state = &stage;
	return 0;
}

static int tear_down(void **state)
{
	struct stage *stage = *state;
	fixture_deinit(&stage->fixture);
	return 0;
}

static void write_config(const struct stage *stage, const char *text)
{
	FILE *file = fopen(stage->config, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

/* Starts the daemon with its log in a file. */
static void start(struct stage *stage, const char *config)
{
	write_config(stage, config);
	int own = dup(STDERR_FILENO);
	int log = open(stage->log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
	assert_true(own >= 0 && log >= 0);
	dup2(log, STDERR_FILENO);
	close(log);
	fixture_start(&stage->fixture, NULL, "--config", stage->config, NULL);
	dup2(own, STDERR_FILENO);
	close(own);
}

static const char *read_log(const struct stage *stage)
{
	static char text[65536];
	FILE *file = fopen(stage->log, "r");
	assert_non_null(file);
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	return text;
}

static void wait_for(const struct stage *stage, const char *said)
{
	for (unsigned i = 0; i < 3000; i++) {
		if (strstr(read_log(stage), said))
			return;
		if (waitpid(stage->fixture.daemon, NULL, WNOHANG) != 0)
			fail_msg("the daemon has ended");
		usleep(10000);
	}
	fail_msg("no \"%s\" in \"%s\"", said, read_log(stage));
}

/* Reloads the daemon with this configuration and waits until its log contains `said`. */
static void reload(const struct stage *stage, const char *config, const char *said)
{
	write_config(stage, config);
	assert_int_equal(truncate(stage->log, 0), 0);
	assert_int_equal(kill(stage->fixture.daemon, SIGHUP), 0);
	wait_for(stage, said);
}

/* Opens and closes a feed. Returns 0 or the error, whose text must contain `part`. */
static int open_with(const struct stage *stage, uint32_t slots, const char *part)
{
	struct feed_options options = fixture_options(&stage->fixture, stage->dataset, pipeline);
	char error[FEED_ERROR_MAX] = "";
	struct feed *feed;
	options.slots = slots;
	int r = feed_open(&options, &feed, error);
	if (r == 0)
		feed_close(feed);
	else if (!strstr(error, part))
		fail_msg("expected \"%s\", got %d and \"%s\"", part, r, error);
	return r;
}

TEST_WITH(limits_change_while_a_feed_is_served, set_up, tear_down)
{
	struct stage *stage = *state;
	start(stage, "[limits]\nslots = 4\nusers = 1\n");
	const struct feed_options options =
		fixture_options(&stage->fixture, stage->dataset, pipeline);
	struct feed *feed = fixture_open(&options);
	const pid_t worker = fixture_worker(&stage->fixture);
	assert_int_equal(open_with(stage, 6, "slots"), -EDQUOT);
	/* Takes effect at once: a worker reads orders before connections that arrive after them. */
	reload(stage, "[limits]\nslots = 8\n", "reload: done");
	assert_non_null(strstr(read_log(stage), "[limits] slots has changed; it applies at once"));
	assert_non_null(strstr(read_log(stage), "[limits] users has changed"));
	assert_int_equal(open_with(stage, 6, ""), 0);
	reload(stage, "[limits]\nslots = 8\nshared_memory = 4M\nshared_memory_per_user = 64K\n",
	       "reload: done");
	assert_int_equal(open_with(stage, 6, "shared memory"), -EDQUOT);
	reload(stage, "", "reload: done");
	assert_int_equal(open_with(stage, 12, ""), 0);
	assert_int_equal(fixture_worker(&stage->fixture), worker);
	assert_true(fixture_hash(feed, 20) != 0);
	feed_close(feed);
	assert_int_equal(fixture_stop(&stage->fixture, SIGTERM), 0);
}

TEST_WITH(invalid_file_changes_nothing, set_up, tear_down)
{
	struct stage *stage = *state;
	start(stage, "[limits]\nslots = 4\n");
	assert_int_equal(open_with(stage, 6, "slots"), -EDQUOT);
	reload(stage, "[limits]\nslots = 8\nbatch_sise = 7\n",
	       "loaderd.conf:3: [limits] batch_sise: no such key; did you mean [limits] "
	       "batch_size?; keeping the old configuration");
	assert_int_equal(open_with(stage, 6, "slots"), -EDQUOT);
	/* A value that is refused at the start is also refused here. */
	reload(stage, "[limits]\nslots = 8\n[pool]\ncpus = 3-1\n", "[pool] cpus = 3-1");
	assert_int_equal(open_with(stage, 6, "slots"), -EDQUOT);
	assert_int_equal(fixture_stop(&stage->fixture, SIGTERM), 0);
}

TEST_WITH(settings_that_need_a_restart_are_reported, set_up, tear_down)
{
	struct stage *stage = *state;
	static const char later[] =
		"[daemon]\nsocket_mode = 0600\n[pool]\nthreads = 1\n[users]\nnice = 19\n";
	start(stage, "");
	for (unsigned i = 0; i < 2; i++) {
		reload(stage, later, "reload: done");
		/* Each reload repeats the warning until the setting takes effect. */
		assert_non_null(strstr(
			read_log(stage),
			"warning: reload: [daemon] socket_mode has changed, but needs a restart"));
	}
	reload(stage, "", "reload: done");
	assert_non_null(
		strstr(read_log(stage),
		       "[pool] threads has changed; it applies to workers that start from now on"));
	assert_null(strstr(read_log(stage), "socket_mode"));
	assert_int_equal(fixture_stop(&stage->fixture, SIGTERM), 0);
}

/*
 * Starts the daemon as systemd does, with `count` copies of one listening socket at path and `name`
 * as its FileDescriptorName=.
 */
static void start_activated(struct stage *stage, const char *config, const char *path,
			    unsigned count, const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char pid[16], number[16];
	int listening = fcntl(socket(AF_UNIX, SOCK_STREAM, 0), F_DUPFD_CLOEXEC, 3 + count);
	assert_true(snprintf(address.sun_path, sizeof(address.sun_path), "%.90s", path) > 0);
	assert_int_equal(bind(listening, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(listening, 8), 0);
	int log = open(stage->log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
	snprintf(number, sizeof(number), "%u", count);
	assert_true(log >= 0);
	write_config(stage, config);
	stage->fixture.daemon = fork();
	assert_true(stage->fixture.daemon >= 0);
	if (stage->fixture.daemon == 0) {
		dup2(log, STDERR_FILENO);
		for (unsigned i = 0; i < count; i++)
			dup2(listening, 3 + (int)i);
		snprintf(pid, sizeof(pid), "%d", (int)getpid());
		setenv("LISTEN_PID", pid, 1);
		setenv("LISTEN_FDS", number, 1);
		if (name)
			setenv("LISTEN_FDNAMES", name, 1);
		execl(getenv("LOADERD"), "loaderd", "--config", stage->config, NULL);
		_exit(127);
	}
	close(log);
	close(listening);
}

TEST_WITH(settings_of_socket_units_are_reported_as_ignored, set_up, tear_down)
{
	struct stage *stage = *state;
#ifndef HAVE_SYSTEMD
	skip();
#endif
	start_activated(stage, "[daemon]\nsocket_mode = 0660\nsocket_group = vision\n",
			stage->fixture.socket, 1, NULL);
	wait_for(stage, "ready: ");
	if (!strstr(read_log(stage), "is ignored"))
		fail_msg("%s", read_log(stage));
	assert_non_null(strstr(read_log(stage), "warning: [daemon] socket_mode = 0660 is ignored"));
	assert_non_null(strstr(read_log(stage), "set SocketMode=0660 of loaderd.socket"));
	assert_non_null(strstr(read_log(stage), "[daemon] socket_group = vision is ignored"));
	assert_non_null(strstr(read_log(stage), "set SocketGroup=vision of loaderd.socket"));
	assert_null(strstr(read_log(stage), "[daemon] socket ="));
	assert_int_equal(fixture_stop(&stage->fixture, SIGTERM), 0);
	unlink(stage->fixture.socket);
}

/* The daemon serves the one socket that it receives, and creates the other. */
TEST_WITH(only_admin_socket_is_inherited, set_up, tear_down)
{
	struct stage *stage = *state;
	char config[PATH_MAX + 32];
#ifndef HAVE_SYSTEMD
	skip();
#endif
	struct fixture admin = stage->fixture;
	assert_true(snprintf(admin.socket, sizeof(admin.socket), "%.4000s.admin",
			     stage->fixture.socket) > 0);
	snprintf(config, sizeof(config), "[daemon]\nsocket = %s\n", stage->fixture.socket);
	start_activated(stage, config, admin.socket, 1, "admin");
	wait_for(stage, "ready: ");
	loaderd__reply__free_unpacked(fixture_status(&admin), NULL);
	assert_int_equal(open_with(stage, 2, ""), 0);
	assert_non_null(strstr(read_log(stage), "warning: systemd passed only the administrator's "
						"socket"));
	assert_int_equal(fixture_stop(&stage->fixture, SIGTERM), 0);
	assert_int_equal(access(stage->fixture.socket, F_OK), -1);
	unlink(admin.socket);
}

TEST_WITH(too_many_sockets_are_an_error, set_up, tear_down)
{
	struct stage *stage = *state;
	int status;
#ifndef HAVE_SYSTEMD
	skip();
#endif
	start_activated(stage, "", stage->fixture.socket, 17, NULL);
	assert_int_equal(waitpid(stage->fixture.daemon, &status, 0), stage->fixture.daemon);
	stage->fixture.daemon = 0;
	assert_int_equal(status, 1 << 8);
	assert_non_null(strstr(read_log(stage), "error: systemd passed more than 16 sockets"));
	unlink(stage->fixture.socket);
	start_activated(stage, "", stage->fixture.socket, 2, "admin:admin");
	assert_int_equal(waitpid(stage->fixture.daemon, &status, 0), stage->fixture.daemon);
	stage->fixture.daemon = 0;
	assert_int_equal(status, 1 << 8);
	assert_non_null(strstr(read_log(stage), "error: systemd passed more than one socket named "
						"admin"));
	unlink(stage->fixture.socket);
}

TEST_WITH(the_log_level_changes, set_up, tear_down)
{
	struct stage *stage = *state;
	start(stage, "");
	reload(stage, "[daemon]\nlog_level = error\n", "reload: done");
	reload(stage, "[daemon]\nlog_level = error\nnonsense = 1\n", "nonsense");
	assert_int_equal(fixture_stop(&stage->fixture, SIGTERM), 0);
	assert_null(strstr(read_log(stage), "stopping"));
}
