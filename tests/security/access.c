/*
 * A client is served exactly the files that the kernel lets it open: modes, ACLs, groups, links,
 * mounts, namespaces, changed users, Landlock. Each attempt runs in a separate process.
 */
#include "tests/security/attack.h"
#include "tests/test.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/landlock.h>
#include <sched.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum {
	GROUP = 64210,
	WRONG = 250,      /* served, but the wrong file */
	CANNOT_TRY = 251, /* this kernel does not support the attempt */
	OVERFLOW = 65534,
};

static struct stage stage;
static char public[PATH_MAX], shared[PATH_MAX], set[PATH_MAX];

/*
 * Opens a feed with the current credentials. Returns a positive errno, 0, or WRONG if the dataset's
 * metadata does not name this owner.
 */
static int try_open(const char *path, const char *owner)
{
	struct feed_options options = stage.alice;
	struct feed_dataset *facts;
	struct feed *feed;
	char line[64];
	snprintf(line, sizeof(line), "owner=%s\n", owner);
	options.dataset = path;
	int r = feed_open(&options, &feed, NULL);
	if (r < 0)
		return -r;
	bool right = fixture_hash(feed, 2) != 0;
	feed_close(feed);
	r = feed_dataset(stage.fixture.socket, path, &facts, NULL);
	right &= r == 0 && strstr(facts->metadata, line);
	if (r == 0)
		feed_dataset_free(facts);
	return right ? 0 : WRONG;
}

static int run_in_child(int (*run)(void))
{
	int status;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(run());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static const char *path_in(const char *folder, const char *name)
{
	static char path[PATH_MAX];
	snprintf(path, sizeof(path), "%.200s/%.60s", folder, name);
	return path;
}

static int own_file(void)
{
	fixture_become(ALICE);
	return try_open(stage.images, "images");
}

static int file_in_a_closed_home(void)
{
	fixture_become(ALICE);
	return try_open(path_in(stage.bob_folder, "images.pimg"), "images");
}

/* The error must not reveal whether the file exists. */
static int missing_file_in_private_home(void)
{
	fixture_become(ALICE);
	return try_open(path_in(stage.bob_folder, "nothing.pimg"), "images");
}

static int shared_file(void)
{
	fixture_become(ALICE);
	return try_open(shared, "shared");
}

static int shared_file_as_bob(void)
{
	fixture_become(BOB);
	return try_open(shared, "shared");
}

static int shared_file_in_the_group(void)
{
	const gid_t group = GROUP;
	if (setgid(ALICE) < 0 || setgroups(1, &group) < 0 || setuid(ALICE) < 0)
		return CANNOT_TRY;
	return try_open(shared, "shared");
}

static int link_into_a_closed_home(void)
{
	fixture_become(ALICE);
	const char *link = strdup(path_in(stage.alice_folder, "link.pimg"));
	unlink(link);
	if (symlink(path_in(stage.bob_folder, "images.pimg"), link) < 0)
		return CANNOT_TRY;
	return try_open(link, "images");
}

static int set_with_a_link(void)
{
	fixture_become(ALICE);
	const char *from = strdup(path_in(stage.alice_folder, "mixed-00000-of-00002.pimg"));
	const char *link_name = strdup(path_in(stage.alice_folder, "mixed-00001-of-00002.pimg"));
	if (link(path_in(stage.alice_folder, "set-00000-of-00002.pimg"), from) < 0 ||
	    symlink(path_in(stage.bob_folder, "set-00001-of-00002.pimg"), link_name) < 0)
		return CANNOT_TRY;
	return try_open(path_in(stage.alice_folder, "mixed.pimg"), "set");
}

/*
 * The path alternates between a link into BOB's home and a valid file. It must open as the valid
 * file or not at all.
 */
static int swapped_link(void)
{
	fixture_become(ALICE);
	const char *name = strdup(path_in(stage.alice_folder, "swapped.pimg"));
	const char *good = strdup(path_in(stage.alice_folder, "good.new"));
	const char *bad = strdup(path_in(stage.alice_folder, "bad.new"));
	const char *target = strdup(path_in(stage.bob_folder, "secret.pimg"));
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;) {
			if (link(stage.images, good) < 0 || rename(good, name) < 0)
				unlink(good);
			if (symlink(target, bad) < 0 || rename(bad, name) < 0)
				unlink(bad);
		}
	}
	unsigned opened = 0;
	int r = 0;
	for (uint64_t until_ms = attack_deadline(); attack_now_ms() < until_ms && r != WRONG;) {
		struct feed_dataset *facts;
		if (feed_dataset(stage.fixture.socket, name, &facts, NULL) < 0)
			continue;
		if (!strstr(facts->metadata, "owner=images\n"))
			r = WRONG;
		feed_dataset_free(facts);
		opened++;
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return opened == 0 ? CANNOT_TRY : r;
}

/* Path and fd refer to different files: the daemon serves the fd and opens no path. */
static int path_of_another(void)
{
	fixture_become(ALICE);
	int file = open(stage.images, O_RDONLY | O_CLOEXEC);
	int socket = attack_connect(&stage), r = WRONG;
	if (!attack_ask(socket, path_in(stage.bob_folder, "secret.pimg"), NULL, 0))
		return CANNOT_TRY;
	loaderd__reply__free_unpacked(attack_reply(socket, NULL), NULL);
	(void)attack_files(socket, 0, 1, false, &file, 1);
	Loaderd__Reply *reply = attack_reply(socket, NULL);
	if (reply && reply->kind_case == LOADERD__REPLY__KIND_DATASET &&
	    strstr(reply->dataset->metadata, "owner=images\n"))
		r = 0;
	loaderd__reply__free_unpacked(reply, NULL);
	return r;
}

static bool leave_mounts(void)
{
	return unshare(CLONE_NEWNS) == 0 &&
	       mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

/* Another file is mounted at the path in this process's mount namespace. */
static int bind_mount(void)
{
	if (!leave_mounts() || mount(stage.images, public, NULL, MS_BIND, NULL) < 0)
		return CANNOT_TRY;
	fixture_become(ALICE);
	return try_open(public, "images");
}

/* The service could not open this file by its path. */
static int private_mount(void)
{
	if (!leave_mounts() || mount("none", stage.bob_folder, "tmpfs", 0, "mode=0755") < 0)
		return CANNOT_TRY;
	const char *path = attack_dataset(stage.bob_folder, "inside", DATASET_RAW, ALICE);
	fixture_become(ALICE);
	return try_open(path, "inside");
}

static bool write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));
	if (fd >= 0)
		close(fd);
	return n == (ssize_t)strlen(text);
}

/* Becomes root in a new user namespace; outside, the process still is ALICE. */
static bool become_root_inside(void)
{
	char map[64];
	fixture_become(ALICE);
	/* Without this, root owns the process's files in /proc after the change of user. */
	prctl(PR_SET_DUMPABLE, 1);
	snprintf(map, sizeof(map), "0 %d 1\n", ALICE);
	return unshare(CLONE_NEWUSER) == 0 && write_file("/proc/self/setgroups", "deny") &&
	       write_file("/proc/self/uid_map", map) && geteuid() == 0;
}

static int namespace_root(void)
{
	if (!become_root_inside())
		return CANNOT_TRY;
	struct feed *feed = fixture_open(&stage.alice);
	/* the status lists a feed once it has delivered its first batch */
	assert_true(fixture_hash(feed, 1) != 0);
	Loaderd__Reply *reply = fixture_status(&stage.fixture);
	/* Feeds of earlier attempts may still be listed. */
	bool right = reply->status->n_feeds > 0 && reply->status->feeds[0]->uid == ALICE;
	loaderd__reply__free_unpacked(reply, NULL);
	feed_close(feed);
	return right ? try_open(stage.images, "images") : WRONG;
}

static int namespace_root_in_closed_home(void)
{
	return become_root_inside() ? try_open(path_in(stage.bob_folder, "images.pimg"), "images")
				    : CANNOT_TRY;
}

/*
 * In a namespace without a uid map, the process sees the overflow uid; outside, it still is ALICE.
 */
static int unmapped_namespace(void)
{
	fixture_become(ALICE);
	if (unshare(CLONE_NEWUSER) < 0)
		return CANNOT_TRY;
	return try_open(stage.images, "images");
}

/*
 * A set-user-ID program of BOB, started by ALICE: it opens files as BOB, and its feeds count as
 * BOB's.
 */
static int set_user_id(void)
{
	if (setgroups(0, NULL) < 0 || setresgid(ALICE, BOB, BOB) < 0 ||
	    setresuid(ALICE, BOB, BOB) < 0)
		return CANNOT_TRY;
	struct feed *feed = fixture_open(&stage.bob);
	/* the status lists a feed once it has delivered its first batch */
	assert_true(fixture_hash(feed, 1) != 0);
	Loaderd__Reply *reply = fixture_status(&stage.fixture);
	bool right = reply->status->n_feeds > 0 && reply->status->feeds[0]->uid == BOB;
	loaderd__reply__free_unpacked(reply, NULL);
	feed_close(feed);
	return right ? 0 : WRONG;
}

/* A set-user-ID program that has temporarily dropped its privileges. */
static int set_user_id_given_back(void)
{
	if (setgroups(0, NULL) < 0 || setresgid(ALICE, ALICE, BOB) < 0 ||
	    setresuid(ALICE, ALICE, BOB) < 0)
		return CANNOT_TRY;
	return try_open(path_in(stage.bob_folder, "images.pimg"), "images");
}

static int overflow_user(void)
{
	fixture_become(OVERFLOW);
	return try_open(public, "public") == 0 ? WRONG : EPERM;
}

/* Restricts reading to files below one path (Landlock). */
static bool confine(const char *path)
{
	const struct landlock_ruleset_attr handled = {
		.handled_access_fs = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR};
	struct landlock_path_beneath_attr beneath = {
		.allowed_access = LANDLOCK_ACCESS_FS_READ_FILE,
		.parent_fd = open(path, O_PATH | O_CLOEXEC),
	};
	int rules = (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof(handled), 0);
	return rules >= 0 &&
	       syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0) ==
		       0 &&
	       prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       syscall(SYS_landlock_restrict_self, rules, 0) == 0;
}

static int confined_inside(void)
{
	fixture_become(ALICE);
	return confine(stage.alice_folder) ? try_open(stage.images, "images") : CANNOT_TRY;
}

static int confined_outside(void)
{
	fixture_become(ALICE);
	return confine(stage.alice_folder) ? try_open(public, "public") : CANNOT_TRY;
}

/* Sends these two fds as the files of the set, using the raw protocol. */
static int pass_two(int first, int second)
{
	const int fds[2] = {first, second};
	int socket = attack_connect(&stage), code = ECONNRESET;
	if (!attack_ask(socket, set, "resize(32) center_crop(32)", 16))
		return CANNOT_TRY;
	Loaderd__Reply *reply = attack_reply(socket, NULL);
	while (reply && reply->kind_case == LOADERD__REPLY__KIND_NEED_FILES) {
		bool direct = reply->need_files->direct;
		loaderd__reply__free_unpacked(reply, NULL);
		reply = attack_files(socket, 0, 2, direct, fds, 2) ? attack_reply(socket, NULL)
								   : NULL;
	}
	if (reply)
		code = reply->kind_case == LOADERD__REPLY__KIND_ERROR ? reply->error->code : 0;
	loaderd__reply__free_unpacked(reply, NULL);
	close(socket);
	return code;
}

/* Another process of the same user has opened the whole set in the same worker. */
static int confined_to_one_shard(void)
{
	char first[PATH_MAX], second[PATH_MAX];
	fixture_become(ALICE);
	snprintf(first, sizeof(first), "%.200s/set-00000-of-00002.pimg", stage.alice_folder);
	snprintf(second, sizeof(second), "%.200s/set-00001-of-00002.pimg", stage.alice_folder);
	if (!confine(first))
		return CANNOT_TRY;
	int fd = open(first, O_RDONLY | O_CLOEXEC), path_only = open(second, O_PATH | O_CLOEXEC);
	int write_only = open(second, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || path_only < 0 || write_only < 0)
		return CANNOT_TRY;
	if (open(second, O_RDONLY | O_CLOEXEC) >= 0 || try_open(set, "set") != EACCES)
		return WRONG;
	if (pass_two(fd, path_only) == 0 || pass_two(fd, write_only) == 0 || pass_two(fd, fd) == 0)
		return WRONG;
	return EACCES;
}

static bool set_acl(const char *entry)
{
	char command[PATH_MAX + 64];
	snprintf(command, sizeof(command), "setfacl -m %s %s 2>/dev/null", entry, shared);
	return system(command) == 0;
}

static void expect(const char *name, int (*run)(void), int code)
{
	int r = run_in_child(run);
	if (r == CANNOT_TRY) {
		print_message("%-52s cannot be tried here\n", name);
		return;
	}
	print_message("%-52s %s\n", name, r == 0 ? "served" : strerror(r));
	if (r != code)
		fail_msg("%s: %d instead of %d", name, r, code);
}

static void set_up(void)
{
	attack_stage(&stage);
	strcpy(public, attack_dataset(stage.fixture.folder, "public", DATASET_RAW, SERVICE));
	assert_int_equal(chmod(public, 0644), 0);
	strcpy(shared, attack_dataset(stage.fixture.folder, "shared", DATASET_RAW, BOB));
	strcpy(set, attack_dataset(stage.alice_folder, "set", DATASET_SET, ALICE));
	attack_dataset(stage.bob_folder, "set", DATASET_SET, BOB);
	attack_dataset(stage.bob_folder, "secret", DATASET_RAW, BOB);
	fixture_start(&stage.fixture, NULL, "--threads", "2", "--log-level", "error", NULL);
}

static void files_and_folders(void)
{
	expect("own file", own_file, 0);
	expect("a file in a closed home", file_in_a_closed_home, EACCES);
	expect("no file in a closed home", missing_file_in_private_home, EACCES);
	expect("another user's file", shared_file, EACCES);
	if (set_acl("u:64201:r")) {
		expect("the same, allowed by an ACL", shared_file, 0);
		assert_true(set_acl("u:64201:-,g::r,o::r"));
		expect("the same, denied to this user by an ACL", shared_file, EACCES);
	} else {
		print_message("no setfacl, or a file system without lists\n");
	}
	assert_int_equal(unlink(shared), 0);
	strcpy(shared, attack_dataset(stage.fixture.folder, "shared", DATASET_RAW, BOB));
	assert_int_equal(chown(shared, BOB, GROUP), 0);
	assert_int_equal(chmod(shared, 0640), 0);
	expect("a group's file, not a member", shared_file, EACCES);
	expect("a group's file, a member", shared_file_in_the_group, 0);
	assert_int_equal(chmod(shared, 0604), 0);
	expect("a file denied to a group, a member", shared_file_in_the_group, EACCES);
	expect("the same, its owner", shared_file_as_bob, 0);
}

static void names(void)
{
	struct inotify_event event;
	int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	assert_true(inotify_add_watch(watch, path_in(stage.bob_folder, "secret.pimg"),
				      IN_OPEN | IN_ACCESS) >= 0);
	assert_true(inotify_add_watch(watch, stage.bob_folder, IN_OPEN | IN_ACCESS) >= 0);
	expect("a link into a closed home", link_into_a_closed_home, EACCES);
	expect("a set with such a link", set_with_a_link, EACCES);
	expect("a link that is replaced repeatedly", swapped_link, 0);
	expect("one file by the path of another", path_of_another, 0);
	/* Neither the client nor the service has opened a file in that directory. */
	assert_int_equal(read(watch, &event, sizeof(event)), -1);
	assert_int_equal(errno, EAGAIN);
	close(watch);
}

static void namespaces_and_users(void)
{
	expect("a file mounted over another", bind_mount, 0);
	expect("a mount that only the client sees", private_mount, 0);
	expect("root of a user namespace", namespace_root, 0);
	expect("the same in a closed home", namespace_root_in_closed_home, EACCES);
	expect("a user namespace without a map", unmapped_namespace, 0);
	expect("a set-user-ID program", set_user_id, 0);
	expect("one that has dropped its privileges", set_user_id_given_back, EACCES);
	expect("the overflow user", overflow_user, EPERM);
}

static void check_landlock(void)
{
	struct feed_options options = stage.alice;
	int ready[2], status;
	char byte;
	expect("Landlock, inside", confined_inside, 0);
	expect("Landlock, outside", confined_outside, EACCES);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	options.dataset = set;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		fixture_become(ALICE);
		struct feed *feed = fixture_open(&options);
		assert_true(fixture_hash(feed, 2) != 0);
		assert_int_equal(write(ready[1], "", 1), 1);
		pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	expect("Landlock to one file of a set that is being served", confined_to_one_shard, EACCES);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
}

TEST(access_equals_the_kernels_decision)
{
	set_up();
	files_and_folders();
	names();
	namespaces_and_users();
	check_landlock();
	assert_int_equal(fixture_stop(&stage.fixture, SIGTERM), 0);
	fixture_deinit(&stage.fixture);
}

int main(void)
{
	return test_run_as_root(NULL, NULL);
}
