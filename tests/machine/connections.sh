# Programs of rdma-core that connect by the connection manager, between two cards in one guest. It
# needs "pair" (pair.sh), which reads SERVER and CLIENT.
# shellcheck disable=SC2034
SERVER='' CLIENT='-s server'
pair ucmatose ucmatose -c 3 -C 10 -S 5000
pair udaddy udaddy -c 3 -C 10 -S 1000
# A server that does not end by itself; the clock of an idle guest goes on to its end.
SERVER='timeout 60 cmtime -c 5' CLIENT='cmtime -c 5 -s server'
pair cmtime env
# Its client is another program than its server.
SERVER=rdma_server CLIENT='rdma_client -s server'
pair rdma_server env
# The sender's first datagrams are lost if nobody has joined the group before.
SERVER='-b 10.0.0.1' CLIENT='-b 10.0.0.2 -s'
pair mckey mckey -m 239.1.2.3 -C 10 -S 1000
cut -d' ' -f1 /proc/uptime
