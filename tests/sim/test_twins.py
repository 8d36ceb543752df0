"""Functions of two instances become one when they differ in nothing but names."""

from pathlib import Path

import pytest

from sim.rtl.twins import share

TOP = "TOP__testbench__DOT__nic1"


def function(number: int, name: str, *lines: str) -> str:
    """A function as Verilator writes it, of instance ``number``."""
    full = f"Vtop_nic___{name.replace('@', f'TOP__testbench__DOT__nic{number}')}"
    body = "".join(f"    {line}\n" for line in lines)
    return (
        f"void {full}(Vtop_nic* vlSelf) {{\n"
        f'    VL_DEBUG_IF(VL_DBG_MSGF("+ {full}\\n"); );\n'
        f"    auto& vlSelfRef = std::ref(*vlSelf).get();\n    // Body\n{body}}}\n"
    )


def shared(folder: Path, *functions: str) -> str:
    """What a file with these functions has become."""
    path = folder / "Vtop_nic__0.cpp"
    path.write_text("\n".join(functions))
    share(folder)
    return path.read_text()


def body(text: str, name: str) -> str:
    """The statements of a function in ``text``."""
    return text.partition(f"{name}(Vtop_nic* vlSelf) {{\n")[2].partition("\n}\n")[0]


ONE = function(0, "nba__@__3", "vlSelfRef.a = vlSelfRef.__Vdfg_1;", "++vlSelfRef.b;")


def test_same_text_is_there_once(tmp_path: Path) -> None:
    other = function(1, "nba__@__3", "vlSelfRef.a =", "vlSelfRef.__Vdfg_7;", "++vlSelfRef.b;")
    text = shared(tmp_path, ONE, other)
    assert "__Vdfg_7" not in text and text.count("++vlSelfRef.b") == 1
    called = body(text, "Vtop_nic___nba__TOP__testbench__DOT__nic1__3")
    assert called.strip() == "Vtop_nic___nba__TOP__testbench__DOT__nic0__3(vlSelf);"


@pytest.mark.parametrize(
    "lines",
    [
        ("vlSelfRef.a = vlSelfRef.__Vdfg_7;", "--vlSelfRef.b;"),
        ("vlSelfRef.a = vlSelfRef.__Vdfg_7;", "++vlSelfRef.c;"),
        ("vlSelfRef.a = vlSelfRef.__Vdfg_7;", "++vlSelfRef.b;", "++vlSelfRef.b;"),
        ("vlSelfRef.a = 1 + vlSelfRef.__Vdfg_7;", "++vlSelfRef.b;"),
        ("vlSelfRef.__Vdly_a = vlSelfRef.__Vdfg_7;", "++vlSelfRef.b;"),
    ],
)
def test_other_text_stays(tmp_path: Path, lines: tuple[str, ...]) -> None:
    other = function(1, "nba__@__3", *lines)
    assert shared(tmp_path, ONE, other) == "\n".join([ONE, other])


def test_one_name_for_two_stays(tmp_path: Path) -> None:
    first = function(0, "nba__@__3", "vlSelfRef.__Vdfg_1 = vlSelfRef.__Vdfg_2;")
    other = function(1, "nba__@__3", "vlSelfRef.__Vdfg_7 = vlSelfRef.__Vdfg_7;")
    assert shared(tmp_path, first, other) == "\n".join([first, other])


@pytest.mark.parametrize("name", ["vlSymsp->TOP.x", "__Vtemp_"])
def test_one_name_for_itself_and_another_stays(tmp_path: Path, name: str) -> None:
    first = function(0, "nba__@__3", f"vlSelfRef.a = {name}1;", f"vlSelfRef.b = {name}1;")
    other = function(1, "nba__@__3", f"vlSelfRef.a = {name}1;", f"vlSelfRef.b = {name}2;")
    assert shared(tmp_path, first, other) == "\n".join([first, other])


def test_an_assertion_says_whose_it_is(tmp_path: Path) -> None:
    """Each instance says its own name."""
    says = [f'VL_WRITEF_NX("in %m", 1, \'M\', "testbench.nic{n}.queues.send");' for n in range(2)]
    first, other = (function(n, "nba__@__3", says[n]) for n in range(2))
    text = shared(tmp_path, first, other)
    one, two = (f'"testbench.nic{n}.queues.send"' for n in range(2))
    assert f"(vlSelf == &vlSymsp->{TOP} ? {two} : {one})" in text and text.count("VL_WRITEF") == 1
    wrong = function(1, "nba__@__3", says[0])
    assert shared(tmp_path, first, wrong) == "\n".join([first, wrong])


def test_other_functions_use_the_new_names(tmp_path: Path) -> None:
    other = function(1, "nba__@__3", "vlSelfRef.a = vlSelfRef.__Vdfg_7;", "++vlSelfRef.b;")
    own = function(1, "nba__@__9", "vlSelfRef.c = vlSelfRef.__Vdfg_7;")
    root = f"void Vtop___024root___nba(Vtop* vlSelf) {{\n    x = vlSymsp->{TOP}.__Vdfg_7;\n}}\n"
    text = shared(tmp_path, ONE, other, own, root)
    assert "vlSelfRef.c = vlSelfRef.__Vdfg_1;" in text
    assert f"x = vlSymsp->{TOP}.__Vdfg_1;" in text


def test_a_name_that_is_taken_stays(tmp_path: Path) -> None:
    """The second instance has something else under the first one's name."""
    other = function(1, "nba__@__3", "vlSelfRef.a = vlSelfRef.__Vdfg_7;", "++vlSelfRef.b;")
    own = function(1, "nba__@__9", "vlSelfRef.c = vlSelfRef.__Vdfg_1;")
    assert shared(tmp_path, ONE, other, own) == "\n".join([ONE, other, own])


def test_members_of_the_top_are_chosen(tmp_path: Path) -> None:
    first = function(0, "nba__@__3", "if (vlSymsp->TOP.rst0) vlSelfRef.a = 0;")
    other = function(1, "nba__@__3", "if (vlSymsp->TOP.rst1) vlSelfRef.a = 0;")
    text = body(shared(tmp_path, first, other), "Vtop_nic___nba__TOP__testbench__DOT__nic0__3")
    assert (
        f"auto& rst0 = vlSelf == &vlSymsp->{TOP} ? vlSymsp->TOP.rst1 : vlSymsp->TOP.rst0;" in text
    )
    assert "if (rst0) vlSelfRef.a = 0;" in text


def test_a_third_instance_keeps_its_code(tmp_path: Path) -> None:
    first, second, third = (function(n, "nba__@__3", "++vlSelfRef.b;") for n in range(3))
    text = shared(tmp_path, first, second, third)
    assert text.endswith(third) and text.count("++vlSelfRef.b") == 2
