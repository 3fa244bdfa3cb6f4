/*
 * Sends mutated files to a daemon through its socket while the daemon also serves another user.
 *
 * `served COUNT FILE|FOLDER...` mutates the given .pimg files and repairs their checksums (it drops
 * a leading script of fuzz_request.c), requests a description and a feed of each with one of a few
 * pipelines, and changes every second file on disk while it is read. Counts the workers that die,
 * saves the files in use at that time as found-NUMBER.pimg, and afterwards compares the other
 * user's batches with a new feed with the same options.
 *
 * The exit status is 0 if no worker died and no batch of the other user was wrong. LOADERD names
 * the daemon, which should be built with sanitizers. If run as root, sends the files under an
 * unused uid; otherwise one user owns both feeds, and a worker that dies also ends the other feed.
 */
#include "tests/fuzz/support/mutate.h"
#include "tests/fuzz/support/whole_file.h"
#include "tests/integration/loaderd/loaderd_fixture.h"

#include "proto/client/feed.h"
#include "tests/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

enum {
	STRANGER = 54321, /* uid */
	SEEDS_MAX = 512,
	SIZE_MAX_OF_SEED = 1 << 16,
	HASHES_MAX = 1 << 16,
	CONTROL_PAUSE_US = 30000, /* slow pace, which leaves the CPU to the mutated files */
	WAIT_MS = 5000,
	BATCHES = 3,
	SCRIBBLES = 16,
};

struct seed {
	uint8_t *bytes;
	size_t size;
};

struct counts {
	unsigned long files, described, opened, batches, failed, late, ended, reports;
};

/* Memory shared with the process that takes the other user's batches. */
struct control_client {
	_Atomic bool stop;
	_Atomic uint64_t batches;
	uint64_t hashes[HASHES_MAX];
};

static const char *const pipelines[] = {
	"",
	"random_resized_crop(32) hflip",
	"resize(24x24) normalize(dataset) to(f32)",
	"random_resized_crop(16, chroma=fast) rand_augment normalize(imagenet) to(f16)",
	"center_crop(40) random_erasing(1)",
	"random_affine(20, interpolation=bilinear) resize(16x16) layout(nchw)",
};
enum { PIPELINES = sizeof(pipelines) / sizeof(*pipelines) };

static struct seed seeds[SEEDS_MAX];
static unsigned seed_count;
static uint64_t random_state = 1;
static char path[PATH_MAX + 16];
static int log_fd;
static off_t log_read;

static uint64_t draw(uint64_t below)
{
	return mutate_random(&random_state) % below;
}

static void read_seed(const char *name)
{
	struct seed *seed = &seeds[seed_count];
	struct stat status;
	FILE *file = fopen(name, "rbe");
	assert_non_null(file);
	assert_int_equal(fstat(fileno(file), &status), 0);
	seed->bytes = malloc((size_t)status.st_size + 1);
	seed->size = fread(seed->bytes, 1, (size_t)status.st_size, file);
	fclose(file);
	if (seed->size >= 2 && seed->bytes[0] == 'R' && seed->size >= 2u + seed->bytes[1]) {
		seed->size -= 2u + seed->bytes[1];
		memmove(seed->bytes, seed->bytes + 2 + seed->bytes[1], seed->size);
	}
	if (seed->size > 0 && seed->size <= SIZE_MAX_OF_SEED && seed_count + 1 < SEEDS_MAX)
		seed_count++;
	else
		free(seed->bytes);
}

static void read_seeds(const char *name)
{
	char one[PATH_MAX];
	DIR *folder = opendir(name);
	if (!folder) {
		read_seed(name);
		return;
	}
	for (struct dirent *entry; (entry = readdir(folder));) {
		snprintf(one, sizeof(one), "%s/%s", name, entry->d_name);
		if (entry->d_name[0] != '.')
			read_seed(one);
	}
	closedir(folder);
}

static size_t change_bytes(uint8_t *data, size_t size, size_t size_max)
{
	return mutate_bytes(data, size, &random_state);
}

/* Writes a seed with up to four mutations to a new file at path. */
static size_t write_file(uint8_t *bytes)
{
	const struct seed *seed = &seeds[draw(seed_count)];
	size_t size = seed->size;
	memcpy(bytes, seed->bytes, size);
	for (uint64_t times = draw(5); times > 0; times--)
		size = whole_file_mutate(bytes, size, size, (unsigned)draw(UINT32_MAX),
					 change_bytes);
	unlink(path);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, size), size);
	close(fd);
	return size;
}

/*
 * Changes the served file in place: changes a few bytes and restores them; sometimes truncates the
 * file.
 */
static void scribble(const uint8_t *bytes, size_t size)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || size == 0)
		return;
	for (unsigned i = 0; i < SCRIBBLES; i++) {
		uint64_t noise = draw(UINT64_MAX);
		off_t at = (off_t)draw(size);
		size_t length = 1 + draw(8);
		ssize_t n = pwrite(fd, &noise, length, at);
		if (draw(2) && (size_t)at + length <= size)
			n = pwrite(fd, bytes + at, length, at);
		(void)n;
	}
	if (draw(16) == 0)
		assert_int_equal(ftruncate(fd, (off_t)draw(size)), 0);
	close(fd);
}

static void serve_file(const struct fixture *fixture, const uint8_t *bytes, size_t size,
		       struct counts *counts)
{
	static const char *const fields[] = {"id", "score", "blob", "note"};
	struct feed_batch batch = {.size = sizeof(batch)};
	struct feed_dataset *facts;
	struct feed *feed;
	bool changed = draw(2);
	struct feed_options options = fixture_options(fixture, path, pipelines[draw(PIPELINES)]);
	options.batch_size = 1 + (uint32_t)draw(3);
	options.slots = 2 + (uint32_t)draw(2);
	options.bad = (uint32_t)draw(3);
	options.epoch = draw(3);
	options.fields = fields;
	options.field_count = draw(2) ? 4 : 0;
	counts->files++;
	if (draw(4) == 0 && feed_dataset(fixture->socket, path, &facts, NULL) == 0) {
		counts->described++;
		feed_dataset_free(facts);
	}
	if (feed_open(&options, &feed, NULL) < 0)
		return;
	counts->opened++;
	for (unsigned i = 0; i < BATCHES; i++) {
		if (changed)
			scribble(bytes, size);
		int r = feed_next(feed, WAIT_MS, &batch);
		counts->batches += r == 0;
		counts->late += r == -ETIMEDOUT;
		counts->failed += r < 0 && r != -ETIMEDOUT;
		if (r != 0)
			break;
		feed_release(feed, &batch);
	}
	feed_close(feed);
}

static unsigned long occurrences(const char *text, const char *wanted)
{
	unsigned long count = 0;
	for (const char *at = text; (at = strstr(at, wanted)); at += strlen(wanted))
		count++;
	return count;
}

/*
 * Reads the daemon's new log messages. Returns true if they report a dead worker or a sanitizer
 * error.
 */
static bool look_at_log(struct counts *counts)
{
	static char text[1 << 20];
	ssize_t size = pread(log_fd, text, sizeof(text) - 1, log_read);
	if (size <= 0)
		return false;
	text[size] = '\0';
	char *end = strrchr(text, '\n');
	if (!end)
		return false;
	end[1] = '\0';
	log_read += end + 1 - text;
	unsigned long ended =
		occurrences(text, "was killed by signal") + occurrences(text, "exited with status");
	unsigned long reports =
		occurrences(text, "ERROR: AddressSanitizer") + occurrences(text, "runtime error:");
	counts->ended += ended;
	counts->reports += reports;
	if (ended + reports > 0)
		fputs(text, stderr);
	return ended + reports > 0;
}

/*
 * Saves a file that was in use. Either this file or one of the few before it caused the crash:
 * replay them to find out which.
 */
static void keep(unsigned long number, const uint8_t *bytes, size_t size)
{
	char name[64];
	uid_t uid = geteuid();
	bool back = seteuid(0) == 0; /* the unprivileged uid may lack write access to the folder */
	snprintf(name, sizeof(name), "found-%lu.pimg", number);
	FILE *file = fopen(name, "wbe");
	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, size, file), size);
	assert_int_equal(fclose(file), 0);
	if (back)
		assert_int_equal(seteuid(uid), 0);
}

static void watch(struct control_client *control, const struct feed_options *options)
{
	struct feed *feed = fixture_open(options);
	while (!atomic_load(&control->stop)) {
		uint64_t n = atomic_load(&control->batches);
		assert_true(n < HASHES_MAX);
		control->hashes[n] = fixture_hash_next(feed);
		atomic_store(&control->batches, n + 1);
		usleep(CONTROL_PAUSE_US);
	}
	feed_close(feed);
}

static pid_t start_control_client(struct control_client *control,
				  const struct feed_options *options)
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	watch(control, options);
	_exit(0);
}

/*
 * Returns the number of batches that differ from a new feed's; more than the number of batches if
 * the feed failed.
 */
static uint64_t stop_control_client(struct control_client *control, pid_t pid,
				    const struct feed_options *options)
{
	int status;
	uint64_t wrong = 0;
	atomic_store(&control->stop, true);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	uint64_t batches = atomic_load(&control->batches);
	if (status != 0)
		return batches + 1;
	struct feed *feed = fixture_open(options);
	for (uint64_t n = 0; n < batches; n++)
		wrong += fixture_hash_next(feed) != control->hashes[n];
	feed_close(feed);
	return wrong;
}

/* Starts the daemon with its log in a file and a socket that any user may open. */
static void start_daemon(struct fixture *fixture)
{
	char name[PATH_MAX + 16];
	fixture_init(fixture);
	snprintf(path, sizeof(path), "%s/mutated.pimg", fixture->folder);
	snprintf(name, sizeof(name), "%s/log", fixture->folder);
	assert_int_equal(chmod(fixture->folder, 0777), 0);
	log_fd = open(name, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	int stderr_fd = dup(STDERR_FILENO);
	assert_true(log_fd >= 0 && stderr_fd >= 0);
	dup2(log_fd, STDERR_FILENO);
	fixture_start(fixture, NULL, "--threads", "2", NULL);
	dup2(stderr_fd, STDERR_FILENO);
	close(stderr_fd);
}

static void send_all(struct fixture *fixture, unsigned long count, struct counts *counts)
{
	static uint8_t bytes[2][SIZE_MAX_OF_SEED];
	size_t sizes[2] = {0, 0};
	for (unsigned long i = 0; i < count; i++) {
		sizes[i % 2] = write_file(bytes[i % 2]);
		serve_file(fixture, bytes[i % 2], sizes[i % 2], counts);
		if (look_at_log(counts)) {
			keep(i, bytes[i % 2], sizes[i % 2]);
			keep(i - 1, bytes[(i + 1) % 2], sizes[(i + 1) % 2]);
		}
		if ((i + 1) % 1000 == 0)
			fprintf(stderr, "%lu files, %lu opened, %lu batches, %lu workers ended\n",
				i + 1, counts->opened, counts->batches, counts->ended);
	}
	usleep(500000);
	look_at_log(counts);
}

int main(int argc, char **argv)
{
	static struct fixture fixture;
	struct counts counts = {0};
	char dataset[PATH_MAX];
	if (argc < 3) {
		fputs("usage: served COUNT FILE|FOLDER...\n", stderr);
		return 2;
	}
	if (getenv("MESON_EXE_WRAPPER")) { /* set when cross-compiled */
		fputs("Under an emulator no daemon can be started\n", stderr);
		return 77;
	}
	signal(SIGPIPE, SIG_IGN);
	for (int i = 2; i < argc; i++)
		read_seeds(argv[i]);
	assert_true(seed_count > 0);
	start_daemon(&fixture);
	snprintf(dataset, sizeof(dataset), "%s",
		 fixture_dataset(&fixture, "control", 300, FIXTURE_JPEG, 0));
	struct feed_options options =
		fixture_options(&fixture, dataset, "random_resized_crop(48) hflip");
	struct control_client *control = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE,
					      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(control != MAP_FAILED);
	pid_t pid = start_control_client(control, &options);
	bool stranger = geteuid() == 0 && seteuid(STRANGER) == 0;
	send_all(&fixture, strtoul(argv[1], NULL, 10), &counts);
	if (stranger)
		assert_int_equal(seteuid(0), 0);
	uint64_t wrong = stop_control_client(control, pid, &options);
	printf("%lu files%s: %lu described, %lu opened, %lu batches, %lu feeds failed, %lu late; "
	       "%lu "
	       "workers ended, %lu sanitizer reports; the other feed: %llu batches, %llu wrong\n",
	       counts.files, stranger ? " of another user" : "", counts.described, counts.opened,
	       counts.batches, counts.failed, counts.late, counts.ended, counts.reports,
	       (unsigned long long)atomic_load(&control->batches), (unsigned long long)wrong);
	int status = fixture_stop(&fixture, SIGTERM);
	look_at_log(&counts);
	fixture_deinit(&fixture);
	return counts.ended + counts.reports + counts.late + wrong > 0 || status != 0;
}
