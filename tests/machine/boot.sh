# What a guest with two cards does in one boot: frames, then programs of rdma-core between its two
# network namespaces. "== NAME" begins what each of them says, "status NAME SERVER CLIENT" ends it.
# shellcheck source=/dev/null
. /etc/serving

# pair NAME COMMAND...: as a server here, and beside the second card as a client of it. SERVER and
# CLIENT are what each side's command ends with.
pair() {
    local name=$1 before tries=0 process client
    shift
    echo "== $name"
    before=$(listeners)
    # shellcheck disable=SC2086 # nothing, or words
    "$@" $SERVER >/tmp/server 2>&1 </dev/null &
    process=$!
    while [ -e "/proc/$process" ] && [ $tries -lt 100 ] && [ "$(listeners)" = "$before" ]; do
        tries=$((tries + 1))
        usleep 20000
    done
    # shellcheck disable=SC2086
    ip netns exec client "$@" $CLIENT 2>&1
    client=$?
    wait $process
    echo "status $name $? $client"
    sed 's/^/server: /' /tmp/server
}

echo "== interfaces"
ip -d link
for slot in 4 5; do lspci -vv -s $slot.0; done
ip neigh
echo "== ping"
ping -c 3 -i 0.01 -W 5 client
ping -c 3 -i 0.01 -W 5 fd00::2
ping -c 3 -i 0.01 -W 5 -s 8952 -M "do" client
echo "== neighbours"
ip neigh
echo "== devices"
ibv_devinfo -v
SERVER='' CLIENT=server
pair ibv_rc_pingpong ibv_rc_pingpong -n 10 -s 1024 -r 8 -g 0
pair ibv_ud_pingpong ibv_ud_pingpong -n 10 -s 1024 -r 8 -g 0
pair ib_write_bw ib_write_bw -n 20 -s 4096
SERVER=-s CLIENT='-c -a server'
pair rping rping -C 2 -v
echo "== counters"
ip -s link show eth0
cut -d' ' -f1 /proc/uptime
