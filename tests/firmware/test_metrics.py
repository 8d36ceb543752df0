"""The counters of a card as Prometheus reads them."""

import asyncio
import http.client
import re
import socket
import time
from dataclasses import replace

import pytest

from firmware.daemon import metrics
from firmware.daemon.metrics import Exporter, Metrics, Place
from firmware.registers import Registers
from firmware.service import Firmware
from hdl.abi.enums import ControlCommand as C
from hdl.config import VERSION
from hdl.ports.counter_names import COUNTER_TEXTS, COUNTERS, LATENCY_BUCKETS, PORT_COUNTERS
from tests.firmware.test_daemon import MAC, START_S, Card, Daemon
from tests.firmware.test_registers import CONFIG, FakeBus

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')


def parse(text):
    """Name -> (help, type, {labels: value}), by the rules of the format: each name's lines are
    together, HELP and TYPE once and before the samples, a line feed at the end."""
    assert text.endswith("\n")
    found, current = {}, None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            current, what = re.fullmatch(rf"# HELP ({NAME}) (.*)", line).groups()
            assert current not in found
            found[current] = [what, None, {}]
        elif line.startswith("# TYPE "):
            kinds = "counter|gauge|histogram"
            name, kind = re.fullmatch(rf"# TYPE ({NAME}) ({kinds})", line).groups()
            assert name == current and found[name][1:] == [None, {}]
            found[name][1] = kind
        else:
            name, labels, value = SAMPLE.fullmatch(line).groups()
            pairs = LABEL.findall(labels or "")
            if found[current][1] == "histogram":
                suffix = name.removeprefix(current)
                assert suffix in ("_bucket", "_sum", "_count")
                name, pairs = current, [*pairs, ("", suffix)]
            assert name == current and found[name][1]
            assert LABEL.sub("", labels or "") == ""
            assert tuple(pairs) not in found[name][2]
            found[name][2][tuple(pairs)] = float(value)
    return found


def made(bus):
    config = replace(CONFIG, commit=0xC0FFE)
    registers = Registers(bus, config)
    return Metrics(registers, Firmware(registers, config))


def set_counter(bus, name, value):
    block = "port" if name in PORT_COUNTERS else "counters"
    bus.values[f"{block}.{name}.value"] = value


def read(one):
    return parse(asyncio.run(one.text()))


def test_every_counter_with_its_help():
    bus = FakeBus()
    whole = [name for name in PORT_COUNTERS + COUNTERS if not name.endswith(("_low", "_high"))]
    for number, name in enumerate(whole):
        set_counter(bus, name, 1000 + number)
    for side, high in (("rx", 3), ("tx", 5)):
        set_counter(bus, f"{side}_bytes_low", 77)
        set_counter(bus, f"{side}_bytes_high", high)
    found = read(made(bus))
    for number, name in enumerate(whole):
        expected = [COUNTER_TEXTS[name], "counter", {(): 1000 + number}]
        assert found.pop(f"rocinante_{name}_total") == expected
    assert found.pop("rocinante_rx_bytes_total")[2] == {(): 3 * 2**32 + 77}
    assert found.pop("rocinante_tx_bytes_total")[2] == {(): 5 * 2**32 + 77}
    assert set(found) == {
        "rocinante_build_info",
        "rocinante_link_up",
        "rocinante_objects",
        "rocinante_function_resets_total",
        "rocinante_firmware_requests_total",
        "rocinante_firmware_refused_total",
    }
    assert {kind for _, kind, _ in found.values()} == {"gauge", "counter"}
    assert found["rocinante_objects"][2][("function", "1"), ("kind", "qps")] == 0
    build = (("version", VERSION), ("commit", "000c0ffe"))
    assert found["rocinante_build_info"][2] == {build: 1}
    assert set(COUNTER_TEXTS) == {*PORT_COUNTERS, *COUNTERS, "rx_bytes", "tx_bytes"}
    assert all(COUNTER_TEXTS.values())


def test_counters_wrap_no_more():
    bus = FakeBus()
    one = made(bus)
    total = "rocinante_out_of_buffer_total"
    for value, expected in (
        (0xFFFFFFF0, 0xFFFFFFF0),
        (5, 2**32 + 5),
        (5, 2**32 + 5),
        (4, 2**33 + 4),
    ):
        set_counter(bus, "out_of_buffer", value)
        assert read(one)[total][2] == {(): expected}


def test_histograms():
    """Cumulative, in seconds; counts and sums wrap no more."""
    config = replace(CONFIG, latency=True)
    bus = FakeBus(config)
    registers = Registers(bus, config)
    one = Metrics(registers, Firmware(registers, config))
    words = {"send": [0] * LATENCY_BUCKETS, "receive": [0] * LATENCY_BUCKETS}
    plain = bus.read

    async def reading(addr):
        name, item, word = bus.places[addr]
        if name == "latency" and item.name.endswith("_counts"):
            return words[item.name.removesuffix("_counts")][word]
        return await plain(addr)

    bus.read = reading
    words["send"][0:4] = [1, 0, 2, 0xFFFFFFFF]
    words["receive"][LATENCY_BUCKETS - 1] = 5
    bus.values |= {"latency.send_sum_low.value": 0xFFFFFFFF, "latency.send_sum_high.value": 0xFFFF}
    read(one)
    words["send"][3] = 1
    bus.values |= {"latency.send_sum_low.value": 1, "latency.send_sum_high.value": 0}
    found = read(one)
    _, kind, send = found["rocinante_doorbell_to_wire_seconds"]
    cycle = 1 / config.clock_hz
    assert kind == "histogram"
    bucket = {float(key[0][1]): value for key, value in send.items() if key[-1] == ("", "_bucket")}
    wanted = [1, 1, 3, 4 + (1 << 32)]
    edges = sorted(bucket)
    assert edges[:4] == pytest.approx([(2**n - 1) * cycle for n in range(4)])
    assert [bucket[edge] for edge in edges[:4]] == wanted
    assert bucket[float("inf")] == wanted[-1] == send[(("", "_count"),)]
    assert len(bucket) == LATENCY_BUCKETS
    assert send[(("", "_sum"),)] == pytest.approx(((1 << 48) + 1) * cycle)
    _, _, receive = found["rocinante_wire_to_host_seconds"]
    assert receive[(("le", "+Inf"), ("", "_bucket"))] == 5
    assert sum(value for key, value in receive.items() if key[-1] == ("", "_bucket")) == 5


def test_parity():
    config = replace(CONFIG, parity=True)
    bus = FakeBus(config)
    registers = Registers(bus, config)
    one = Metrics(registers, Firmware(registers, config))
    found = read(one)
    assert found["rocinante_broken"][2] == found["rocinante_parity_errors"][2] == {(): 0}
    bus.values |= {"parity.errors.value": 3, "parity.tables.value": 1 << 1 | 1 << 8}
    bus.values["parity.status.broken"] = 1
    found = read(one)
    assert found["rocinante_broken"][2] == {(): 1} and found["rocinante_parity_errors"][2] == {
        (): 3
    }
    wrong = {labels[0][1] for labels, value in found["rocinante_parity_table"][2].items() if value}
    assert wrong == {"qp_fetch", "mrs"}


def test_halves_belong_together():
    """The low half wraps between the reads of both."""
    bus = FakeBus()
    reads = iter([0xFFFFFFFF, 2, 3])
    one = made(bus)

    async def counter(name):
        return next(reads) if name.startswith("rx_bytes") else 0

    one._registers.counter = counter
    asyncio.run(one.read())
    assert one._totals["rx_bytes"] == 2**32 + 0xFFFFFFFF


def test_text_is_escaped():
    text = metrics._Text()
    text.add("a_total", "counter", 'a "b" \\ \n c', ({"d": 'e "f" \\ \n'}, 1))
    help_line, _, sample = str(text).splitlines()
    assert help_line == '# HELP rocinante_a_total a "b" \\\\ \\n c'
    assert sample == 'rocinante_a_total{d="e \\"f\\" \\\\ \\n"} 1'


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("9200", Place(host="127.0.0.1", port=9200)),
        ("::1:9200", Place(host="::1", port=9200)),
        ("[::1]:9200", Place(host="::1", port=9200)),
        ("unix:/run/x", Place(path="/run/x")),
        ("file:/run/x", Place(path="/run/x", is_file=True)),
    ],
)
def test_places(text, place):
    assert Place.parse(text) == place


@pytest.mark.parametrize("text", ["", "unix:", "file:", "x", "1:99999", "-1", "host:"])
def test_no_places(text):
    with pytest.raises(ValueError, match="must be PORT, HOST:PORT"):
        Place.parse(text)


class UnixConnection(http.client.HTTPConnection):
    """HTTP on a unix socket."""

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self.host)


def ask(connection, method="GET", path="/metrics"):
    connection.request(method, path)
    answer = connection.getresponse()
    return answer.status, answer.getheader("Content-Type"), answer.read().decode()


def test_over_tcp(tmp_path):
    """On loopback; it goes on while requests are served, and other requests get an error."""
    card = Card(tmp_path / "bar")
    with Daemon("--bar", f"unix:{card.path}", *MAC, "--metrics", "0") as daemon:
        port = daemon.line()["metrics_port"]
        assert card.ask(C.CREATE_PD).pdn == 0
        assert card.ask(C.DESTROY_PD, pdn=7) is None
        daemon.line()  # refused
        with socket.create_connection(("127.0.0.1", port)):  # who says nothing holds up nobody
            status, kind, text = ask(http.client.HTTPConnection("127.0.0.1", port, timeout=START_S))
        assert (status, kind) == (200, metrics.CONTENT_TYPE)
        found = parse(text)
        assert found["rocinante_firmware_requests_total"][2] == {(): 2}
        assert found["rocinante_firmware_refused_total"][2] == {(): 1}
        assert found["rocinante_objects"][2][("function", "1"), ("kind", "pds")] == 1
        assert found["rocinante_control_requests_total"][2] == {(): 2}
        for method, path, expected in (
            ("GET", "/", 404),
            ("POST", "/metrics", 405),
            ("HEAD", "/metrics", 200),
        ):
            one = http.client.HTTPConnection("127.0.0.1", port, timeout=START_S)
            assert ask(one, method, path)[0] == expected
        with socket.create_connection(("127.0.0.1", port), timeout=START_S) as endless:
            endless.sendall(b"GET /" + b"x" * 10_000 + b"\r\n\r\n")
            assert endless.recv(100) == b""
        daemon.process.terminate()
        assert daemon.ended()[0] == 0


def test_over_a_unix_socket_and_as_a_file(tmp_path):
    place = tmp_path / "metrics"
    card = Card(tmp_path / "bar")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left_over:
        left_over.bind(str(place))
    with Daemon("--bar", f"unix:{card.path}", *MAC, "--metrics", f"unix:{place}") as daemon:
        daemon.line()
        assert parse(ask(UnixConnection(str(place), timeout=START_S))[2])
        daemon.process.terminate()
        assert daemon.ended()[0] == 0
    assert not place.exists()
    with Daemon("--bar", f"unix:{card.path}", *MAC, "--metrics", f"file:{place}") as daemon:
        daemon.line()
        assert parse(place.read_text())["rocinante_link_up"][2] == {(): 0}
        daemon.process.terminate()
        assert daemon.ended()[0] == 0
    with Daemon("--bar", f"unix:{card.path}", *MAC, "--metrics", f"unix:{tmp_path}/no/x") as daemon:
        status, (error,) = daemon.ended()
        assert status == 1 and error["event"].startswith("--metrics: ")


def test_a_file_is_written_again(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "SAMPLE_S", 0.01)
    path, count = tmp_path / "metrics", 0

    async def text():
        nonlocal count
        count += 1
        return f"{count}\n"

    async def main():
        exporter = Exporter(Place(path=str(path), is_file=True), text)
        await exporter.start()
        ends = time.monotonic() + START_S
        while int(path.read_text()) < 3 and time.monotonic() < ends:
            await asyncio.sleep(0.01)
        await exporter.close()

    asyncio.run(main())
    assert int(path.read_text()) >= 3
    assert [one.name for one in tmp_path.iterdir()] == ["metrics"]
