# Starts a daemon with a running client. Limits the duration of commands that would run forever.
shapes images --count 600
packimg convert images/train -o train.pimg
export LOADERD_SOCKET=$PWD/loaderd.sock
loaderd --config /dev/null --socket "$LOADERD_SOCKET" &
for ((i = 0; i < 300; i++)); do
	[ ! -S "$LOADERD_SOCKET" ] || break
	sleep 0.1
done
loaderbench --socket "$LOADERD_SOCKET" --seconds 600 train.pimg &
loaderctl()
{
	local status=0
	timeout 3 "$(type -P loaderctl)" "$@" || status=$?
	[ $status = 0 ] || [ $status = 124 ]
}
