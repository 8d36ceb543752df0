# Programs with two sides, between the cards of a guest; for scripts that run in one.
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
    # shellcheck disable=SC2086,SC2153
    ip netns exec client "$@" $CLIENT 2>&1
    client=$?
    wait $process
    echo "status $name $? $client"
    sed 's/^/server: /' /tmp/server
}
