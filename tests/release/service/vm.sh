# Functions of the scripts that boot a virtual machine with Debian's kernel in qemu, without KVM. Source it with bash,
# with the work folder $work as the current one.

# get_kernel: gets vmlinuz, the distribution's newest kernel. Needs no modules: drivers of the disk, ext4 and cgroups are built in.
get_kernel()
{
	local package
	[ ! -e vmlinuz ] || return 0
	package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
	apt-get download "${package:?no kernel is known to apt}" && dpkg-deb --fsys-tarfile ./linux-image-*.deb | tar x --wildcards './boot/vmlinuz-*' --strip-components=2 &&
		mv vmlinuz-* vmlinuz && rm -f ./linux-image-*.deb
}

# with_libraries PROGRAM ROOT FOLDER: copies the program to the folder of the root, and the libraries that it needs
with_libraries()
{
	install -D -t "$2/$3" "$1" && ldd "$1" | grep -o '/[^ ]*' | sort -u | while read -r library; do
		[ -e "$2$library" ] || install -D "$library" "$2$library"
	done
}

# boot SECONDS APPEND ARGUMENT...: boots the file disk; the console goes to standard output and the file log
boot()
{
	local limit_s=$1 append=$2
	shift 2
	timeout "$limit_s" qemu-system-x86_64 -accel tcg -cpu max -m 2048 -smp 2 -kernel vmlinuz -append "console=ttyS0 quiet panic=-1 $append" \
		-drive file=disk,if=none,format=raw,id=disk -device nvme,drive=disk,serial=1 -nographic -no-reboot -net none "$@" </dev/null 2>&1 | sed -u 's/\r//g' | tee log
}
