"""A histogram of latencies in powers of two."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In

from hdl.common.ram import Ram
from hdl.ports.counter_names import LATENCY_BUCKETS
from hdl.ports.latency import BUCKET_INDEX, SUM_BITS, HistogramPort

__all__ = ["CYCLE_BITS", "Histogram"]

#: Bits of a measured number of cycles, and so its buckets but that for 0.
CYCLE_BITS = LATENCY_BUCKETS - 1


class Histogram(wiring.Component):
    """Counts samples by the number of bits that they need, and adds them up.

    Members: ``sample`` In: cycles; ``port`` In: the counts, latency 1, and the sum. Both wrap.
    Latency: 4 cycles until a sample is counted. Throughput: a sample in 4 cycles; ``sample`` waits
    meanwhile, and after reset for 32 cycles. Errors: none. Reset: all counts 0.
    """

    def __init__(self):
        super().__init__({"sample": In(stream.Signature(CYCLE_BITS)), "port": In(HistogramPort())})

    def elaborate(self, platform):
        m = Module()
        # The count that is being raised is read by nobody else in that cycle but the firmware,
        # which reads any row of it a cycle before or after.
        m.submodules.counts = counts = Ram(shape=32, depth=1 << BUCKET_INDEX, reads=2)
        bucket, cycles = Signal(BUCKET_INDEX), Signal(CYCLE_BITS)
        number, half = self.sample.payload, SUM_BITS // 2
        low, high, carry = self.port.sum[:half], self.port.sum[half:], Signal()
        count, count_read, more = Signal(32, reset_less=True), Signal(32), Signal()
        middle = len(count) // 2
        # One bit for each bucket: the highest bit that is set, or none.
        highest = Signal(CYCLE_BITS)
        m.d.comb += [
            highest.eq(Cat(number[n] & ~number[n + 1 :].any() for n in range(CYCLE_BITS))),
            counts.read0.index.eq(self.port.counts.index),
            counts.read0.enable.eq(self.port.counts.enable),
            self.port.counts.row.eq(counts.read0.row),
            counts.read1.index.eq(bucket),
            count_read.eq(counts.read1.row),
            counts.write.index.eq(bucket),
        ]
        with m.FSM(name="count"):
            with m.State("CLEAR"):
                # CLEAR: sets each count to 0; ends with the last one.
                m.d.comb += counts.write.enable.eq(1)
                m.d.sync += bucket.eq(bucket + 1)
                with m.If(bucket.all()):
                    m.next = "IDLE"
            with m.State("IDLE"):
                # IDLE: waits for a sample; ends when it has been taken.
                m.d.comb += self.sample.ready.eq(1)
                m.d.sync += [
                    cycles.eq(number),
                    bucket.eq(
                        Cat(
                            Cat(highest[n] for n in range(CYCLE_BITS) if n + 1 >> bit & 1).any()
                            for bit in range(BUCKET_INDEX)
                        )
                    ),
                ]
                with m.If(self.sample.valid):
                    m.next = "READ"
            with m.State("READ"):
                # READ: asks for the count of the sample's bucket, and adds the lower half of the
                # sum; one cycle.
                m.d.comb += counts.read1.enable.eq(1)
                m.d.sync += Cat(low, carry).eq(low + cycles)
                m.next = "TAKE"
            with m.State("TAKE"):
                # TAKE: takes the count with one more in its lower half, and adds to the upper half
                # of the sum; one cycle.
                m.d.sync += [
                    Cat(count[:middle], more).eq(count_read[:middle] + 1),
                    count[middle:].eq(count_read[middle:]),
                    high.eq(high + carry),
                ]
                m.next = "WRITE"
            with m.State("WRITE"):
                # WRITE: adds to its upper half and writes it back; one cycle.
                m.d.comb += [
                    counts.write.row.eq(Cat(count[:middle], count[middle:] + more)),
                    counts.write.enable.eq(1),
                ]
                m.next = "IDLE"
        return m
