# Shared by tools/check and the parts of tools/check-release; source it with bash in the top folder.
#
# The result of a test is a line of JSON in one of the files ${logs[@]}, written by Meson or by `item`. `finish` counts them.
export CI=${CI:-true} LC_ALL=C.UTF-8 NINJA_STATUS='[%f/%t] '
broken=0 # builds and runs that failed without the result of a test
logs=()
items_begun=
without_randomisation=
exec </dev/null

# Use Debian's interpreter, which has the Python packages, even if PATH has another one first.
PATH=/usr/bin:$PATH

# The sanitizers end a program at the first error, with a message.
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1

step()
{
	printf '\n== %s\n' "$*"
}

# attempt DIRECTORY COMMAND...: runs a step of a build; prints its log if it fails
attempt()
{
	local directory=$1 log=$1.log
	shift
	"$@" >>"$log" 2>&1 && return
	cat "$log"
	echo "check: $directory does not build; its log is above and in $log"
	broken=$((broken + 1))
	return 1
}

setup()
{
	meson setup "$@" || meson setup --wipe "$@"
}

# configure DIRECTORY OPTION...
configure()
{
	rm -f "$1.log"
	attempt "$1" setup "$@"
}

# compile DIRECTORY [TEST...]: builds what these tests need, or everything
compile()
{
	local directory=$1 files=() begun=$SECONDS
	shift
	[ $# = 0 ] || mapfile -t files < <(needs "$directory" "$@")
	attempt "$directory" ninja -C "$directory" "${files[@]}" &&
		mv "$directory.log" "$directory/check-build.log" &&
		echo "$directory: built in $((SECONDS - begun)) s"
}

# Machine code for one GPU, because compiling it takes longest; the sanitizer builds of tools/check-release have all.
build_release()
{
	configure build-check -Dwerror=true -Dgpu_arch=90 && compile build-check
}

# -g1: line numbers for traces, but no types, which take a fifth of the compile time and a third of the objects
sanitizer_options=(-Dwerror=true -Doptimization=1 -Dc_args=-g1 -Dcpp_args=-g1)

# configure_asan DIRECTORY OPTION...
configure_asan()
{
	configure "$@" "${sanitizer_options[@]}" -Db_sanitize=address,undefined
}

# The thread sanitizer does not work with the address randomisation of newer kernels. None of its tests needs CUDA.
configure_tsan()
{
	configure build-check-tsan "${sanitizer_options[@]}" -Db_sanitize=thread -Dcuda=disabled || return
	if setarch -R true 2>/dev/null; then
		without_randomisation='setarch -R'
	fi
}

# tests DIRECTORY SUITE FOLDER-OR-PROGRAM...: prints the names of the tests whose program is one of these, or whose program or script is below one of these
# folders. SUITE: only tests of this suite; with a ! in front, only others; empty, all. A ! in front of a folder excludes it.
tests()
{
	python3 - "$@" <<-'END'
		import json, os, subprocess, sys
		directory, suite = os.path.abspath(sys.argv[1]), sys.argv[2]
		def below(words, folders):
		    tops = [os.path.join(top, folder, "") for folder in folders for top in (directory, os.getcwd())]
		    return any((os.path.normpath(word) + "/").startswith(top) for word in words for top in tops)
		wanted = [folder for folder in sys.argv[3:] if folder[0] != "!"]
		others = [folder[1:] for folder in sys.argv[3:] if folder[0] == "!"]
		found = subprocess.run(["meson", "introspect", "--tests", directory], check=True, capture_output=True)
		for test in json.loads(found.stdout):
		    inside = any(name.split(":")[-1] == suite.lstrip("!") for name in test["suite"])
		    if suite and inside == suite.startswith("!"):
		        continue
		    if below(test["cmd"][:2], wanted) and not below(test["cmd"][:2], others):
		        print(test["name"])
	END
}

# needs DIRECTORY TEST...: prints the ninja targets that these tests need
needs()
{
	python3 - "$@" <<-'END'
		import json, os, subprocess, sys
		directory, names = os.path.abspath(sys.argv[1]), set(sys.argv[2:])
		found = subprocess.run(["meson", "introspect", "--tests", "--targets", directory], check=True, capture_output=True)
		found = json.loads(found.stdout)
		wanted = {target for test in found["tests"] if test["name"] in names for target in test["depends"]}
		for target in found["targets"]:
		    if target["id"] in wanted:
		        for path in target["filename"]:
		            print(os.path.relpath(path, directory))
	END
}

# run DIRECTORY LOG-NAME [OPTION or TEST...]: runs 1.5 tests per CPU in parallel, because some mostly wait
run()
{
	local directory=$1 name=$2
	shift 2
	rm -f "$directory/meson-logs/$name.json"
	$without_randomisation meson test -C "$directory" --no-rebuild --print-errorlogs --logbase "$name" --num-processes $(($(nproc) * 3 / 2)) "$@" ||
		[ -s "$directory/meson-logs/$name.json" ] || broken=$((broken + 1))
	logs+=("$directory/meson-logs/$name.json")
}

# item NAME COMMAND...: runs a test outside Meson; exit status 77 skips it, as with Meson. When a part continues after an interruption, items that
# have passed are not repeated; tools/check-release lists them in $CHECK_ITEMS.
item()
{
	local name=$1 log=${CHECK_ITEMS:-build-check/items.json} result status=0 begun=$SECONDS
	shift
	[ -n "$items_begun" ] || { items_begun=1; logs+=("$log"); [ -n "${CHECK_ITEMS-}" ] || rm -f "$log"; }
	if grep -qs "^{\"name\": \"$name\", \"duration\": [0-9]*, \"result\": \"OK\"}" "$log"; then
		echo "$name: passed before the interruption"
		return
	fi
	"$@" || status=$?
	case $status in
	0) result=OK ;;
	77) result=SKIP ;;
	130 | 143) exit $status ;;
	*) result=FAIL ;;
	esac
	mkdir -p "${log%/*}"
	[ ! -f "$log" ] || sed -i "\\|^{\"name\": \"$name\",|d" "$log"
	printf '{"name": "%s", "duration": %d, "result": "%s"}\n' "$name" $((SECONDS - begun)) "$result" >>"$log"
	echo "$name: $result"
}

# finish: prints the slowest, the skipped and the failed tests; the last line is "N passed, N failed, N skipped". Exits with 0 only if nothing failed.
finish()
{
	python3 - "$broken" "$SECONDS" "${logs[@]}" <<-'END'
		import collections, json, sys

		KINDS = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped"}
		count = collections.Counter(failed=int(sys.argv[1]))
		failed, skipped, times = [], [], []
		for log in sys.argv[3:]:
		    try:
		        lines = open(log).read().splitlines()
		    except OSError:
		        lines = []
		    for line in lines:
		        test = json.loads(line)
		        kind = KINDS.get(test["result"], "failed")
		        count[kind] += 1
		        where = f"{log.split('/')[0]}: {test['name']}"
		        times.append((test.get("duration", 0), where))
		        if kind == "failed":
		            failed.append(f"{where} ({test['result'].lower()})")
		        elif kind == "skipped":
		            skipped.append(where)
		print()
		for seconds, where in sorted(times, reverse=True)[:10]:
		    print(f"{seconds:6.1f} s  {where}")
		for line in skipped:
		    print(f"skipped  {line}")
		for line in failed:
		    print(f"FAILED   {line}")
		if not count["passed"] and not count["skipped"]:
		    print("check: no test has run")
		    count["failed"] += not count["failed"]
		print(f"{int(sys.argv[2]) // 60} min {int(sys.argv[2]) % 60} s")
		print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
		sys.exit(count["failed"] > 0)
	END
	exit
}
