# What the trials share that boot a kernel of their own: Debian's, by qemu without hardware support; sourced by bash, with $work, where it is made, as the current folder.

# get_kernel: vmlinuz. The newest kernel of the distribution, without its modules: a disk, ext4 and control groups are built in.
get_kernel()
{
	local package
	[ ! -e vmlinuz ] || return 0
	package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
	apt-get download "${package:?no kernel is known to apt}" && dpkg-deb --fsys-tarfile ./linux-image-*.deb | tar x --wildcards './boot/vmlinuz-*' --strip-components=2 &&
		mv vmlinuz-* vmlinuz && rm -f ./linux-image-*.deb
}

# with_libraries PROGRAM ROOT FOLDER: into the folder of the root, and what it is linked with
with_libraries()
{
	install -D -t "$2/$3" "$1" && ldd "$1" | grep -o '/[^ ]*' | sort -u | while read -r library; do
		[ -e "$2$library" ] || install -D "$library" "$2$library"
	done
}

# boot SECONDS APPEND ARGUMENT...: what the machine says goes to standard output and the file log. Its disk is the file disk.
boot()
{
	local limit_s=$1 append=$2
	shift 2
	timeout "$limit_s" qemu-system-x86_64 -accel tcg -cpu max -m 2048 -smp 2 -kernel vmlinuz -append "console=ttyS0 quiet panic=-1 $append" \
		-drive file=disk,if=none,format=raw,id=disk -device nvme,drive=disk,serial=1 -nographic -no-reboot -net none "$@" </dev/null 2>&1 | sed -u 's/\r//g' | tee log
}
