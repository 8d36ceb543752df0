"""Writes docs/cm.md: ``python -m hdl.abi.mad_docs`` prints the page."""

from __future__ import annotations

from hdl.abi import mad
from hdl.wire.docs import header_section

_INTRODUCTION = """\
# Connection manager

The connection manager lets two queue pairs find each other by MADs. Two instances of it connect,
reject and disconnect in pure Python (`tests/sim/test_cm.py`). It does not send through QP1 yet, so
it has not met the card or Linux. This page is written by `python -m hdl.abi.mad_docs > docs/cm.md`,
and a test keeps it current.

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
| `hdl/abi/mad.py` | the formats as data; `Message.pack` and `unpack` |
| `sim/guest/cm/manager.py` | `Manager` and `Connection`: the state machine of both sides |

## Time-outs and duplicates

- A REQ, REP or DREQ waits 4.3 s for its answer and is sent again 15 times. After the last one, a
  REQ and a REP are given up with a REJ of reason 4.
- An MRA adds its service time-out to that wait.
- A connection that is over answers late duplicates for 17.2 s. Then it is forgotten.
- A duplicate gets the same answer again, and the listener is not told of it.
- A malformed MAD is dropped and counted in `counters["malformed"]`. A MAD for no connection, from
  another peer or in a wrong state is counted in `counters["unexpected"]`. Nothing is raised.
- A DREQ for an unknown connection gets a DREP.

## What is not built

- QP1: nothing carries these MADs over the card, and no verbs call uses them.
- SIDR, sending an MRA, alternate paths (LAP, APR): SIDR has its formats only.
- The IP addresses in front of the private data have their format only.
- The time-outs that a REQ names (`local_cm_response_timeout`, `max_cm_retries`) are not used.
- Data that arrives before the RTU does not establish a connection.

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
