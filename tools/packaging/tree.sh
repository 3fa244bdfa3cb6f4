# What those who make packages of a tree share; sourced by bash in the top folder.

fail()
{
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# version: meson.build's, the one place that has it
version()
{
	sed -n "s/^\tversion: '\(.*\)',$/\1/p" meson.build
}

# day: the time that files get, in seconds since 1970: $SOURCE_DATE_EPOCH, or that of the last commit
day()
{
	echo "${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date -r meson.build +%s)}"
}

# copy_tree FOLDER: what git follows, or, of a tree without git, all but the builds, into a new folder
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

# with_ccache COMMAND...: runs it with a compiler's cache, if there is one, which stays where it is when HOME changes
with_ccache()
{
	if command -v ccache >/dev/null; then
		CCACHE_DIR=${CCACHE_DIR:-$(ccache --get-config cache_dir)} CC="ccache gcc" "$@"
	else
		"$@"
	fi
}
