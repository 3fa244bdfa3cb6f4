#include "tests/integration/loaderd/loaderd_fixture.h"

#include "format/base/system/clock.h"
#include "tests/dataset.h"
#include "tests/integration/loaderd/daemon_log.h"

#include "proto/client/connection.h"

#include "format/layout.h"
#include "format/packimg.h"
#include "proto/framing.h"
#include "proto/ring.h"
#include "tests/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <xxhash.h>

void fixture_init(struct fixture *fixture)
{
	*fixture = (struct fixture){0};
	const char *tmp = getenv("TMPDIR");
	/* The path must be short: a socket's path is limited to 108 bytes. */
	snprintf(fixture->folder, sizeof(fixture->folder), "%s/loaderd-test-XXXXXX",
		 tmp && strlen(tmp) < 60 ? tmp : "/tmp");
	assert_non_null(mkdtemp(fixture->folder));
	snprintf(fixture->socket, sizeof(fixture->socket), "%.4000s/socket", fixture->folder);
}

static int remove_one(const char *path, const struct stat *status, int flag, struct FTW *walk)
{
	return remove(path);
}

void fixture_deinit(struct fixture *fixture)
{
	if (fixture->daemon > 0)
		fixture_stop(fixture, SIGKILL);
	nftw(fixture->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Draws edges, gradients and noise, different for every index. */
static void draw(uint8_t *pixels, uint32_t width, uint32_t height, uint64_t index)
{
	uint32_t state = (uint32_t)index * 2654435761U + 1;
	for (uint32_t y = 0; y < height; y++) {
		for (uint32_t x = 0; x < width; x++) {
			uint8_t *p = pixels + ((size_t)y * width + x) * 3;
			state = state * 1664525 + 1013904223;
			p[0] = (uint8_t)(x * 3 + index * 7);
			p[1] = (uint8_t)(((x / 8 + y / 8) & 1) * 160 + (state >> 28));
			p[2] = (uint8_t)(y * 2 + index);
		}
	}
}

static void add(struct test_dataset *data, uint64_t index, enum fixture_kind kind, uint32_t side)
{
	uint32_t width = kind == FIXTURE_RAW ? side : 40 + (uint32_t)(index * 13 % 81);
	uint32_t height = kind == FIXTURE_RAW ? side : 40 + (uint32_t)(index * 29 % 81);
	uint8_t *pixels = malloc((size_t)width * height * 3);
	char source[32];
	draw(pixels, width, height, index);
	snprintf(source, sizeof(source), "image-%llu", (unsigned long long)index);
	struct packimg_item item = test_item(pixels, width, height);
	item.label = (int32_t)(index % 10);
	item.source = source;
	item.source_size = strlen(source);
	if (kind == FIXTURE_JPEG)
		test_item_to_jpeg(data, &item, 90);
	test_dataset_add(data, &item);
	free(pixels);
}

static void add_fields(struct packimg_writer *writer, const uint32_t fields[3], uint64_t index)
{
	char word[64];
	snprintf(word, sizeof(word), "sample %llu", (unsigned long long)index);
	struct packimg_value number = {.present = true, .int64 = (int64_t)index};
	struct packimg_value half = {.present = true, .float64 = (double)index / 2};
	struct packimg_value text = {.present = true, .bytes = word, .size = strlen(word)};
	assert_int_equal(packimg_writer_value(writer, fields[0], &number, NULL), 0);
	if (index % 3 != 0)
		assert_int_equal(packimg_writer_value(writer, fields[1], &half, NULL), 0);
	assert_int_equal(packimg_writer_value(writer, fields[2], &text, NULL), 0);
}

const char *fixture_dataset(struct fixture *fixture, const char *name, uint64_t count,
			    enum fixture_kind kind, uint32_t side)
{
	static const char *const classes[FIXTURE_CLASSES] = {
		"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"};
	return fixture_dataset_of(fixture, name, count, kind, side, classes);
}

const char *fixture_dataset_of(struct fixture *fixture, const char *name, uint64_t count,
			       enum fixture_kind kind, uint32_t side, const char *const *classes)
{
	static char path[PATH_MAX + 64];
	struct packimg_error error = {{0}};
	struct test_dataset data;
	uint32_t fields[3];
	snprintf(path, sizeof(path), "%s/%s.pimg", fixture->folder, name);
	test_dataset_begin(&data, path, 0);
	assert_int_equal(packimg_writer_field(data.writer, "number", PACKIMG_FIELD_INT64,
					      &fields[0], &error),
			 0);
	assert_int_equal(packimg_writer_field(data.writer, "half", PACKIMG_FIELD_FLOAT64,
					      &fields[1], &error),
			 0);
	assert_int_equal(
		packimg_writer_field(data.writer, "word", PACKIMG_FIELD_BYTES, &fields[2], &error),
		0);
	for (uint64_t i = 0; i < count; i++) {
		add(&data, i, kind, side);
		add_fields(data.writer, fields, i);
	}
	assert_int_equal(packimg_writer_classes(data.writer, classes, FIXTURE_CLASSES, &error), 0);
	test_dataset_finish(&data);
	return path;
}

static bool answers(const struct fixture *fixture)
{
	struct connection connection = {.fd = -1};
	Loaderd__GetStatus get = LOADERD__GET_STATUS__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	Loaderd__Reply *reply = NULL;
	int64_t deadline_ms = clock_ms() + 60000;
	request.kind_case = LOADERD__REQUEST__KIND_GET_STATUS;
	request.get_status = &get;
	if (connection_open(&connection, fixture->socket, deadline_ms, NULL) < 0)
		return false;
	int r = connection_request(&connection, &request, NULL, deadline_ms, &reply, NULL);
	if (r == 0)
		loaderd__reply__free_unpacked(reply, NULL);
	connection_close(&connection);
	return r == 0;
}

static void wait_until_it_answers(const struct fixture *fixture)
{
	for (unsigned i = 0; i < 6000; i++) {
		int status;
		if (answers(fixture))
			return;
		if (waitpid(fixture->daemon, &status, WNOHANG) == fixture->daemon)
			fail_msg("the daemon ended at once with status %#x", (unsigned)status);
		usleep(10000);
	}
	fail_msg("the daemon does not answer");
}

void fixture_become(uid_t uid)
{
	if (setgroups(0, NULL) < 0 || setgid(uid) < 0 || setuid(uid) < 0)
		_exit(126);
	/* A change of user clears PR_SET_PDEATHSIG. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static bool enter_group(const char *procs)
{
	int fd = open(procs, O_WRONLY | O_CLOEXEC);
	bool entered = fd >= 0 && write(fd, "0\n", 2) == 2;
	if (fd >= 0)
		close(fd);
	return entered;
}

/* Opens the program before the change of user, who may lack access to its directory. */
static void execute(const struct fixture *fixture, const char *const *arguments)
{
	const struct rlimit descriptors = {fixture->descriptors, fixture->descriptors};
	const struct rlimit file_bytes = {fixture->file_bytes, fixture->file_bytes};
	const struct rlimit processes = {fixture->processes, fixture->processes};
	int program = open(arguments[0], O_RDONLY | O_CLOEXEC);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (fixture->descriptors != 0 && setrlimit(RLIMIT_NOFILE, &descriptors) < 0)
		_exit(126);
	if (fixture->file_bytes != 0 && setrlimit(RLIMIT_FSIZE, &file_bytes) < 0)
		_exit(126);
	if (fixture->group && !enter_group(fixture->group))
		_exit(126);
	if (fixture->uid != 0)
		fixture_become(fixture->uid);
	if (fixture->processes != 0 && setrlimit(RLIMIT_NPROC, &processes) < 0)
		_exit(126);
	fexecve(program, (char **)arguments, environ);
	_exit(127);
}

void fixture_start(struct fixture *fixture, const char *environment, ...)
{
	const char *binary = getenv("LOADERD");
	const char *arguments[32] = {binary,          "--config",    "/dev/null", "--socket",
				     fixture->socket, "--log-level", "warning"};
	unsigned count = fixture->logs_as_configured ? 5 : 7;
	const char *io = getenv("LOADERD_TEST_IO");
	if (io) {
		/* With little room for read-ahead, a short test fills it many times. */
		static const char *const settings[] = {"--set", "io.readahead_bytes=1M", "--set",
						       "io.queue_depth=8"};
		arguments[count++] = "--io";
		arguments[count++] = io;
		for (unsigned i = 0; i < 4; i++)
			arguments[count++] = settings[i];
	}
	va_list list;
	assert_non_null(binary);
	if (fixture->daemon > 0) /* left by an earlier test that failed */
		fixture_stop(fixture, SIGKILL);
	va_start(list, environment);
	while (count < 31 && (arguments[count] = va_arg(list, const char *)))
		count++;
	va_end(list);
	fixture->log = daemon_log_new();
	fixture->daemon = fork();
	assert_true(fixture->daemon >= 0);
	if (fixture->daemon == 0) {
		daemon_log_use(fixture->log);
		if (environment)
			putenv((char *)environment);
		execute(fixture, arguments);
	}
	wait_until_it_answers(fixture);
}

pid_t fixture_worker(const struct fixture *fixture)
{
	Loaderd__Reply *reply = fixture_status(fixture);
	pid_t pid = (pid_t)reply->status->pid;
	loaderd__reply__free_unpacked(reply, NULL);
	return pid;
}

static bool is_worker(pid_t pid, uid_t uid)
{
	char path[64], arguments[64] = "", wanted[64];
	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	int length = snprintf(wanted, sizeof(wanted), "loaderd%c--worker%c%u", 0, 0, (unsigned)uid);
	FILE *file = fopen(path, "re");
	if (!file)
		return false;
	size_t size = fread(arguments, 1, sizeof(arguments), file);
	fclose(file);
	/* Compares the first arguments only. */
	return size > (size_t)length && memcmp(arguments, wanted, (size_t)length + 1) == 0;
}

pid_t fixture_worker_of(const struct fixture *fixture, uid_t uid)
{
	char path[64];
	int pid;
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)fixture->daemon,
		 (int)fixture->daemon);
	FILE *file = fopen(path, "re");
	assert_non_null(file);
	do {
		if (fscanf(file, "%d", &pid) != 1)
			pid = 0;
	} while (pid != 0 && !is_worker(pid, uid));
	fclose(file);
	return pid;
}

int fixture_stop(struct fixture *fixture, int signal_number)
{
	int status;
	kill(fixture->daemon, signal_number);
	assert_int_equal(waitpid(fixture->daemon, &status, 0), fixture->daemon);
	fixture->daemon = 0;
	daemon_log_end(fixture->log);
	return status;
}

struct feed_options fixture_options(const struct fixture *fixture, const char *dataset,
				    const char *pipeline)
{
	struct feed_options options;
	feed_options_init(&options);
	options.socket = fixture->socket;
	options.dataset = dataset;
	options.pipeline = pipeline;
	options.batch_size = 32;
	options.shuffle = 1;
	options.seed = 5;
	return options;
}

struct feed *fixture_open(const struct feed_options *options)
{
	struct feed *feed;
	char error[FEED_ERROR_MAX] = "";
	if (feed_open(options, &feed, error) < 0)
		fail_msg("feed_open: %s", error);
	return feed;
}

bool sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return true;
#elif defined(__has_feature)
	return __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
	return false;
#endif
}

uint64_t fixture_hash_next(struct feed *feed)
{
	struct feed_batch batch = {.size = sizeof(batch)};
	int r = feed_next(feed, sanitized() ? 600000 : 60000, &batch);
	if (r == FEED_END)
		return 0;
	if (r < 0)
		fail_msg("feed_next: %s (%s)", strerror(-r), feed_error(feed));
	uint64_t facts[] = {batch.epoch,    batch.batch,   batch.count,  batch.height, batch.width,
			    batch.channels, batch.element, batch.layout, batch.bad,    batch.last};
	XXH3_state_t *state = XXH3_createState();
	XXH3_64bits_reset(state);
	XXH3_64bits_update(state, facts, sizeof(facts));
	XXH3_64bits_update(state, batch.images, batch.image_bytes);
	XXH3_64bits_update(state, batch.labels, batch.count * sizeof(*batch.labels));
	XXH3_64bits_update(state, batch.samples, batch.count * sizeof(*batch.samples));
	XXH3_64bits_update(state, batch.flags, batch.count);
	uint64_t hash = XXH3_64bits_digest(state);
	XXH3_freeState(state);
	assert_int_equal(feed_release(feed, &batch), 0);
	return hash;
}

uint64_t fixture_hash(struct feed *feed, unsigned count)
{
	uint64_t folded = 0;
	for (unsigned i = 0; i < count; i++) {
		uint64_t hash = fixture_hash_next(feed);
		assert_true(hash != 0);
		folded = (folded << 7 | folded >> 57) ^ hash;
	}
	return folded;
}

uint64_t fixture_queued_ns(pid_t pid)
{
	char path[PATH_MAX];
	uint64_t sum_ns = 0;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *directory = opendir(path);
	assert_non_null(directory);
	for (struct dirent *entry; (entry = readdir(directory));) {
		uint64_t queued_ns;
		snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat", (int)pid, entry->d_name);
		FILE *file = fopen(path, "re");
		if (!file)
			continue;
		if (fscanf(file, "%*u %" SCNu64, &queued_ns) == 1)
			sum_ns += queued_ns;
		fclose(file);
	}
	closedir(directory);
	return sum_ns;
}

unsigned fixture_descriptors(pid_t pid)
{
	char path[64];
	unsigned count = 0;
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	DIR *directory = opendir(path);
	assert_non_null(directory);
	for (struct dirent *entry; (entry = readdir(directory));)
		count += entry->d_name[0] != '.';
	closedir(directory);
	return count;
}

unsigned fixture_mappings(pid_t pid, const char *name)
{
	char path[64], line[PATH_MAX + 128];
	unsigned count = 0;
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	FILE *file = fopen(path, "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		count += strstr(line, name) != NULL;
	fclose(file);
	return count;
}

unsigned fixture_ring_mappings(pid_t pid)
{
	return fixture_mappings(pid, "memfd:loaderd-");
}

/*
 * Delays connections so that this process stays within a user's limits: 1,024 at the same time and
 * 1,000 per second.
 */
static void wait_to_connect(void)
{
	enum { APART_NS = 1100000, AT_ONCE = 400 };
	static uint64_t spent_ns;
	const uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	if (spent_ns < now_ns)
		spent_ns = now_ns;
	spent_ns += APART_NS;
	if (spent_ns > now_ns + AT_ONCE * (uint64_t)APART_NS)
		usleep(APART_NS / 1000);
}

int fixture_connect(const struct fixture *fixture)
{
	wait_to_connect();
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", fixture->socket);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

void fixture_send_with(int socket, const Loaderd__Request *request, const int *fds, unsigned count)
{
	uint8_t message[4096];
	assert_true(loaderd__request__get_packed_size(request) <= sizeof(message));
	size_t size = loaderd__request__pack(request, message);
	assert_int_equal(frame_send(socket, message, size, fds, count, 60000), 0);
}

void fixture_send(int socket, const Loaderd__Request *request)
{
	fixture_send_with(socket, request, NULL, 0);
}

void fixture_send_file(int socket, const char *path, const Loaderd__NeedFiles *need, uint32_t total)
{
	Loaderd__Files files = LOADERD__FILES__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	int fd = open(path, O_RDONLY | O_CLOEXEC | (need->direct ? O_DIRECT : 0));
	assert_true(fd >= 0);
	files.first = need->first;
	files.total = total;
	files.direct = need->direct;
	request.kind_case = LOADERD__REQUEST__KIND_FILES;
	request.files = &files;
	fixture_send_with(socket, &request, &fd, 1);
	close(fd);
}

/* Sends RingMapped. Also reads replies: if the daemon cannot send them, it reads nothing. */
static void send_mapped(int socket)
{
	/* Request{ring_mapped{}} */
	static const uint8_t ring_mapped[] = {0x32, 0};
	struct pollfd p = {.fd = socket, .events = POLLIN | POLLOUT};
	struct frame_reader reader;
	const uint8_t *data;
	size_t size;
	frame_reader_init(&reader);
	while (poll(&p, 1, 60000) == 1) {
		if (p.revents & POLLOUT) {
			(void)frame_send(socket, ring_mapped, sizeof(ring_mapped), NULL, 0, 1000);
			break;
		}
		/* Reads the whole reply: the next reader could not parse the remainder of one. */
		struct pollfd more = {.fd = socket, .events = POLLIN};
		int r = 0;
		while (r == 0 && poll(&more, 1, 60000) == 1)
			r = frame_receive(&reader, socket, &data, &size);
		if (r <= 0)
			break;
	}
	frame_reader_deinit(&reader);
}

bool fixture_map_ring(int socket, const int fds[2], struct fixture_mapping *ret_mapping)
{
	size_t size = (size_t)lseek(fds[0], 0, SEEK_END);
	char *ring = mmap(NULL, size, PROT_READ, MAP_SHARED, fds[0], 0);
	char *ack = mmap(NULL, RING_ACK_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
	if (ring == MAP_FAILED || ack == MAP_FAILED)
		return false;
	for (size_t at = 0; at < size; at += RING_ALIGN)
		(void)*(volatile char *)(ring + at);
	(void)*(volatile char *)ack;
	send_mapped(socket);
	*ret_mapping = (struct fixture_mapping){ring, size, ack};
	return true;
}

void fixture_unmap_ring(struct fixture_mapping *mapping)
{
	if (mapping->ring)
		munmap(mapping->ring, mapping->size);
	mapping->ring = NULL;
}

static struct fixture_mapping last;

void *fixture_last_ack(void)
{
	return last.ack;
}

/* Maps the ring. Closes the fds unless the caller wants them. */
static void take_ring(int socket, struct frame_reader *reader, int fds[2])
{
	int ring[2] = {frame_take_fd(reader, 0), frame_take_fd(reader, 1)};
	fixture_unmap_ring(&last);
	if (last.ack)
		munmap(last.ack, RING_ACK_SIZE);
	last.ack = NULL;
	(void)fixture_map_ring(socket, ring, &last);
	for (unsigned i = 0; i < 2; i++) {
		if (fds)
			fds[i] = ring[i];
		else
			close(ring[i]);
	}
}

Loaderd__Reply *fixture_receive(int socket, int fds[2])
{
	struct frame_reader reader;
	Loaderd__Reply *reply = NULL;
	frame_reader_init(&reader);
	for (unsigned i = 0; fds && i < 2; i++)
		fds[i] = -1;
	while (!reply) {
		const uint8_t *data;
		size_t size;
		int r = frame_receive(&reader, socket, &data, &size);
		if (r < 0)
			break;
		if (r == 0) {
			struct pollfd p = {.fd = socket, .events = POLLIN};
			assert_int_equal(poll(&p, 1, 60000), 1);
			continue;
		}
		reply = loaderd__reply__unpack(NULL, size, data);
		assert_non_null(reply);
		bool ring = reply->kind_case == LOADERD__REPLY__KIND_RING;
		if (ring)
			take_ring(socket, &reader, fds);
		if (reply->kind_case == LOADERD__REPLY__KIND_FEED_OPENED ||
		    reply->kind_case == LOADERD__REPLY__KIND_ERROR)
			fixture_unmap_ring(&last);
		if (ring || reply->kind_case == LOADERD__REPLY__KIND_DOORBELL) {
			loaderd__reply__free_unpacked(reply, NULL);
			reply = NULL;
		}
	}
	frame_reader_deinit(&reader);
	return reply;
}

int fixture_open_bare(const struct fixture *fixture, const char *dataset, const char *pipeline,
		      int ret_fds[2])
{
	Loaderd__OpenFeed open_feed = LOADERD__OPEN_FEED__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	open_feed.version = PROTO_VERSION_OLDEST;
	open_feed.dataset = (char *)dataset;
	open_feed.pipeline = (char *)pipeline;
	open_feed.batch_size = 16;
	open_feed.slots = 4;
	request.kind_case = LOADERD__REQUEST__KIND_OPEN_FEED;
	request.open_feed = &open_feed;
	int socket = fixture_connect(fixture);
	fixture_send(socket, &request);
	Loaderd__Reply *reply = fixture_receive(socket, ret_fds);
	while (reply && reply->kind_case == LOADERD__REPLY__KIND_NEED_FILES) {
		fixture_send_file(socket, dataset, reply->need_files, 1);
		loaderd__reply__free_unpacked(reply, NULL);
		reply = fixture_receive(socket, ret_fds);
	}
	assert_non_null(reply);
	if (reply->kind_case == LOADERD__REPLY__KIND_ERROR)
		fail_msg("refused: %s", reply->error->text);
	assert_int_equal(reply->kind_case, LOADERD__REPLY__KIND_FEED_OPENED);
	loaderd__reply__free_unpacked(reply, NULL);
	return socket;
}

/* Returns NULL if this user currently exceeds the connection rate. */
static Loaderd__Reply *ask_for_status(const struct fixture *fixture)
{
	/* Request{get_status{}} */
	static const uint8_t get_status[] = {0x12, 0};
	int socket = fixture_connect(fixture);
	/*
	 * The send fails if the daemon has already refused the connection, but the reason is still
	 * readable.
	 */
	(void)frame_send(socket, get_status, sizeof(get_status), NULL, 0, 10000);
	Loaderd__Reply *reply = fixture_receive(socket, NULL);
	close(socket);
	bool refused = !reply || (reply->kind_case == LOADERD__REPLY__KIND_ERROR &&
				  strstr(reply->error->text, "connects too often"));
	if (!refused)
		return reply;
	loaderd__reply__free_unpacked(reply, NULL);
	return NULL;
}

Loaderd__Reply *fixture_status(const struct fixture *fixture)
{
	enum { PATIENCE_MS = 60000 };
	Loaderd__Reply *reply;
	for (unsigned i = 0; !(reply = ask_for_status(fixture)) && i < PATIENCE_MS; i++)
		usleep(1000);
	assert_non_null(reply);
	assert_int_equal(reply->kind_case, LOADERD__REPLY__KIND_STATUS);
	return reply;
}

void fixture_wait_for_slots(const struct fixture *fixture, uint32_t ready)
{
	for (unsigned i = 0; i < 6000; i++) {
		Loaderd__Reply *reply = fixture_status(fixture);
		bool there = reply->status->n_feeds == 1 &&
			     reply->status->feeds[0]->slots_ready == ready;
		loaderd__reply__free_unpacked(reply, NULL);
		if (there)
			return;
		usleep(10000);
	}
	fail_msg("%u batches do not come", ready);
}

int fixture_setup(void **state)
{
	static struct fixture fixture;
	fixture_init(&fixture);
	*state = &fixture;
	return 0;
}

int fixture_teardown(void **state)
{
	fixture_deinit(*state);
	return 0;
}

int fixture_teardown_running(void **state)
{
	assert_int_equal(fixture_stop(*state, SIGTERM), 0);
	return fixture_teardown(state);
}

int fixture_main(const char *name, char folder[FIXTURE_FOLDER_MAX])
{
	char command[FIXTURE_FOLDER_MAX + 16];
	const char *tmp = getenv("TMPDIR");
	snprintf(folder, FIXTURE_FOLDER_MAX, "%s/loaderd-%s-XXXXXX",
		 tmp && strlen(tmp) < 30 ? tmp : "/tmp", name);
	if (!mkdtemp(folder))
		return 1;
	int r = test_run(fixture_setup, fixture_teardown);
	snprintf(command, sizeof(command), "rm -r %s", folder);
	return system(command) != 0 || r != 0;
}

const char *fixture_patch_fields(const char *path, void (*change)(struct pimg_section *section,
								  struct pimg_field_stats *stats))
{
	struct stat status;
	int fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0 && fstat(fd, &status) == 0);
	uint8_t *map =
		mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	struct pimg_header *header = (struct pimg_header *)map;
	struct pimg_section *section = header->sections;
	while (section->type != PIMG_SECTION_FIELD_STATS)
		section++;
	change(section, (struct pimg_field_stats *)(map + section->offset));
	section->xxh3 = XXH3_64bits(map + section->offset, section->size);
	header->header_xxh3 = XXH3_64bits(header, offsetof(struct pimg_header, header_xxh3));
	munmap(map, (size_t)status.st_size);
	close(fd);
	return path;
}

void fixture_hide_fields(struct pimg_section *section, struct pimg_field_stats *stats)
{
	section->type = 999;
}

struct feed_section fixture_section(struct feed *feed, const struct feed_batch *batch,
				    const char *name)
{
	struct feed_section section = {.size = sizeof(section)};
	int number = feed_section_find(feed, name);
	assert_true(number >= 0);
	assert_int_equal(feed_section(feed, batch, (uint32_t)number, &section), 0);
	assert_string_equal(section.name, name);
	return section;
}
