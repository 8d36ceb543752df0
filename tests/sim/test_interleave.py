"""Two instances take turns when the functions of the one touch nothing of the other's."""

from pathlib import Path

import pytest

from sim.rtl.interleave import interleave

ROOT = "Vtop___024root"
NAME = "Vtop_nic___nba_sequent__TOP__testbench__DOT__nic"


def function(name: str, kind: str, *lines: str) -> str:
    """A function as Verilator writes it."""
    body = "".join(f"    {line}\n" for line in lines)
    return f"void {name}({kind}* vlSelf) {{\n    // Body\n{body}}}\n"


def call(name: str, card: int | None = None) -> str:
    """A call of a function of a card, or without ``card`` of one of the top."""
    return f"{name}({'vlSelf' if card is None else f'(&vlSymsp->TOP__testbench__DOT__nic{card})'});"


def block(trigger: int, *calls: str) -> str:
    """Calls that wait for a clock."""
    lines = "".join(f"        {one}\n" for one in calls)
    return f"    if (({trigger}ULL & vlSelfRef.__VnbaTriggered[0U])) {{\n{lines}    }}\n"


def named(key: str) -> str:
    """The name of a function of a card: ``a0`` is function a of card 0."""
    return f"{NAME}{key[1]}__{'ab'.index(key[0])}"


def cards(**bodies: str) -> list[str]:
    """Functions of the cards."""
    return [function(named(key), "Vtop_nic", body) for key, body in bodies.items()]


def of(*keys: str) -> list[str]:
    """Calls of them."""
    return [call(named(key), int(key[1])) for key in keys]


def evaluation(*blocks: str) -> str:
    """The function that evaluates a cycle."""
    return f"void {ROOT}___eval_nba({ROOT}* vlSelf) {{\n    // Body\n{''.join(blocks)}}}\n"


def written(folder: Path, functions: list[str], *blocks: str) -> str:
    """What has become of the evaluation."""
    path, other = folder / "Vtop___024root__0.cpp", folder / "Vtop_nic__0.cpp"
    path.write_text(evaluation(*blocks))
    other.write_text("\n".join(functions))
    before = path.read_text()
    assert interleave(folder) == (path.read_text() != before)
    return path.read_text()


def order(text: str) -> list[str]:
    """The calls of an evaluation, each with its condition."""
    found, trigger = [], ""
    for line in text.splitlines():
        if "if ((" in line:
            trigger = line.partition("((")[2][0]
        elif "nba_sequent" in line:
            found.append(f"{trigger} {line.strip()}")
    return found


SEPARATE = {"a0": "vlSelfRef.x = vlSelfRef.y;", "b0": "vlSelfRef.y = vlSymsp->TOP.in0;"}
SEPARATE |= {"a1": "vlSelfRef.x = vlSelfRef.y;", "b1": "vlSelfRef.y = vlSymsp->TOP.in1;"}
BLOCKS = (block(1, *of("a0", "b0")), block(4, *of("a1", "b1")))


def refused(folder: Path, functions: list[str], *blocks: str) -> bool:
    """Whether the evaluation keeps its order: block after block."""
    triggers = [one[0] for one in order(written(folder, functions, *blocks))]
    return triggers == sorted(triggers)


def test_functions_take_turns(tmp_path: Path) -> None:
    found = order(written(tmp_path, cards(**SEPARATE), *BLOCKS))
    wanted = zip("1414", of("a0", "a1", "b0", "b1"), strict=True)
    assert found == [f"{trigger} {one}" for trigger, one in wanted]


def test_one_function_may_serve_both(tmp_path: Path) -> None:
    """Verilator has the same text once; it is the call that tells the instance."""
    blocks = (block(1, *of("a0", "a0")), block(4, *(call(named("a0"), 1),) * 2))
    found = order(written(tmp_path, cards(a0=SEPARATE["a0"]), *blocks))
    assert [one[0] for one in found] == ["1", "4", "1", "4"]


def test_the_longer_block_ends_alone(tmp_path: Path) -> None:
    blocks = (block(1, *of("a0", "b0")), block(4, *of("a1")))
    found = order(written(tmp_path, cards(**SEPARATE), *blocks))
    assert [one[0] for one in found] == ["1", "4", "1"]


def test_what_both_only_copy_may_be_shared(tmp_path: Path) -> None:
    both = {"b0": "vlSelfRef.y = vlSymsp->TOP.rst;", "b1": "vlSelfRef.y = vlSymsp->TOP.rst;"}
    assert not refused(tmp_path, cards(**(SEPARATE | both)), *BLOCKS)


@pytest.mark.parametrize(
    "changed",
    [
        {"b0": "vlSymsp->TOP.in1 = vlSelfRef.y;"},  # written by the one, read by the other
        {"b0": "VL_ASSIGN_W(96, vlSymsp->TOP.in1, vlSelfRef.y);"},
        {"b0": "vlSelfRef.y = (1U & vlSymsp->TOP.in1);"},  # read, but not as plainly
        {"b0": "vlSymsp->TOP__testbench__DOT__nic1.y = 1U;"},
        {"b0": "Vtop_nic___other(vlSelf);"},  # uses who knows what
        {"b0": "Vtop_nic____Vdpiimwrap_host_cycle(1U);"},
    ],
)
def test_what_may_matter_stays(tmp_path: Path, changed: dict[str, str]) -> None:
    assert refused(tmp_path, cards(**(SEPARATE | changed)), *BLOCKS)


def test_functions_that_are_not_known_stay(tmp_path: Path) -> None:
    assert refused(tmp_path, cards(**{key: SEPARATE[key] for key in ("a0", "a1")}), *BLOCKS)


def test_other_statements_between_stay(tmp_path: Path) -> None:
    assert refused(tmp_path, cards(**SEPARATE), BLOCKS[0], "    vlSelfRef.x = 1U;\n", BLOCKS[1])


def around(*places: int) -> tuple[list[str], tuple[str, str]]:
    """Blocks that call functions of the top at these places; the functions call C++ of ours."""
    blocks, functions = [], cards(**SEPARATE)
    for card, trigger in ((0, 1), (1, 4)):
        calls = of(f"a{card}", f"b{card}")
        for place in sorted(places, reverse=True):
            name = f"{ROOT}___nba_sequent__TOP__{10 * card + place}"
            calls.insert(place, call(name))
            inner = f"{ROOT}____Vdpiimwrap_host_cycle_TOP({card}U, vlSelfRef.out{card});"
            functions.append(function(name, ROOT, inner))
        blocks.append(block(trigger, *calls))
    return functions, (blocks[0], blocks[1])


def test_models_are_called_in_their_order(tmp_path: Path) -> None:
    functions, blocks = around(1)
    found = order(written(tmp_path, functions, *blocks))
    assert [one[0] for one in found] == ["1", "4"] * 3
    models = [one.rpartition("__")[2] for one in found if ROOT in one]
    assert models == ["1(vlSelf);", "11(vlSelf);"]


def test_models_that_would_change_their_order_stay(tmp_path: Path) -> None:
    functions, blocks = around(0, 2)
    assert refused(tmp_path, functions, *blocks)
