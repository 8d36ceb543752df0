"""The counters of the card in Prometheus's text format, and to whom they go.

Spec: Prometheus, "Exposition formats", text-based format, version 0.0.4. Names and help of the
card's counters are those of ``hdl/ports/counter_names.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firmware.daemon.logs import log
from firmware.registers import Registers
from firmware.service import Firmware
from hdl.csr.diagnostics import PARITY_TABLES
from hdl.ports.counter_names import COUNTER_TEXTS, COUNTERS, HIGH, LOW, PORT_COUNTERS

__all__ = ["FILE_PREFIX", "Exporter", "Metrics", "Place"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
FILE_PREFIX = "file:"
#: How often the counters are read without being asked for, s: none may wrap between two reads, and
#: 2**32 packets take longer on any wire.
SAMPLE_S = 15.0
#: What a client may send, and how long it may take, s.
_LONGEST, _PATIENCE_S = 8192, 5.0
_PREFIX = "rocinante_"
_WRAP = 1 << 32
#: Histograms of latencies: name of the registers -> of the metric, and what it is.
_LATENCIES = {
    "send": ("doorbell_to_wire_seconds", "from a doorbell to the next packet of its QP"),
    "receive": ("wire_to_host_seconds", "from a packet with payload to that on its way to memory"),
}
_SUM_WRAP = 1 << 48

Labels = dict[str, str]


@dataclass(frozen=True)
class Place:
    """Where metrics are: a TCP ``port`` of ``host``, or the unix socket or the file ``path``."""

    host: str = ""
    port: int = 0
    path: str = ""
    is_file: bool = False

    @classmethod
    def parse(cls, text: str) -> Place:
        """``PORT``, ``HOST:PORT``, ``unix:PATH`` or ``file:PATH``; ValueError for others."""
        for prefix in ("unix:", FILE_PREFIX):
            if text.startswith(prefix) and len(text) > len(prefix):
                return cls(path=text.removeprefix(prefix), is_file=prefix == FILE_PREFIX)
        host, _, port = text.rpartition(":")
        if not (port.isdecimal() and 0 <= int(port) < 1 << 16):
            raise ValueError(f"must be PORT, HOST:PORT, unix:PATH or file:PATH, not {text!r}")
        return cls(host=host.strip("[]") or "127.0.0.1", port=int(port))


def _escaped(text: str, *more: str) -> str:
    for one, other in (("\\", r"\\"), ("\n", r"\n"), *(('"', r"\"") for _ in more)):
        text = text.replace(one, other)
    return text


class _Text:
    """Metrics as lines, each name with its help and type once."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, name: str, kind: str, text: str, *samples: tuple[Labels, float]) -> None:
        """A metric with its samples. A counter's name ends in _total."""
        full = _PREFIX + name
        self._lines += [f"# HELP {full} {_escaped(text)}", f"# TYPE {full} {kind}"]
        for labels, value in samples:
            pairs = ",".join(f'{key}="{_escaped(one, "quoted")}"' for key, one in labels.items())
            self._lines.append(f"{full}{{{pairs}}} {value}" if pairs else f"{full} {value}")

    def histogram(self, name: str, text: str, counts: list[int], total: int, unit: float) -> None:
        """A histogram: count n is of less than 2**n units, the last one of more too."""
        full = _PREFIX + name
        self._lines += [f"# HELP {full} {_escaped(text)}", f"# TYPE {full} histogram"]
        for n in range(len(counts) - 1):
            edge = f"{(2**n - 1) * unit:.9g}"  # whole units: at most this
            self._lines.append(f'{full}_bucket{{le="{edge}"}} {sum(counts[: n + 1])}')
        self._lines += [
            f'{full}_bucket{{le="+Inf"}} {sum(counts)}',
            f"{full}_sum {total * unit:.9g}",
            f"{full}_count {sum(counts)}",
        ]

    def __str__(self) -> str:
        return "\n".join([*self._lines, ""])


class Metrics:
    """The counters of a card since this process began, which wrap no more, and its objects.

    Each counter begins with what the card has. ``read`` must be called at least every ``SAMPLE_S``.
    """

    def __init__(self, registers: Registers, firmware: Firmware):
        self._registers, self._firmware = registers, firmware
        self._totals: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._histograms: dict[str, tuple[list[int], int]] = {}
        self._last_histograms: dict[str, tuple[list[int], int]] = {}
        self.refused = 0

    async def read(self) -> None:
        """Bring the totals up to date."""
        for name in PORT_COUNTERS + COUNTERS:
            if name.endswith(HIGH):
                continue
            value = await self._registers.counter(name)
            if name.endswith(LOW):
                value += await self._high(name.removesuffix(LOW), value) << 32
                self._totals[name.removesuffix(LOW)] = value
            else:
                grown = (value - self._last.get(name, 0)) % _WRAP
                self._totals[name] = self._totals.get(name, 0) + grown
                self._last[name] = value

        if self._registers.config.latency:
            for name in _LATENCIES:
                await self._read_histogram(name)

    async def _read_histogram(self, name: str) -> None:
        counts, total = await self._registers.histogram(name)
        nothing = ([0] * len(counts), 0)
        last_counts, last_total = self._last_histograms.get(name, nothing)
        sums, whole = self._histograms.get(name, nothing)
        grown = [(now - last) % _WRAP for now, last in zip(counts, last_counts, strict=True)]
        sums = [old + new for old, new in zip(sums, grown, strict=True)]
        self._histograms[name] = (sums, whole + (total - last_total) % _SUM_WRAP)
        self._last_histograms[name] = (counts, total)

    async def _high(self, name: str, low: int) -> int:
        """The high half that belongs to ``low``, which may have wrapped meanwhile."""
        high = await self._registers.counter(name + HIGH)
        if await self._registers.counter(name + LOW) < low:
            return (high - 1) % _WRAP
        return high

    async def text(self) -> str:
        """All metrics, as they are now."""
        await self.read()
        text, firmware = _Text(), self._firmware
        for name, total in self._totals.items():
            text.add(f"{name}_total", "counter", COUNTER_TEXTS[name], ({}, total))
        for name, (samples, whole) in self._histograms.items():
            metric, what = _LATENCIES[name]
            cycle = 1 / self._registers.config.clock_hz
            text.histogram(metric, f"latency in the card, {what}", samples, whole, cycle)
        up = await self._registers.link_up()
        text.add("link_up", "gauge", "1 while the port has a link", ({}, int(up)))
        build = {"version": await self._registers.version(), "commit": self._registers.commit}
        text.add("build_info", "gauge", "1; what the card is generated from", (build, 1))
        if self._registers.config.parity:
            errors, tables, broken = await self._registers.parity_errors()
            text.add("parity_errors", "gauge", "rows read with a wrong bit", ({}, errors))
            text.add("broken", "gauge", "1 while the card stands still for that", ({}, int(broken)))
            wrong = [({"table": name}, int(name in tables)) for name in PARITY_TABLES]
            text.add("parity_table", "gauge", "1: a row of the table had a wrong bit", *wrong)
        states = [
            ({"function": str(one.number)}, await self._registers.function_state(one.number))
            for one in firmware.functions
        ]
        resets = [(labels, state.resets) for labels, state in states]
        text.add("function_resets_total", "counter", "device resets of a guest function", *resets)
        objects: list[tuple[Labels, float]] = []
        for (labels, _), function in zip(states, firmware.functions, strict=True):
            counts: dict[str, Any] = vars(function.commands.objects)
            for kind in ("pds", "cqs", "mrs", "srqs", "qps"):
                objects.append(({**labels, "kind": kind}, len(counts[kind])))
        text.add("objects", "gauge", "objects of a guest function, by kind", *objects)
        text.add(
            "firmware_requests_total",
            "counter",
            "control requests that this process has answered",
            ({}, firmware.served),
        )
        text.add(
            "firmware_refused_total", "counter", "of these, answered with ERR", ({}, self.refused)
        )
        return str(text)


class Exporter:
    """Gives metrics to whoever asks at ``place``; a file gets them every ``SAMPLE_S``.

    text: makes them, when nothing else uses the registers. Raises OSError when it cannot begin.
    """

    def __init__(self, place: Place, text: Callable[[], Awaitable[str]]):
        self._place, self._text = place, text
        self._server: asyncio.Server | None = None
        self._sampling: asyncio.Task[None] | None = None
        #: The port that it listens at, if it does.
        self.port = 0

    async def start(self) -> None:
        """Listen, and sample from now on."""
        place = self._place
        if place.is_file:
            await self._write()
        elif place.path:
            with contextlib.suppress(FileNotFoundError):
                if Path(place.path).is_socket():
                    os.unlink(place.path)  # of a process before
            self._server = await asyncio.start_unix_server(self._serve, place.path, limit=_LONGEST)
        else:
            self._server = await asyncio.start_server(
                self._serve, place.host, place.port, limit=_LONGEST
            )
            self.port = self._server.sockets[0].getsockname()[1]
        self._sampling = asyncio.create_task(self._sample())

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_S)
            try:
                await (self._write() if self._place.is_file else self._text())
            except OSError as error:
                log("warning", "metrics are not written", why=str(error))

    async def _write(self) -> None:
        """Replace the file in one step."""
        path = Path(self._place.path)
        new = path.with_name(path.name + ".new")
        new.write_text(await self._text())
        new.replace(path)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request of HTTP/1.1, and the end of the connection."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._response(head.split(b"\r\n")[0].decode("latin-1")))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client is none, or has gone
        finally:
            writer.close()

    async def _response(self, line: str) -> bytes:
        method, _, rest = line.partition(" ")
        body, status = b"", "200 OK"
        if method not in ("GET", "HEAD"):
            status = "405 Method Not Allowed"
        elif rest.split("?")[0].split(" ")[0] != "/metrics":
            status = "404 Not Found"
        else:
            body = (await self._text()).encode()
        head = [
            f"HTTP/1.1 {status}",
            f"Content-Type: {CONTENT_TYPE}",
            f"Content-Length: {len(body)}",
            "Connection: close",
        ]
        return "\r\n".join([*head, "", ""]).encode() + (b"" if method == "HEAD" else body)

    async def close(self) -> None:
        """Serve no more."""
        if self._sampling is not None:
            self._sampling.cancel()
        if self._server is not None:
            self._server.close()
            if self._place.path:
                Path(self._place.path).unlink(missing_ok=True)
