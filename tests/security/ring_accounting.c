/*
 * Accounting of rings under random sequences of opening feeds, keeping their memory by every kind
 * of reference, and dropping the references. After each step
 * - the shared memory charged to the service's cgroup is at most CONSTANT, and
 * - the memory kept is at most one user's limit, because memory counts as long as any reference
 * exists.
 * At the end all of the memory is available again. LOADERD_TEST_SEED selects another sequence,
 * LOADERD_TEST_STEPS the number of steps. Needs root, and a memory cgroup for the first check.
 */
#include "tests/security/attack.h"
#include "tests/security/memcg.h"
#include "tests/test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum {
	STEPS = 600,
	KEPT_MAX = 12,
	MOST = 16 << 20,         /* limit of ring memory per user */
	RING = 3300000,          /* approximate memory of one ring */
	GROUP_BYTES = 900 << 20, /* limit of the service's cgroup */
	CONSTANT = 1 << 20,      /* allowance for status pages, configuration, and rounding */
	FREE_WITHIN_MS = 20000,
};

/* A ring and the references to it. */
struct held_ring {
	bool used;
	uint64_t bytes;
	int socket, ring, ack; /* -1 if closed */
	int path;              /* the ring, opened with O_PATH */
	void *map;
	int pipe[2];   /* pipe that holds pages of the ring */
	int flight[2]; /* socket pair that holds an unreceived message with the ring's fd */
	pid_t child;   /* child that inherited the references at its fork */
	bool child_refers;
};

struct model {
	const struct stage *stage;
	const struct memcg *group; /* memory cgroup; NULL if there is none */
	int file;
	struct held_ring kept[KEPT_MAX];
	unsigned granted, refused;
};

static const char pipeline[] = "random_resized_crop(128)";

static bool is_referenced(const struct held_ring *kept)
{
	return kept->used &&
	       (kept->socket >= 0 || kept->ring >= 0 || kept->ack >= 0 || kept->path >= 0 ||
		kept->map || kept->pipe[0] >= 0 || kept->flight[0] >= 0 || kept->child_refers);
}

static uint64_t bytes_kept(const struct model *model)
{
	uint64_t bytes = 0;
	for (unsigned i = 0; i < KEPT_MAX; i++)
		if (is_referenced(&model->kept[i]))
			bytes += model->kept[i].bytes;
	return bytes;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void open_ring(struct model *model, struct held_ring *kept)
{
	int fds[2], socket;
	if (is_referenced(kept))
		return;
	int r = attack_open(model->stage, model->file, pipeline, &socket, fds);
	if (r != 0) {
		assert_int_equal(r, EDQUOT);
		model->refused++;
		return;
	}
	model->granted++;
	*kept = (struct held_ring){
		.used = true,
		.bytes = (uint64_t)lseek(fds[0], 0, SEEK_END),
		.socket = socket,
		.ring = fds[0],
		.ack = fds[1],
		.path = -1,
		.pipe = {-1, -1},
		.flight = {-1, -1},
	};
}

static void map_ring(struct held_ring *kept)
{
	if (kept->map || kept->ring < 0)
		return;
	kept->map = mmap(NULL, kept->bytes, PROT_READ, MAP_SHARED, kept->ring, 0);
	assert_ptr_not_equal(kept->map, MAP_FAILED);
}

static void unmap_ring(struct held_ring *kept)
{
	if (kept->map)
		munmap(kept->map, kept->bytes);
	kept->map = NULL;
}

static void splice_page(struct held_ring *kept)
{
	if (kept->ring < 0 || kept->pipe[0] >= 0)
		return;
	off_t at = (off_t)(attack_random() % (kept->bytes / 4096) * 4096);
	assert_int_equal(pipe2(kept->pipe, O_CLOEXEC | O_NONBLOCK), 0);
	assert_int_equal(splice(kept->ring, &at, kept->pipe[1], NULL, 1, 0), 1);
}

static void close_pipe(struct held_ring *kept)
{
	close_fd(&kept->pipe[0]);
	close_fd(&kept->pipe[1]);
}

static void open_path(struct held_ring *kept)
{
	char path[64];
	if (kept->ring < 0 || kept->path >= 0)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", kept->ring);
	kept->path = open(path, O_PATH | O_CLOEXEC);
	assert_true(kept->path >= 0);
}

static void send_away(struct held_ring *kept)
{
	int fd = attack_random() % 2 ? kept->ring : kept->ack;
	if (fd >= 0 && kept->flight[0] < 0)
		attack_put_in_flight(fd, kept->flight);
}

static void forget_message(struct held_ring *kept)
{
	close_fd(&kept->flight[0]);
	close_fd(&kept->flight[1]);
}

/* Forks a child, which inherits the references to all rings. */
static void fork_child(struct model *model, struct held_ring *kept)
{
	if (!kept->used || kept->child != 0)
		return;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (unsigned i = 0; i < KEPT_MAX; i++) {
			struct held_ring *other = &model->kept[i];
			if (other == kept || !other->used)
				continue;
			close_fd(&other->socket);
			close_fd(&other->ring);
			close_fd(&other->ack);
			close_fd(&other->path);
			close_pipe(other);
			forget_message(other);
			unmap_ring(other);
		}
		/* shutdown() affects all processes that share the connection. */
		close_fd(&kept->socket);
		for (;;)
			pause();
	}
	kept->child = pid;
	kept->child_refers = kept->ring >= 0 || kept->ack >= 0 || kept->path >= 0 || kept->map ||
			     kept->pipe[0] >= 0 || kept->flight[0] >= 0;
}

static void kill_child(struct held_ring *kept)
{
	if (kept->child == 0)
		return;
	kill(kept->child, SIGKILL);
	waitpid(kept->child, NULL, 0);
	kept->child = 0;
	kept->child_refers = false;
}

static void close_feed(struct held_ring *kept)
{
	if (kept->socket >= 0)
		shutdown(kept->socket, SHUT_RDWR);
	close_fd(&kept->socket);
}

/* Drops every reference, or every one except one of a random kind. */
static void drop_references(struct held_ring *kept)
{
	enum { KINDS = 8 };
	unsigned but = (unsigned)(attack_random() % (KINDS + 1));
	if (but != 0)
		close_feed(kept);
	if (but != 1)
		unmap_ring(kept);
	if (but != 2)
		close_pipe(kept);
	if (but != 3)
		forget_message(kept);
	if (but != 4)
		close_fd(&kept->ring);
	if (but != 5)
		close_fd(&kept->ack);
	if (but != 6)
		close_fd(&kept->path);
	if (but != 7)
		kill_child(kept);
}

/* Returns an unused entry, or NULL. */
static struct held_ring *find_free(struct model *model)
{
	for (unsigned i = 0; i < KEPT_MAX; i++)
		if (!model->kept[i].used)
			return &model->kept[i];
	return NULL;
}

/* Returns a random used entry, or NULL. */
static struct held_ring *find_used(struct model *model)
{
	for (unsigned i = 0; i < 20 * KEPT_MAX; i++) {
		struct held_ring *kept = &model->kept[attack_random() % KEPT_MAX];
		if (kept->used)
			return kept;
	}
	return NULL;
}

static void step(struct model *model)
{
	static void (*const keep[])(struct held_ring * kept) = {map_ring, splice_page, send_away,
								open_path};
	struct held_ring *kept = find_used(model);
	/* Attempts beyond the limit are rare, because each takes half a second. */
	if (!kept || (bytes_kept(model) < MOST - RING && attack_random() % 2 == 0) ||
	    attack_random() % 64 == 0) {
		kept = find_free(model);
		if (kept)
			open_ring(model, kept);
		return;
	}
	switch (attack_random() % 8) {
	case 0:
		fork_child(model, kept);
		break;
	case 1:
		drop_references(kept);
		break;
	case 2:
		close_feed(kept);
		break;
	default:
		keep[attack_random() % (sizeof(keep) / sizeof(*keep))](kept);
		break;
	}
	if (!is_referenced(kept)) {
		kill_child(kept);
		kept->used = false;
	}
}

static void release_all(struct model *model)
{
	for (unsigned i = 0; i < KEPT_MAX; i++) {
		struct held_ring *kept = &model->kept[i];
		if (!kept->used)
			continue;
		close_feed(kept);
		unmap_ring(kept);
		close_pipe(kept);
		forget_message(kept);
		close_fd(&kept->ring);
		close_fd(&kept->ack);
		close_fd(&kept->path);
		kill_child(kept);
		kept->used = false;
	}
}

static void check(const struct model *model, unsigned number)
{
	if (bytes_kept(model) > MOST)
		fail_msg("step %u: %llu bytes are kept, one user may have %d", number,
			 (unsigned long long)bytes_kept(model), MOST);
	if (!model->group)
		return;
	uint64_t charged = memcg_shared(model->group);
	if (charged > CONSTANT)
		fail_msg("step %u: %llu bytes of shared memory are charged to the service", number,
			 (unsigned long long)charged);
}

static void run_steps(const struct stage *stage, const struct memcg *group)
{
	const char *steps = getenv("LOADERD_TEST_STEPS"), *seed = getenv("LOADERD_TEST_SEED");
	struct model model = {.stage = stage, .group = group};
	model.file = open(stage->images, O_RDONLY | O_CLOEXEC);
	assert_true(model.file >= 0);
	for (long i = seed ? atol(seed) : 0; i > 0; i--)
		(void)attack_random();
	unsigned count = steps ? (unsigned)atol(steps) : STEPS;
	for (unsigned i = 0; i < count; i++) {
		step(&model);
		check(&model, i);
	}
	release_all(&model);
	print_message("%u rings granted, %u refused\n", model.granted, model.refused);
	assert_true(model.granted > 10 && model.refused > 0);
	/* As many rings as fit the limit can be opened again. */
	uint64_t until_ms = attack_now_ms() + FREE_WITHIN_MS;
	for (unsigned have = 0; have < MOST / RING;) {
		open_ring(&model, &model.kept[have]);
		have += model.kept[have].used;
		if (attack_now_ms() > until_ms)
			fail_msg("what nothing refers to still counts: %u rings are to be had",
				 have);
	}
	release_all(&model);
}

TEST(ring_memory_stays_within_limits)
{
	struct memcg group;
	struct stage stage;
	int status;
	attack_stage(&stage);
	const bool grouped = memcg_new(&group, "loaderd-account", GROUP_BYTES);
	if (grouped)
		memcg_enter(&group);
	else
		print_message("no control group of memory is to be had: the account alone\n");
	fixture_start(&stage.fixture, NULL, "--threads", "2", "--log-level", "error", "--limit",
		      "shared_memory_per_user=16M", NULL);
	if (grouped)
		memcg_leave(&group);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		fixture_become(ALICE);
		run_steps(&stage, grouped ? &group : NULL);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(fixture_stop(&stage.fixture, SIGTERM), 0);
	if (grouped) {
		print_message("version %u: %llu bytes of shared memory are charged after the end\n",
			      group.version, (unsigned long long)memcg_shared(&group));
		assert_int_equal(memcg_kills(&group), 0);
		memcg_free(&group);
	}
	fixture_deinit(&stage.fixture);
}

int main(void)
{
	return test_run_as_root(NULL, NULL);
}
