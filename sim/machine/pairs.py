"""Commands with two sides: what the server and the client are."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["CLIENT", "SEPARATOR", "SERVER", "sides"]

#: Stands between the command of the server and that of the client.
SEPARATOR = "::"
#: The names of both sides' addresses, in all guests.
SERVER, CLIENT = "server", "client"


@dataclass(frozen=True)
class _Program:
    """A program that is started twice: what is added for the server and for the client."""

    server: Sequence[str]
    client: Sequence[str]
    #: The client's program, where it is another one.
    other: str = ""


#: A pingpong of libibverbs must be told which of the port's GIDs it shall use.
_PROGRAMS: Mapping[str, _Program] = {
    "ibv_*_pingpong": _Program(("-g", "0"), ("-g", "0", SERVER)),
    "ib_*_bw": _Program((), (SERVER,)),
    "ib_*_lat": _Program((), (SERVER,)),
    "rping": _Program(("-s",), ("-c", "-a", SERVER)),
    "ucmatose": _Program((), ("-s", SERVER)),
    "udaddy": _Program((), ("-s", SERVER)),
    "cmtime": _Program((), ("-s", SERVER)),
    "rdma_server": _Program((), ("-s", SERVER), "rdma_client"),
    "rstream": _Program((), ("-s", SERVER)),
    "riostream": _Program((), ("-s", SERVER)),
    "iperf3": _Program(("-s", "-1"), ("-c", SERVER)),
}
#: With one of these a command is a whole one.
_WHOLE = {"-h", "--help", "-V", "--version", SERVER, CLIENT}


def sides(words: Sequence[str]) -> tuple[list[str], ...]:
    """The commands that COMMAND stands for: one, or the server's and the client's.

    A program that is known to have two sides, and is told of none, gets both. Raises ValueError
    for a side without a command.
    """
    command = list(words)
    if SEPARATOR in command:
        place = command.index(SEPARATOR)
        server, client = command[:place], command[place + 1 :]
        if not server or not client or SEPARATOR in client:
            raise ValueError(f"two commands are SERVER {SEPARATOR} CLIENT")
        return server, client
    for pattern, program in _PROGRAMS.items():
        name = command[0].rpartition("/")[2] if command else ""
        if fnmatch.fnmatchcase(name, pattern) and not _is_whole(command, program):
            client = [program.other or command[0], *command[1:]]
            return _with(command, program.server), _with(client, program.client)
    return (command,)


def _is_whole(command: Sequence[str], program: _Program) -> bool:
    """Whether a command says for itself which side it is, or wants no other one."""
    told = {word for word in (*program.server, *program.client) if word.startswith("-")} - {"-g"}
    return bool(set(command[1:]) & (_WHOLE | told))


def _with(command: Sequence[str], more: Sequence[str]) -> list[str]:
    """A command with ``more``, without the GID that the user has given."""
    given = any(word.startswith("-g") for word in command[1:])
    return [*command, *(more[2:] if given and more[:1] == ("-g",) else more)]
