"""Writes docs/cm.md: ``python -m hdl.abi.mad_docs`` prints the page."""

from __future__ import annotations

from hdl.abi import mad
from hdl.wire.docs import header_section

_INTRODUCTION = """\
# Connection manager

The connection manager lets two queue pairs find each other by MADs between the QP1 of two ports. It
is a part of the driver, above the verbs, and its calls are those of librdmacm. Two simulated cards
connect and disconnect with it (`tests/nic/bench_cm.py`). Its messages are those of Linux: the
recording of `rping` is taken and written to the last byte (`tests/sim/test_cm.py`). A live Linux
connects to a card, and a card to it. `python -m hdl.abi.mad_docs > docs/cm.md` writes this page,
and a test keeps it current.

```python
agent = await Agent.open(ctx, neighbours.get)      # GID -> MAC address
start_soon(agent.run())                            # carries MADs until agent.close()

listener = agent.listen(7471)                      # the one side
one = await listener.get_request()
await one.accept(qp, ConnParam(b"welcome"))        # QP to RTS, REP, waits for the RTU

one = await agent.connect(qp, peer_gid, 7471, ConnParam(b"hello"))  # the other side
await one.disconnect()                             # QP to ERR, DREQ, waits for the DREP
```

```mermaid
stateDiagram-v2
    [*] --> REQ_SENT: connect
    REQ_SENT --> REP_RECEIVED: REP
    REP_RECEIVED --> ESTABLISHED: establish sends RTU
    [*] --> REQ_RECEIVED: REQ
    REQ_RECEIVED --> REP_SENT: accept sends REP
    REP_SENT --> ESTABLISHED: RTU
    ESTABLISHED --> DREQ_SENT: disconnect sends DREQ
    DREQ_SENT --> CLOSED: DREP
    ESTABLISHED --> CLOSED: DREQ, sends DREP
```

A REJ ends REQ_SENT, REP_SENT and REP_RECEIVED in CLOSED, as the last time-out of a message does.

| file | what it holds |
|---|---|
| `hdl/abi/mad.py` | the formats as data; `Message.pack` and `unpack`; the addresses of rdma_cm |
| `hdl/abi/grh.py` | who sent a datagram |
| `sim/guest/cm/manager.py` | `Manager` and `Connection`: the state machine of both sides |
| `sim/guest/cm/sidr.py` | `Resolver`: datagram services, asked for and answered |
| `sim/guest/cm/timing.py` | `Timing`, `Peer` |
| `sim/guest/cm/gsi.py` | `GsiQP`: QP1 with its buffers |
| `sim/guest/cm/params.py` | `ConnParam`; from messages to queue pairs and back |
| `sim/guest/cm/agent.py` | `Agent`, `Listener`, `ConnId`: what a user calls |

`manager.py` and `sidr.py` know neither queue pairs nor a clock, so tests run both sides in
one process.

## What is called

| call | what it does | fails with |
|---|---|---|
| `agent.connect` | REQ; QP to RTS as the REP says; RTU | refused, timed out, unreachable |
| `listener.get_request` | the next REQ, with `private_data` and `peer` | timed out |
| `one.accept` | QP to RTS, REP, waits for the RTU | refused, timed out, ECONNRESET |
| `one.reject` | REJ | |
| `one.disconnected` | waits for the peer's DREQ, or for the connection to be stale | timed out |
| `one.disconnect` | QP to ERR; DREQ, unless the peer was first | |
| `agent.serve` | names a UD queue pair to SIDR_REQs | |
| `agent.resolve` | SIDR: where to send, as an `AH` | refused, timed out, unreachable |

Errors are `RdmaError` with ECONNREFUSED, ETIMEDOUT or EHOSTUNREACH. A REJ is a `Rejected`, which
has its reason and private data.

- Ports are those of RDMA_PS_TCP (RC and UC; service ids from 0000000001060000h on) and of
  RDMA_PS_UDP (UD; from 0000000001110000h on, Q_Key 01234567h).
- A REQ whose addresses, transport service or path MTU are not known is refused by reasons 5, 9 and
  26 before a listener sees it. One beyond the listener's `backlog` is refused by reason 28.
- Peers together may have opened 1024 connections (`Agent.open(limit=)`). At the limit, the oldest
  one that is over is forgotten. When none is over, a REQ is refused by reason 3 (no resources), and
  nothing is kept of it.
- A listener that needs time asks for it by an MRA (`Connection.delay`).
- A MAD that QP1 cannot send is lost like one on the wire, and is sent again by its timer. `GsiQP`
  counts it, and brings QP1 back from SQE.

## Time-outs and duplicates

- A REQ, REP, DREQ or SIDR_REQ waits 4.3 s for its answer and is sent again 15 times, as in Linux.
  `Timing` changes both. The REQ names them, and the listener uses the REQ's. After the last one, a
  REQ and a REP are given up with a REJ of reason 4.
- An MRA adds its service time-out to that wait.
- A connection that is over answers duplicates as long as its peer may send any: 16 times the wait.
  Then it is forgotten.
- A duplicate gets the same answer again, and the listener is not told of it. A SIDR_REQ is answered
  each time from the services there are, so nothing is remembered for it.
- A malformed MAD is dropped and counted in `counters["malformed"]`. A MAD for no connection, from
  another peer or in a wrong state is counted in `counters["unexpected"]`. Nothing is raised.
- A DREQ for an unknown connection gets a DREP.

## Stale connections

A peer that has started anew may ask for a connection with a queue pair that is connected here
already. Its REQ (or its REP, on the side that has asked) names the same QPN and the same GUID, and
another communication id. The old connection is stale then (IBTA vol 1, 12.9.8.3.1):

1. The REQ or the REP is refused by a REJ of reason 10. No listener sees it. The user of
   `agent.connect` gets a `Rejected` with that reason.
2. The queue pair of the old connection goes to ERR. `disconnected` of that connection ends, without
   private data.
3. A DREQ ends the old connection. It is sent again like any other. Until a DREP has come, or the
   last time-out, further REQs of the peer's queue pair are refused by the same reason.

A connection that is over stops nobody: its peer may use the queue pair again as soon as its own
time-wait is over. A REQ whose listener has not answered yet has no queue pair here. A second REQ of
the same queue pair is refused, and the first stays.

`counters["stale"]` counts the REQs and REPs that were refused. A device names itself by 8 bytes
that follow from its `sys_image_guid` and its first GID, since the functions of a card share the
former. A peer without a GUID is told apart by its address.

## What is not built

- Alternate paths (LAP, APR), redirection, XRC, multicast, other port spaces than TCP and UDP.
- A listener sees each connection to its port, whatever the own address it came to.
- An SRQ is not told to the peer (`srq` of REQ and REP is 0).
- Data that arrives before the RTU does not establish a connection; the REP is sent again instead.
- A REJ that comes when one side is established already is counted, and changes nothing.
- The MAC address of a peer comes from a table that the caller gives: there is no ARP.
- P_Keys other than FFFFh, and answers to another QP than QP1.

## With a live Linux

`./rocinante interop 'rping-*' 'ucmatose-*' 'udaddy-*'` ([interop.md](interop.md)) lets these
programs of rdma-core in a Linux guest connect to the card's listener, and the card to theirs.
The card is their other side in `sim/interop/connecting.py`.

- Each message names the PSN that its sender receives first (IBTA 12.7.31). Two cards that err in
  this agree with each other; Linux took the card's first request for a duplicate.
- The endpoint serves a connection within a second of wall time, so the 4.3 s of Linux's messages
  are enough. A time-out of 67 ms (code 14) on Linux's queue pair is not: it sends again what the
  simulated card has not answered yet.

## Formats

Each message follows the 24 bytes of the MAD header, and private data fills the 256 bytes.
Numbers are big-endian; bit 0 is the most significant bit of a byte.

| attribute | message | private data |
|---|---|---|
"""


def page() -> str:
    """The whole of docs/cm.md."""
    rows = [
        f"| {attribute:04X}h | {kind.name} | {mad.private_size(kind)} bytes |"
        for attribute, kind in mad.MESSAGES.items()
    ]
    lines = [_INTRODUCTION + "\n".join(rows), ""]
    for header in (mad.MAD, *mad.MESSAGES.values(), mad.IP_ADDRESSES):
        lines += header_section(header)
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(page(), end="")
