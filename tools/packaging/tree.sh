# Functions that the scripts in tools/packaging share. Source it with bash in the top folder.

fail()
{
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# version: prints the version in meson.build
version()
{
	sed -n "s/^\tversion: '\(.*\)',$/\1/p" meson.build
}

# source_date: prints the timestamp for files, in seconds since 1970: $SOURCE_DATE_EPOCH, or the time of the last commit
source_date()
{
	echo "${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date -r meson.build +%s)}"
}

# copy_tree FOLDER: copies the files that Git tracks (without Git, all files except build folders) to a new folder
copy_tree()
{
	rm -rf "$1"
	mkdir -p "$1"
	if [ -e .git ]; then
		git ls-files -z
	else
		find . \( -path "./build*" -o -name __pycache__ \) -prune -o -type f -printf "%P\0"
	fi | tar --create --null --files-from=- | tar --extract --directory="$1"
}

# with_ccache COMMAND...: runs the command with ccache if it is installed; its cache stays in place even if the command changes HOME
with_ccache()
{
	if command -v ccache >/dev/null; then
		CCACHE_DIR=${CCACHE_DIR:-$(ccache --get-config cache_dir)} CC="ccache gcc" "$@"
	else
		"$@"
	fi
}
