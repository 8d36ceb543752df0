# What a guest with two cards does in one boot: frames, then programs of rdma-core between its two
# network namespaces. "== NAME" begins what each of them says, "status NAME SERVER CLIENT" ends it.
# It needs "pair" (pair.sh), which reads SERVER and CLIENT.
# shellcheck disable=SC2034
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
