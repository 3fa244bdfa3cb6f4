# Functions of `boot` and `packages`, the scripts that boot a container. Both parts of each script, outside and inside the container, source
# it with bash.
#
# The container runs the script as "/srv/NAME inside"; its output is the report. The script sets $batches and $pipeline, for feeds.
export LC_ALL=C.UTF-8
services='dbus libpam-systemd procps systemd systemd-sysv'
failed=0
self=$(readlink -f "$0")

fail()
{
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# check WHAT COMMAND...: reports whether the command succeeds; prints its output if not
check()
{
	local what=$1 output
	shift
	if output=$("$@" 2>&1); then
		printf 'ok      %s\n' "$what"
	else
		printf 'FAILED  %s: %s\n%s\n' "$what" "$*" "$output"
		failed=1
	fi
}

# until_true SECONDS COMMAND...
until_true()
{
	local left=$(($1 * 10))
	shift
	while ! "$@" >/dev/null 2>&1; do
		[ $((left -= 1)) -gt 0 ] || return 1
		sleep 0.1
	done
}

# ---- inside the container ----

is()
{
	[ "$1" = "$2" ] || { printf '"%s" is not "%s"\n' "$1" "$2"; return 1; }
}

property()
{
	systemctl show --value -p "$1" loaderd.service
}

# prints the pids of the service's processes
processes()
{
	pgrep -x loaderd
}

none()
{
	! "$@"
}

as()
{
	local user=$1
	shift
	runuser -u "$user" -- env XDG_RUNTIME_DIR="/run/user/$(id -u "$user")" "$@"
}

# start_feed USER SOCKET: starts a feed in the background that runs until the following checks have ended
start_feed()
{
	(cd "/home/$1" && as "$1" loaderbench --socket "$2" --hash "$batches" --batch 64 data.pimg "$pipeline" >"/tmp/$1.hash" 2>&1
		touch "/tmp/$1.over") &
}

# same_batches USER: checks that the feed's batches are those of a private daemon, each once
same_batches()
{
	is "$(grep -oE '^[0-9a-f]{32}' "/tmp/$1.hash")" "$(grep -oE '^[0-9a-f]{32}' /srv/expected)" || { cat "/tmp/$1.hash"; return 1; }
}

feeds()
{
	"$@" | grep -o '"feed_id"' | wc -l
}

count_is()
{
	is "$(feeds "${@:2}")" "$1"
}

processes_are()
{
	is "$(processes | wc -l)" "$1"
}

# journal PATTERN [SINCE]
journal()
{
	journalctl --quiet -o cat -u loaderd.service --since "${2-yesterday}" | grep -E "$1"
}

main_pid()
{
	property MainPID
}

# restarted_since PID: whether the service is active with another supervisor and serves both users again
restarted_since()
{
	[ "$(property ActiveState)" = active ] && [ "$(main_pid)" != "$1" ] && count_is 2 loaderctl --json status --all
}

# add_user USER: adds a user with a copy of the data that nobody else can read
add_user()
{
	useradd --create-home "$1"
	chmod 0700 "/home/$1"
	install -o "$1" -m 0600 /srv/data.pimg "/home/$1"
}

# ---- outside the container, in the current folder ----

# can_boot: fails unless this user on this machine can boot a container
can_boot()
{
	[ "$(id -u)" = 0 ] || fail 'a container is booted by root'
	command -v mmdebstrap systemd-nspawn >/dev/null || fail 'apt-get install mmdebstrap systemd-container'
}

# make_base PACKAGES [RELEASE]: creates a root directory with these packages, separated by commas, in base unless it exists
make_base()
{
	[ "$(cat base.packages 2>/dev/null)" != "$1" ] || return 0
	. "${self%/*}/../../../tools/packaging/release_root.sh"
	release_root "${2:-bookworm}" base "$1" >base.log 2>&1 || fail "mmdebstrap failed; $PWD/base.log says why"
	echo "$1" >base.packages
}

# make_data BUILD: creates data.pimg, and writes the expected hash of a feed's batches to expected
make_data()
{
	if [ ! -e data.pimg ]; then
		"$1/tools/shapes/shapes" --count 1200 images >shapes.log && "$1/tools/packimg/packimg" convert images/train -o data.pimg >shapes.log || exit 1
	fi
	LOADERD=$1/loaderd/loaderd "$1/bench/loaderbench" --hash "$batches" --batch 64 data.pimg "$pipeline" >expected || exit 1
}

# make_reader BUILD: creates read.py, which reads an epoch of data.pimg from a socket or the default daemon, and writes its
# expected output to expected.python
make_reader()
{
	cat >read.py <<-'END'
		import hashlib, sys
		from loaderd import Feed
		digest = hashlib.sha256()
		for batch in Feed("data.pimg", pipeline="random_resized_crop(64)", batch_size=64, shuffle=True, socket=(sys.argv[1:] or [None])[0]):
		    digest.update(batch.images.tobytes() + batch.labels.tobytes())
		print(digest.hexdigest())
	END
	PYTHONPATH=$1/proto/python LOADERD=$1/loaderd/loaderd /usr/bin/python3 read.py >expected.python || exit 1
}

# new_root: copies base to root; at boot, it runs this script. Shortens the watchdog's timeout and keeps the journal.
new_root()
{
	rm -rf root && cp -a base root || exit 1
	cp data.pimg expected "$self" "${self%/*}/container.sh" root/srv/
	mkdir -p root/etc/systemd/system/loaderd.service.d root/var/log/journal root/etc/systemd/system/default.target.wants
	printf '[Service]\nWatchdogSec=3s\n' >root/etc/systemd/system/loaderd.service.d/watchdog.conf
	cat >root/etc/systemd/system/check.service <<-END
		[Unit]
		After=multi-user.target systemd-user-sessions.service
		SuccessAction=exit
		FailureAction=exit
		FailureActionExitStatus=1
		[Service]
		Type=oneshot
		ExecStart=/srv/${self##*/} inside
		StandardOutput=append:/srv/report
		TimeoutStartSec=600
	END
	ln -s ../check.service root/etc/systemd/system/default.target.wants/
}

# boot_root: boots root, prints the report, and exits with the script's status
boot_root()
{
	local container status
	# nspawn searches /run/systemd for the host's systemd, which may be missing. Resets the nice value, so that the
	# container's services start with 0.
	unshare --mount sh -c 'renice -n 0 -p $$ >/dev/null; mount -t tmpfs tmpfs /run/systemd && exec timeout --kill-after=10 900 \
		systemd-nspawn --quiet --register=no --keep-unit --private-network --console=pipe --boot --directory=root -- --show-status=no --log-level=notice' \
		</dev/null >console.log 2>&1 &
	container=$!
	trap 'kill "$container"; wait "$container"' INT TERM HUP
	wait "$container"
	status=$?
	cat root/srv/report || fail "nothing came of it; see $PWD/console.log"
	exit $status
}
