# Root directories of Debian and Ubuntu releases, in which packages are built and tested. Source it with bash.

# One row per release. If set, the environment variable in the third column replaces the mirror; Ubuntu for arm64, for example, is at
# http://ports.ubuntu.com/ubuntu-ports. If a keyring is not installed, it is taken from the package of that name in Debian 13.
#
# release  mirror                            variable       components     keyring
releases='
bookworm   http://deb.debian.org/debian      MIRROR         main           debian-archive-keyring
trixie     http://deb.debian.org/debian      MIRROR         main           debian-archive-keyring
sid        http://deb.debian.org/debian      MIRROR         main           debian-archive-keyring
noble      http://archive.ubuntu.com/ubuntu  UBUNTU_MIRROR  main,universe  ubuntu-archive-keyring
'

# release_names: prints all names on one line
release_names()
{
	awk 'NF { print $1 }' <<<"$releases" | paste -sd ' '
}

# release_mirror RELEASE
release_mirror()
{
	local mirror variable
	read -r mirror variable < <(awk -v release="$1" '$1 == release { print $2, $3 }' <<<"$releases")
	echo "${!variable:-$mirror}"
}

# release_keyring NAME FOLDER: prints the path of the keyring; if it is not installed, extracts it to FOLDER
release_keyring()
{
	local file=usr/share/keyrings/$1.gpg
	if [ -e "/$file" ]; then
		echo "/$file"
		return
	fi
	rm -rf "$2"
	mmdebstrap --variant=extract --mode=root --include="$1" trixie "$2" "$(release_mirror trixie)" && echo "$2/$file"
}

# release_root RELEASE FOLDER PACKAGES: creates FOLDER with the release's essential packages, apt and PACKAGES (separated by commas).
# Leaves no FOLDER behind on failure. Requires root and mmdebstrap, which writes to standard error.
release_root()
{
	local components keyring status=0
	read -r components keyring < <(awk -v release="$1" '$1 == release { print $4, $5 }' <<<"$releases")
	[ -n "$keyring" ] || {
		echo "release '$1' is none of: $(release_names); tools/packaging/release_root.sh has a row for each" >&2
		return 1
	}
	rm -rf "$2" "$2.part"
	keyring=$(release_keyring "$keyring" "$2.keyring") &&
		mmdebstrap --variant=minbase --mode=root --components="$components" --keyring="$keyring" --include="apt,$3" "$1" "$2.part" "$(release_mirror "$1")" &&
		mv "$2.part" "$2" || status=1
	rm -rf "$2.part" "$2.keyring"
	return $status
}
