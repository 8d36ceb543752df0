# NVMe over RDMA: both sides are drivers of the kernel. "target" gives others a disk of null_blk,
# "initiator ADDRESS" uses it and compares each byte. Both end with the first thing that fails.
#
#     script=$(cat tests/machine/nvme.sh)
#     ./rocinante guest --peer card \
#         bash -c "$script; target" :: bash -c "$script; initiator 10.0.0.1"
set -eu -o pipefail

# What both drivers have said, and what no kernel should say.
kernel_log() {
    echo "== log"
    dmesg | sed 's/^.\{15\}//' | grep -E '^nvme|^rocinante|WARNING:|BUG:' || true
}

NQN=nqn.2026-01.example:disk
PORT=4420 OVER=4421
DISK=/dev/nvme0n1
BYTES=1048576

trap kernel_log EXIT

# The disk is there for whoever connects, until the other side says that it is done. Then what is
# on the disk is told.
target() {
    modprobe null_blk nr_devices=1 gb=1 memory_backed=1
    modprobe nvmet_rdma
    mount -t configfs none /sys/kernel/config
    cd /sys/kernel/config/nvmet
    mkdir -p subsystems/$NQN/namespaces/1 ports/1
    echo 1 >subsystems/$NQN/attr_allow_any_host
    echo /dev/nullb0 >subsystems/$NQN/namespaces/1/device_path
    echo 1 >subsystems/$NQN/namespaces/1/enable
    echo rdma >ports/1/addr_trtype
    echo ipv4 >ports/1/addr_adrfam
    echo 10.0.0.1 >ports/1/addr_traddr
    echo $PORT >ports/1/addr_trsvcid
    ln -s "$PWD/subsystems/$NQN" ports/1/subsystems/
    cd /
    nc.openbsd -l $OVER >/dev/null
    echo "== disk"
    dd if=/dev/nullb0 bs=64k count=$((BYTES / 65536)) status=none | sha256sum
}

# appears FILE: the driver looks for disks when it has connected
appears() {
    local _
    for _ in {1..400}; do
        [ ! -b "$1" ] || return 0
        usleep 50000
    done
    return 1
}

# through COUNT BLOCK [direct]: so many new blocks to the disk and back, past the page cache or not
through() {
    local in=skip_bytes out=seek_bytes
    if [ "${3-}" ]; then in=direct out=direct; fi
    dd if=/dev/urandom of=/tmp/data bs="$2" count="$1" iflag=fullblock status=none
    dd if=/tmp/data of=$DISK bs="$2" oflag=$out conv=fsync status=none
    echo 3 >/proc/sys/vm/drop_caches
    dd if=$DISK of=/tmp/back bs="$2" count="$1" iflag=$in status=none
    cmp /tmp/data /tmp/back
    echo "$1 of $2: the same"
}

initiator() {
    trap 'kernel_log; nc.openbsd -N '"$1 $OVER"' </dev/null && sleep 2 || true' EXIT
    modprobe nvme_rdma
    echo "== discover"
    nvme discover -t rdma -a "$1" -s $PORT
    echo "== connect"
    # The target's clock goes on while this side's card works, so a keep-alive may come late.
    nvme connect -t rdma -a "$1" -s $PORT -n $NQN --keep-alive-tmo=600
    appears $DISK
    nvme list
    echo "== data"
    through 32 4096 direct # written from the request itself
    through 8 131072 direct
    through 1 1048576 direct
    through 16 65536 # by the page cache, which has many requests under way
    echo "== hash"
    sha256sum </tmp/data
    echo "== disconnect"
    nvme disconnect -n $NQN
}
