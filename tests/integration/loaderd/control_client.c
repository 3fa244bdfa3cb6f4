#include "tests/integration/loaderd/control_client.h"

#include "format/base/system/clock.h"
#include "proto/client/connection.h"
#include "tests/test.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t queued_ns(const struct control_client *control)
{
	return fixture_queued_ns(control->daemon) + fixture_queued_ns(getpid());
}

static void note(struct control_client *control, uint64_t hash, uint64_t wait_ns)
{
	uint64_t n = atomic_load(&control->batches);
	unsigned phase = atomic_load(&control->phase);
	assert_true(hash != 0);
	if (n < CONTROL_HASHES)
		control->hashes[n] = hash;
	if (wait_ns > atomic_load(&control->wait_ns_max[phase]))
		atomic_store(&control->wait_ns_max[phase], wait_ns);
	if (control->period_ns != 0 && wait_ns > CONTROL_LATE_MS * UINT64_C(1000000))
		atomic_fetch_add(&control->late[phase], 1);
	atomic_fetch_add(&control->phase_batches[phase], 1);
	atomic_fetch_add(&control->batches, 1);
}

/* Measures how long a batch takes at full speed, and sets the pace accordingly. */
static void find_pace(struct control_client *control, struct feed *feed)
{
	enum { BEFORE = 20, BATCHES = 100 };
	uint64_t start_ns = 0;
	for (unsigned i = 0; i < BEFORE + BATCHES; i++) {
		if (i == BEFORE)
			start_ns = now_ns();
		note(control, fixture_hash_next(feed), 0);
	}
	control->period_ns = (now_ns() - start_ns) / BATCHES * control->share;
}

static void sleep_until(uint64_t ns)
{
	const struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static void watch(struct control_client *control)
{
	struct feed *feed = fixture_open(&control->options);
	if (control->uid != 0)
		control->daemon = fixture_worker_of(control->fixture, control->uid);
	if (control->share != 0)
		find_pace(control, feed);
	uint64_t before_ns = now_ns(), queued_before_ns = queued_ns(control);
	while (!atomic_load(&control->stop)) {
		uint64_t due_ns = before_ns + control->period_ns;
		if (control->period_ns != 0)
			sleep_until(due_ns);
		uint64_t hash = fixture_hash_next(feed);
		uint64_t now = now_ns(), queued = queued_ns(control);
		uint64_t wait_ns = now - due_ns, others_ns = queued - queued_before_ns;
		note(control, hash, wait_ns > others_ns ? wait_ns - others_ns : 0);
		before_ns =
			now > due_ns + control->period_ns || control->period_ns == 0 ? now : due_ns;
		queued_before_ns = queued;
	}
	feed_close(feed);
}

struct control_client *control_client_start(const struct fixture *fixture,
					    const struct feed_options *options)
{
	return control_client_start_as(fixture, options, 0, 0);
}

struct control_client *control_client_start_as(const struct fixture *fixture,
					       const struct feed_options *options, uid_t uid,
					       unsigned share)
{
	struct control_client *control = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE,
					      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(control != MAP_FAILED);
	control->options = *options;
	control->fixture = fixture;
	control->uid = uid;
	control->share = share;
	if (uid == 0)
		control->daemon = fixture_worker(fixture);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (uid != 0)
			fixture_become(uid);
		/* a failed assertion also ends this process, but with a nonzero status */
		watch(control);
		_exit(0);
	}
	control->pid = pid; /* only the parent may set pid: the child shares this memory */
	control_client_wait(control, share == 0 ? 10 : 150);
	return control;
}

unsigned control_client_phase(struct control_client *control)
{
	unsigned phase = atomic_fetch_add(&control->phase, 1) + 1;
	assert_true(phase < CONTROL_PHASES);
	return phase;
}

double control_client_longest_ms(struct control_client *control)
{
	control_client_wait(control, 1);
	return (double)atomic_load(&control->wait_ns_max[atomic_load(&control->phase)]) / 1e6;
}

void control_client_wait(struct control_client *control, uint64_t batches)
{
	uint64_t goal = atomic_load(&control->batches) + batches;
	uint64_t deadline_ns = now_ns() + UINT64_C(120000000000);
	while (atomic_load(&control->batches) < goal) {
		int status;
		if (waitpid(control->pid, &status, WNOHANG) == control->pid)
			fail_msg("the control client ended with status %#x", (unsigned)status);
		if (now_ns() > deadline_ns)
			fail_msg("the control client gets no batches any more");
		usleep(1000);
	}
}

void control_client_finish(struct control_client *control)
{
	int status = -1;
	atomic_store(&control->stop, true);
	assert_int_equal(waitpid(control->pid, &status, 0), control->pid);
	assert_int_equal(status, 0);
	struct feed *feed = fixture_open(&control->options);
	uint64_t count = atomic_load(&control->batches);
	if (count > CONTROL_HASHES)
		count = CONTROL_HASHES;
	for (uint64_t n = 0; n < count; n++)
		if (fixture_hash_next(feed) != control->hashes[n])
			fail_msg("batch %llu of the control client was not what it should be",
				 (unsigned long long)n);
	feed_close(feed);
	munmap(control, sizeof(*control));
}

uint64_t anonymous_kib(pid_t pid)
{
	char path[64], line[256];
	unsigned long long kib = 0;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *file = fopen(path, "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "RssAnon: %llu kB", &kib) == 1)
			break;
	fclose(file);
	return kib;
}

struct resource_counts count_resources(const struct fixture *fixture)
{
	struct connection connection = {.fd = -1};
	Loaderd__GetStatus get = LOADERD__GET_STATUS__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	Loaderd__Reply *reply = NULL;
	char error[FEED_ERROR_MAX];
	int64_t deadline_ms = clock_ms() + 60000;
	request.kind_case = LOADERD__REQUEST__KIND_GET_STATUS;
	request.get_status = &get;
	/* retry: closed connections count until the daemon has handled their hang-up */
	while (connection_open(&connection, fixture->socket, deadline_ms, error) < 0 ||
	       connection_request(&connection, &request, NULL, deadline_ms, &reply, error) < 0) {
		connection_close(&connection);
		if (clock_ms() > deadline_ms)
			fail_msg("status: %s", error);
		usleep(1000);
	}
	assert_int_equal(reply->kind_case, LOADERD__REPLY__KIND_STATUS);
	pid_t worker = (pid_t)reply->status->pid;
	struct resource_counts resource_counts = {
		.feeds = (unsigned)reply->status->n_feeds,
		.shared_bytes = reply->status->shared_bytes,
		/* always includes the fd of this connection */
		.descriptors = fixture_descriptors(worker),
		.ring_mappings = fixture_ring_mappings(worker),
		.anonymous_kib = anonymous_kib(worker),
	};
	loaderd__reply__free_unpacked(reply, NULL);
	connection_close(&connection);
	return resource_counts;
}

void wait_resources_released(const struct fixture *fixture, const struct resource_counts *before)
{
	struct resource_counts now;
	for (int i = 0; i < 6000; i++) {
		now = count_resources(fixture);
		if (now.descriptors <= before->descriptors &&
		    now.ring_mappings == before->ring_mappings && now.feeds == before->feeds &&
		    now.shared_bytes == before->shared_bytes)
			return;
		usleep(10000);
	}
	fail_msg("the daemon held %u descriptors, %u mappings, %u feeds, %llu bytes, and now %u, "
		 "%u, %u, %llu",
		 before->descriptors, before->ring_mappings, before->feeds,
		 (unsigned long long)before->shared_bytes, now.descriptors, now.ring_mappings,
		 now.feeds, (unsigned long long)now.shared_bytes);
}

int lingering_socket(int seconds)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	const struct linger linger = {1, seconds};
	const int small = 4096;
	static uint8_t bytes[1 << 20];
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, size), 0);
	while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		;
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
	return fd; /* the listener stays open and is never read */
}
