# Extended reliable connections between the cards of a guest; "pair" is in pair.sh.
# shellcheck disable=SC2034
echo "== devices"
ibv_devinfo -v
SERVER='' CLIENT=server
pair xsrq_pingpong ibv_xsrq_pingpong -n 20 -s 2000 -g 0
pair xsrq_pingpong_events ibv_xsrq_pingpong -e -n 20 -s 4096 -g 0
pair ib_send_bw ib_send_bw -c XRC -n 20 -s 4096 -r 16
