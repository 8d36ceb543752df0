"""A matrix is read transposed, and one of its columns alone: two indirect keys, and no copy.

Run it with ``.venv/bin/python examples/transpose.py``. Card b has a matrix of 8-byte numbers, row
by row. Its process gives one key a layout in which the columns follow each other, and another key
one of a single column. Card a reads both like any memory, with one READ each. docs/examples.md
shows the layouts.
"""

import cocotb
import numpy as np

from hdl.abi.enums import Access, Mtu, WrOpcode
from sim.bench import testbench
from sim.bench.cards import EVERYTHING
from sim.bench.system import QpOptions, System, connect
from sim.guest.verbs import CQ, MR, Interleaved, Mkey, SendWR
from sim.rtl.build import run

#: The card of many tests, whose model may be there already; ``mkeys=True`` alone would do.
CONFIG = EVERYTHING
ROWS = COLUMNS = 16
NUMBER = 8  # bytes
ACCESS = Access.LOCAL_WRITE | Access.REMOTE_READ


def transposed(matrix: MR) -> list[Interleaved]:
    """An entry for each row. In repetition j of the layout each of them is at its number j: so this
    repetition is column j."""
    row = COLUMNS * NUMBER
    return [Interleaved(matrix.iova + i * row, NUMBER, 0, matrix.lkey) for i in range(ROWS)]


def column(matrix: MR, number: int) -> list[Interleaved]:
    """One entry, which goes on by a row with each repetition."""
    first = matrix.iova + number * NUMBER
    return [Interleaved(first, NUMBER, (COLUMNS - 1) * NUMBER, matrix.lkey)]


@cocotb.test()
async def transpose(dut):
    """Both READs, and what they have brought."""
    system = await System.start(dut, CONFIG)
    pds = [await node.context.alloc_pd() for node in system.nodes]
    cqs = [await CQ.create(node.context, 64) for node in system.nodes]
    target, matrix = [await MR.create(pd, ROWS * COLUMNS * NUMBER, ACCESS) for pd in pds]
    # A packet may have 64 pieces, so it has at most 64 numbers.
    a, b = await connect(system.nodes, pds, cqs, QpOptions(mtu=Mtu.MTU_512))
    numbers = np.arange(ROWS * COLUMNS, dtype="<u8").reshape(ROWS, COLUMNS)
    matrix.write(numbers.tobytes())

    columns, third = await Mkey.create(pds[1], ROWS), await Mkey.create(pds[1], 1)
    await b.post_send(
        [
            columns.interleaved_wr(transposed(matrix), COLUMNS, ACCESS),
            third.interleaved_wr(column(matrix, 3), ROWS, ACCESS),
        ]
    )
    await cqs[1].wait(2)

    for key, wanted in ((columns, numbers.T), (third, numbers[:, 3])):
        read = SendWR(1, WrOpcode.RDMA_READ, [target.sge(0, wanted.size * NUMBER)])
        read.set_wr_rdma(key.rkey, 0)  # offset 0 of the layout
        await a.post_send(read)
        (wc,) = await cqs[0].wait()
        found = target.read(wanted.size * NUMBER).view("<u8").reshape(wanted.shape)
        assert np.array_equal(found, wanted), found
        cocotb.log.info("%s of %d bytes: %s", wc.opcode.name, wc.byte_len, wc.status.name)


if __name__ == "__main__":
    results = run(testbench.build(config=CONFIG), test_module="transpose")
    print("passed; log, results and waves are in", results.folder)
