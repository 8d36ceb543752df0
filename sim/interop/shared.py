"""Shared receive queues: messages of several queue pairs into the buffers of one queue."""

from __future__ import annotations

import random
from collections import deque

from sim.interop.parties import Connection, ConnectionOptions, Party, Region
from sim.interop.traffic import Mismatch, Tally, completions

__all__ = ["shared_receives"]

#: Queue pairs, messages that each side sends on each, and bytes of a buffer.
_QPS, _MESSAGES, _BUFFER = 4, 12, 4096
_BUFFERS = _QPS * _MESSAGES
#: wr_id of sends from here on.
_SENDS = 1000


def shared_receives(parties: tuple[Party, Party], tally: Tally) -> None:
    """SENDs both ways at once, each side's queue pairs taking from one queue. Raises Mismatch.

    Each buffer is taken once, by whichever queue pair gets a message first. A queue pair's messages
    must come in order, each whole in the buffer that its completion names, and nothing behind it.
    """
    rng = random.Random(4)
    srqs = [party.client.call("create_srq", max_wr=_BUFFERS)["srq"] for party in parties]
    connections = [
        Connection.open(parties, ConnectionOptions(psns=(i << 20, i << 19), srqs=tuple(srqs)))
        for i in range(_QPS)
    ]
    inboxes = [Region.register(party, _BUFFERS * _BUFFER) for party in parties]
    outboxes = [Region.register(party, _BUFFERS * _BUFFER) for party in parties]
    data = [rng.randbytes(_BUFFERS * _BUFFER) for _ in parties]
    for i, party in enumerate(parties):
        outboxes[i].write(data[i])
        for number in range(_BUFFERS):
            sge = [[inboxes[i].mr, number * _BUFFER, _BUFFER]]
            party.client.call("post_recv", srq=srqs[i], wr_id=number, sge=sge)
    sizes = [[rng.randrange(_BUFFER + 1) for _ in range(_BUFFERS)] for _ in parties]
    for number in range(_BUFFERS):
        for i, party in enumerate(parties):
            party.client.call(
                "post_send",
                qp=connections[number % _QPS].qps[i],
                wr_id=_SENDS + number,
                opcode="SEND",
                sge=[[outboxes[i].mr, number * _BUFFER, sizes[i][number]]],
                flags=["SIGNALED"],
            )
    for i in (0, 1):
        _check(i, connections, inboxes[i], data[1 - i], sizes[1 - i])
    for connection in connections:
        connection.close()
    for i, party in enumerate(parties):
        party.client.call("destroy_srq", srq=srqs[i])
        for region in (inboxes[i], outboxes[i]):
            party.client.call("dereg_mr", mr=region.mr)
    tally.messages += 2 * _BUFFERS
    tally.bytes_verified += sum(map(sum, sizes))


def _check(
    index: int, connections: list[Connection], inbox: Region, data: bytes, sizes: list[int]
) -> None:
    """What a party has received of ``data``, whose message N begins at N times the buffer."""
    party = inbox.party
    waiting = {
        connection.qpns[index]: deque(range(i, _BUFFERS, _QPS))
        for i, connection in enumerate(connections)
    }
    sent, image = 0, bytearray(inbox.length)
    free = set(range(_BUFFERS))
    for wc in completions(party, 2 * _BUFFERS):
        if wc["status"] != "SUCCESS":
            raise Mismatch(f"{party.name}: a SEND ended with {wc['status']}")
        if wc["wr_id"] >= _SENDS:
            sent += 1
            continue
        number = waiting[wc["qp_num"]].popleft()
        size, buffer = sizes[number], wc["wr_id"]
        if wc["byte_len"] != size or buffer not in free:
            raise Mismatch(f"{party.name}: message {number} of {size} bytes: {wc}")
        free.remove(buffer)
        place = number * _BUFFER
        image[buffer * _BUFFER : buffer * _BUFFER + size] = data[place : place + size]
    if sent != _BUFFERS or free:
        raise Mismatch(f"{party.name}: {sent} SENDs completed, {len(free)} buffers left")
    if inbox.read() != image:
        raise Mismatch(f"{party.name}: a buffer of the shared receive queue differs")
