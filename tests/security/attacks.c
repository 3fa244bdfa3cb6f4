/*
 * Attacks of an unprivileged user on the service and on other users.
 *
 * During each attack of ALICE, BOB's feed continues at half of its fair share. No batch may be
 * wrong, and no more batches may be late than in the intervals between attacks ("calms"). During
 * each attack, BOB opens another feed within a second. Afterwards ALICE is served too, by the same
 * worker as before.
 *
 * LOADERD_TEST_ATTACK_MS sets the duration of each attack; LOADERD_TEST_ATTACK selects attacks by
 * part of their name. LOADERD_TEST_IO=uring runs only the attacks that make the service read,
 * unless LOADERD_TEST_ATTACKS is "all". feed_killed.c tests clients killed at arbitrary times.
 */
#include "tests/integration/loaderd/control_client.h"
#include "tests/security/attack.h"
#include "tests/test.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum {
	/*
	 * BOB takes one in four batches that he could have alone, which is half of his share while
	 * two users compete
	 */
	SHARE = 4,
	ATTEMPTS = 3,
	CALMS = 8, /* number of attacks preceded by a calm; other attacks get a calm only when
		      repeated */
	PATIENCE_MS = 60000, /* timeout for the end of an attack */
	OPEN_WITHIN_MS = 1000,
	ALICE_WITHIN_MS = 10000,
};

/* BOB's measurements during an attack or a calm. */
struct delays {
	unsigned batches, late;
	double longest_ms;
};

/* Extremes over all calms. */
struct idle_delays {
	unsigned count, late_min, late_max;
	double longest_ms_min, longest_ms_max;
};

static struct delays measure_delays(struct control_client *control, unsigned phase)
{
	double longest_ms = control_client_longest_ms(control);
	return (struct delays){
		.batches = (unsigned)atomic_load(&control->phase_batches[phase]),
		.late = atomic_load(&control->late[phase]),
		.longest_ms = longest_ms,
	};
}

static void watch_calm(struct control_client *control, struct idle_delays *calm)
{
	unsigned phase = control_client_phase(control);
	usleep(attack_ms() * 1000);
	struct delays notice = measure_delays(control, phase);
	if (calm->count++ == 0 || notice.late < calm->late_min)
		calm->late_min = notice.late;
	if (notice.late > calm->late_max)
		calm->late_max = notice.late;
	if (calm->count == 1 || notice.longest_ms < calm->longest_ms_min)
		calm->longest_ms_min = notice.longest_ms;
	if (notice.longest_ms > calm->longest_ms_max)
		calm->longest_ms_max = notice.longest_ms;
}

/*
 * Opens a feed as a user, in a separate process, and takes two batches. Returns how long opening
 * took; a failure fails the test.
 */
static double open_beside(const struct feed_options *options, uid_t uid)
{
	uint64_t *took_ms = mmap(NULL, sizeof(*took_ms), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status;
	assert_true(took_ms != MAP_FAILED);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		fixture_become(uid);
		uint64_t start_ms = attack_now_ms();
		struct feed *feed = NULL;
		/*
		 * Retry: the service first works through the requests with which ALICE has flooded
		 * it; with a sanitizer, that takes several times as long.
		 */
		const uint64_t within_ms = ALICE_WITHIN_MS * (sanitized() ? 60 : 1);
		while (uid == ALICE && attack_now_ms() < start_ms + within_ms &&
		       feed_open(options, &feed, NULL) == -EDQUOT)
			usleep(10000);
		if (!feed)
			feed = fixture_open(options);
		*took_ms = attack_now_ms() - start_ms;
		_exit(fixture_hash(feed, 2) == 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (status != 0)
		fail_msg("user %u is not served: %#x", (unsigned)uid, (unsigned)status);
	double ms = (double)*took_ms;
	munmap(took_ms, sizeof(*took_ms));
	return ms;
}

static void wait_for(pid_t pid, const char *name)
{
	uint64_t until_ms = attack_now_ms() + PATIENCE_MS;
	int status;
	while (waitpid(pid, &status, WNOHANG) != pid) {
		if (attack_now_ms() > until_ms) {
			kill(pid, SIGKILL);
			fail_msg("%s: does not end", name);
		}
		usleep(1000);
	}
	if (status != 0)
		fail_msg("%s: unexpected status %#x", name, (unsigned)status);
}

static struct delays watch_attack(struct stage *stage, struct control_client *control,
				  const struct attack *attack, double *ret_open_ms)
{
	if (attack->prepare)
		attack->prepare(stage);
	unsigned phase = control_client_phase(control);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		fixture_become(ALICE);
		attack->run(stage);
		_exit(0);
	}
	usleep(attack_ms() * 500);
	*ret_open_ms = open_beside(&stage->bob, BOB);
	wait_for(pid, attack->name);
	struct delays notice = measure_delays(control, phase);
	if (attack->check)
		attack->check(stage);
	return notice;
}

/*
 * Returns true if the attack disturbed BOB. Opening a feed may have made the interval a little
 * longer than a calm.
 */
static bool disturbed(const struct delays *notice, const struct idle_delays *calm, double open_ms)
{
	return notice->late > calm->late_max || open_ms > OPEN_WITHIN_MS || notice->batches == 0;
}

static bool run_attack(struct stage *stage, struct control_client *control,
		       const struct attack *attack, struct idle_delays *calm)
{
	bool bad = true;
	for (int attempt = 0; bad && attempt < ATTEMPTS; attempt++) {
		double open_ms;
		pid_t alice_folder = fixture_worker_of(&stage->fixture, ALICE);
		pid_t bob_folder = fixture_worker_of(&stage->fixture, BOB);
		if (attempt > 0 || calm->count < CALMS)
			watch_calm(control, calm);
		struct delays during = watch_attack(stage, control, attack, &open_ms);
		print_message("%-52s %4u batches, %u late (%u), longest %5.1f ms (%5.1f), opened "
			      "in %3.0f ms\n",
			      attack->name, during.batches, during.late, calm->late_max,
			      during.longest_ms, calm->longest_ms_max, open_ms);
		bad = !sanitized() && disturbed(&during, calm, open_ms);
		open_beside(&stage->alice, ALICE);
		if (fixture_worker_of(&stage->fixture, ALICE) != alice_folder)
			fail_msg("%s: ALICE's worker has ended", attack->name);
		if (fixture_worker_of(&stage->fixture, BOB) != bob_folder)
			fail_msg("%s: BOB's worker has ended", attack->name);
	}
	return bad;
}

TEST(attacks_affect_no_other_user)
{
	static const struct attack *const tables[] = {attacks_on_files,   attacks_with_descriptors,
						      attacks_by_numbers, attacks_on_memory,
						      attacks_by_orders,  attacks_on_filling};
	enum { READ_TABLES = 2 }; /* the first tables, which depend on how files are read */
	const char *io = getenv("LOADERD_TEST_IO"), *which = getenv("LOADERD_TEST_ATTACKS");
	bool all = !io || strcmp(io, "uring") != 0 || (which && strcmp(which, "all") == 0);
	const char *only = getenv("LOADERD_TEST_ATTACK");
	struct stage stage;
	struct idle_delays calm = {0};
	unsigned harmful = 0;
	attack_stage(&stage);
	fixture_start(&stage.fixture, NULL, "--threads", "2", "--log-level", "error", "--limit",
		      "feeds_per_user=16", "--limit", "connections_per_user=64", "--limit",
		      "shared_memory_per_user=32M", NULL);
	struct control_client *control =
		control_client_start_as(&stage.fixture, &stage.bob, BOB, SHARE);
	print_message("a batch every %.1f ms; in parentheses the most in a calm\n",
		      (double)control->period_ns / 1e6);
	open_beside(&stage.alice, ALICE);
	for (size_t t = 0; t < (all ? sizeof(tables) / sizeof(*tables) : READ_TABLES); t++)
		for (const struct attack *attack = tables[t]; attack->name; attack++)
			if (!only || strstr(attack->name, only))
				harmful += run_attack(&stage, control, attack, &calm);
	print_message("%u calms: %u to %u late, longest %.1f to %.1f ms\n", calm.count,
		      calm.late_min, calm.late_max, calm.longest_ms_min, calm.longest_ms_max);
	assert_int_equal(harmful, 0);
	control_client_wait(control, 10);
	control_client_finish(control);
	assert_int_equal(fixture_stop(&stage.fixture, SIGTERM), 0);
	fixture_deinit(&stage.fixture);
}

int main(void)
{
	return test_run_as_root(NULL, NULL);
}
