# What Linux' own virtio_net does with the network functions of two cards: eth0 is the first one's,
# eth1 the second one's, in the network namespace "client". Each function tries one thing. It prints
# what it looks at, and the guest's command ends with the first one that is not as it should be:
#
#     ./rocinante guest --cards 2 --network 2 bash -c "$(cat tests/machine/interface.sh); vlan"
set -eu -o pipefail

# there COMMAND...: beside the second card
there() { ip netns exec client "$@"; }

# echoes ADDRESS [OPTIONS]: three of them come back
echoes() {
    local address=$1
    shift
    ping -c 3 -i 0.01 -W 5 "$@" "$address"
}

# refuses COMMAND...: it fails
refuses() {
    if "$@"; then
        echo "this should have failed: $*"
        return 1
    fi
}

# received NAME: how many frames the second card's driver has had from it
received() { there cat "/sys/class/net/eth1/statistics/$1"; }

# first_addresses, second_addresses: those of an interface that has just come
first_addresses() {
    ip addr add 10.0.0.1/24 dev eth0
    ip link set eth0 mtu 9000 up
}
second_addresses() {
    ip link set eth1 netns client
    there ip addr add 10.0.0.2/24 dev eth1
    there ip link set eth1 mtu 9000 up
}

# Frames as long as an interface lets them be. RDMA's path MTU follows.
mtu() {
    local size
    for size in 1280 1500 4242 9000; do
        ip link set eth0 mtu $size
        there ip link set eth1 mtu $size
        echoes client -M "do" -s $((size - 28))
        echoes fd00::2 -M "do" -s $((size - 48))
        refuses ping -c 1 -M "do" -s $((size - 27)) client
        ibv_devinfo | grep active_mtu
    done
    refuses ip link set eth0 mtu 9001
}

# An interface that is down hears nothing, and the port with it.
down_and_up() {
    local _
    for _ in 1 2 3; do
        echoes client
        ip link set eth0 down
        ibv_devinfo | grep PORT_DOWN
        refuses there ping -c 1 -W 1 server
        ip link set eth0 up
        ibv_devinfo | grep PORT_ACTIVE
    done
    echoes client
}

# What the driver and the card say of themselves.
facts() {
    echoes client
    ethtool eth0
    ethtool -i eth0
    ethtool -k eth0
    ethtool -l eth0
    ethtool -S eth0
}

# An interface on top of it, whose frames have a tag.
vlan() {
    ip link add link eth0 name eth0.5 type vlan id 5
    ip addr add 10.5.0.1/24 dev eth0.5
    ip link set eth0.5 up
    there ip link add link eth1 name eth1.5 type vlan id 5
    there ip addr add 10.5.0.2/24 dev eth1.5
    there ip link set eth1.5 up
    echoes 10.5.0.2
    echoes 10.5.0.2 -M "do" -s 8972
    ip -d link show eth0.5
}

# The driver goes and comes back while frames are on their way, of one card and then of both.
reload() {
    local _ pci=/sys/bus/pci/drivers/virtio-pci
    for _ in 1 2; do
        # Not by "there": of a function in the background the shell would be killed alone.
        ip netns exec client ping -q -i 0.002 -c 100 -W 1 server >/dev/null 2>&1 &
        usleep 20000
        echo 0000:00:04.0 >$pci/unbind
        echo 0000:00:04.0 >$pci/bind
        first_addresses
        echoes client
        kill $! 2>/dev/null || true
        wait $! || true
        ibv_devinfo | grep PORT_ACTIVE
    done
    for _ in 1 2; do
        ping -q -i 0.002 -c 100 -W 1 client >/dev/null 2>&1 &
        usleep 20000
        rmmod virtio_net
        kill $! 2>/dev/null || true
        wait $! || true
        modprobe virtio_net
        first_addresses
        second_addresses
        echoes client
    done
}

# A quarter of a megabyte by TCP each way at once, by IPv4 and IPv6, with checksums by the card and
# by the guest: each byte is compared. The card looks at the checksums of what is received.
data() {
    local by to back
    for by in on off; do
        ethtool -K eth0 tx $by
        there ethtool -K eth1 tx $by
        ethtool -k eth0 | grep "rx-checksumming: on"
        ethtool -k eth0 | grep "tx-checksumming: $by"
        for address in "client server" "fd00::2 fd00::1"; do
            read -r to back <<<"$address"
            head -c 250000 /dev/urandom >/tmp/there
            head -c 250000 /dev/urandom >/tmp/here
            there nc.openbsd -N -l "$to" 7000 </tmp/there >/tmp/got_there &
            usleep 100000
            nc.openbsd -N "$to" 7000 </tmp/here >/tmp/got_here
            wait $!
            sha256sum /tmp/here /tmp/got_there /tmp/there /tmp/got_here
            cmp /tmp/here /tmp/got_there
            cmp /tmp/there /tmp/got_here
            echo "$to $back: the same"
        done
    done
    grep Tcp: /proc/net/snmp
}

# The card's filter: what is not for an interface does not come to it, unless it wants all.
filter() {
    local _ before
    ip neigh replace 10.0.0.9 lladdr 02:00:00:00:00:99 dev eth0 nud permanent
    before=$(received rx_packets)
    refuses ping -c 3 -i 0.01 -W 0.1 10.0.0.9
    refuses ping -c 3 -i 0.01 -W 0.1 -I eth0 239.1.2.3
    [ "$(received rx_packets)" = "$before" ]
    there ip maddr add 01:00:5e:01:02:03 dev eth1
    refuses ping -c 3 -i 0.01 -W 0.1 -I eth0 239.1.2.3
    [ "$(received rx_packets)" = $((before + 3)) ]
    there tcpdump -Z root -l -n -e -c 3 -i eth1 icmp and dst 10.0.0.9 >/tmp/dump &
    for _ in {1..100}; do
        ! there ip -d link show eth1 | grep "promiscuity 1" || break
        usleep 50000
    done
    refuses ping -c 3 -i 0.01 -W 0.1 10.0.0.9
    wait $!
    cat /tmp/dump
    [ "$(grep -c '> 02:00:00:00:00:99' /tmp/dump)" = 3 ]
    there ip -d link show eth1 | grep 'promiscuity 0'
    before=$(received rx_packets)
    refuses ping -c 3 -i 0.01 -W 0.1 10.0.0.9
    [ "$(received rx_packets)" = "$before" ]
}

# A datagram of each of 32 ports, all of which have come when it ends.
many_flows() {
    python3 -c "
import socket
for port in range(2000, 2032):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(('10.0.0.1', port))
        one.sendto(b'x' * port, ('10.0.0.2', 9000))"
    echoes client
}

# Flows are spread as the driver says: by a key and a table of its own, and over chosen queues.
spread() {
    local weight
    there ethtool -L eth1 combined 2
    there ethtool -x eth1
    there ethtool -x eth1 | grep "toeplitz: on"
    there ethtool -X eth1 hkey "$(printf '6d:5a:%.0s' {1..19})6d:5a"
    there ethtool -x eth1 | grep -i "6d:5a:6d:5a"
    for weight in "0 1" "1 0" "1 1"; do
        # shellcheck disable=SC2086
        there ethtool -X eth1 weight $weight
        many_flows
        echo "weight $weight"
        there ethtool -S eth1 | grep 'rx_queue_._packets'
    done
}

# As many pairs of queues as the card has: flows are spread over those that are used.
pairs() {
    local count
    ethtool -l eth1 2>/dev/null || there ethtool -l eth1
    for count in 2 1 2; do
        ethtool -L eth0 combined $count 2>/dev/null || true
        there ethtool -L eth1 combined $count 2>/dev/null || true
        there ethtool -l eth1 | grep "Combined:.*$count"
        many_flows
        there ethtool -S eth1 | grep 'rx_queue_._packets'
    done
}
