"""A receive queue whose requests take several packets, in plain Python: what completes, and what
lies where."""

from dataclasses import dataclass, field

from hdl.abi.enums import WcFlags, WcOpcode

MORE, CONSUMED = WcFlags.MP_WR_MORE_IN_MSG, WcFlags.MP_WR_CONSUMED
BROKEN = WcFlags.MP_WR_BROKEN


@dataclass(frozen=True)
class Completed:
    """Of a completion, what such a queue decides."""

    wr_id: int
    opcode: int
    offset: int
    byte_len: int
    flags: int
    qp: int

    @classmethod
    def of(cls, wc):
        return cls(wc.wr_id, wc.opcode, wc.mp_wr_offset, wc.byte_len, wc.wc_flags, wc.qp_num)


@dataclass
class Source:
    """Requests of ``buffer`` bytes in segments of ``align``; ``wrs``: the numbers of those that are
    posted, each with its bytes in ``memory`` once it has taken some."""

    buffer: int
    align: int
    wrs: list = field(default_factory=list)
    at: int = 0
    done: list = field(default_factory=list)
    memory: dict = field(default_factory=dict)

    def packet(self, data, qp, *, more=False, flags=0, opcode=WcOpcode.RECV, byte_len=None):
        """One that is received; False: there is no request for it."""
        need = max(1, -(-len(data) // self.align)) * self.align
        if self.wrs and self.at + need > self.buffer:
            self.done.append(Completed(self.wrs[0], WcOpcode.RECV_NOP, self.at, 0, CONSUMED, qp))
            self.wrs.pop(0)
            self.at = 0
        if not self.wrs:
            return False
        number, place = self.wrs[0], self.at
        self.memory.setdefault(number, {})[place] = bytes(data)
        self.at += need
        flags |= MORE if more else 0
        if self.at == self.buffer:
            flags |= CONSUMED
            self.wrs.pop(0)
            self.at = 0
        size = len(data) if byte_len is None else byte_len
        self.done.append(Completed(number, opcode, place, size, flags, qp))
        return True

    def message(self, data, mtu, qp, **last):
        """All packets of a SEND; ``last``: what the last one has. How many have found a request."""
        pieces = [data[n : n + mtu] for n in range(0, len(data), mtu)] or [data]
        for n, piece in enumerate(pieces):
            more = n + 1 < len(pieces)
            if not self.packet(piece, qp, more=more, **({} if more else last)):
                return n
        return len(pieces)
