"""The command line of ``rocinante campaign``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import click
from rich.table import Table

from sim.bench.scenario.draw import ALONE, KINDS, NAMES, draw
from sim.campaign.store import Result, Store
from sim.rtl import env
from sim.rtl.build import ModelSources
from sim.tools import console

__all__ = ["campaign"]

#: Most seeds, and highest first one.
MOST = 10**9
#: Failures that the summary shows, and lines of each.
SHOWN, LINES = 5, 12


_HELP = f"""Play random scenarios between two simulated NICs; exit status 1: one failed.

NAME is the kind of scenarios: mixed (the default), which has {", ".join(KINDS)}; or one of these,
or {", ".join(ALONE)}. With --impair every scenario has this network in the place of its own.
"""


@click.command(help=_HELP)
@click.argument("name", metavar="[NAME]", type=click.Choice(NAMES), default=NAMES[0])
@click.option(
    "--seeds", type=click.IntRange(1, MOST), default=100, show_default=True, help="How many."
)
@click.option(
    "--first", type=click.IntRange(0, MOST), default=0, show_default=True, help="The first one."
)
@click.option("--seed", type=click.IntRange(0, 2 * MOST), help="This seed alone, in this process.")
@console.waves_option
@console.impair_option
@click.option(
    "--cluster", metavar="ADDRESS", help="A Dask cluster.  [default: one on this machine]"
)
@click.option(
    "--workers", type=click.IntRange(1, 1024), help="Processes here.  [default: one for a core]"
)
@click.option("--stop", is_flag=True, help="Begin no more seeds when one has failed.")
@click.option(
    "--db",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("campaign.sqlite"),
    show_default=True,
    callback=console.writable,
    help="Where results are; seeds that it holds are not run again.",
)
def campaign(
    name: str, seeds: int, first: int, seed: int | None, waves: bool, impair: str, **where: object
) -> None:
    """The command; ``_HELP`` is what it says of itself."""
    if waves and seed is None:
        raise console.UsageStop("--waves records one scenario: it needs --seed")
    with console.stops():
        env.require_compiler()
        if waves:
            env.require_waves()
    if seed is not None:
        sys.exit(0 if _alone(name, seed, waves, impair) else 1)
    good = _together(name, range(first, first + seeds), impair, **where)  # type: ignore[arg-type]
    sys.exit(0 if good else 1)


def _sources(name: str, waves: bool = False) -> ModelSources:
    from sim.bench import testbench
    from sim.bench.scenario.play import card

    try:
        with console.progress("Generating two NICs"):
            return testbench.sources(config=card(name), waves=waves)
    except env.BuildError as error:
        raise click.ClickException(str(error)) from None


def _alone(name: str, seed: int, waves: bool, impair: str) -> bool:
    """Run one seed here and keep what it leaves."""
    from sim.campaign.work import simulate, version

    sources = _sources(name, waves)
    click.echo(draw(name, seed, impair).text())
    try:
        with console.progress(f"Campaign {name}, seed {seed}"):
            current = version(sources, impair)
            (result,) = simulate(sources.build(), name, [seed], current, Path(), impair)
    except env.BuildError as error:
        raise click.ClickException(str(error)) from None
    kept = [file for end in ("pcap", "fst") if Path(file := f"{name}-{seed}.{end}").exists()]
    click.echo(f"{result.outcome} after {result.simulated_ns:,.0f} ns; {', '.join(kept)}")
    if not result.passed:
        click.echo(result.failure)
    return result.passed


def _together(
    name: str,
    seeds: Sequence[int],
    impair: str,
    *,
    cluster: str | None,
    workers: int | None,
    stop: bool,
    db: Path,
) -> bool:
    """Run the seeds that the file does not hold yet; returns whether all have passed."""
    from sim.campaign.cluster import BATCH, connected, spread
    from sim.campaign.work import version

    with console.stops():
        store = Store(db)
    with closing(store):
        sources = _sources(name)
        current = version(sources, impair)
        known = store.results(name, current)
        missing = [seed for seed in seeds if seed not in known]
        failed = any(not known[seed].passed for seed in seeds if seed in known)
        if missing and not (stop and failed):
            try:
                with console.stops(), connected(cluster, workers) as client:
                    with console.bar(f"Campaign {name}", len(missing)) as step:
                        size = 1 if stop else BATCH
                        with closing(
                            spread(client, sources, name, missing, impair, size)
                        ) as batches:
                            for results in batches:
                                store.add(results)
                                bad = sum(not one.passed for one in results)
                                failed |= bad > 0
                                step(len(results), bad)
                                if stop and failed:
                                    break
            except (env.BuildError, RuntimeError) as error:
                raise click.ClickException(str(error)) from None
        done = store.results(name, current)
    _summary(name, impair, [done[seed] for seed in seeds if seed in done], len(missing), db)
    return not failed


def _summary(name: str, impair: str, results: Sequence[Result], ran: int, db: Path) -> None:
    bad = [result for result in results if not result.passed]
    table = Table(title=f"Campaign {name}", title_justify="left")
    for column in ("seeds", "now", "passed", "failed", "simulated", "wall, each", "hosts"):
        table.add_column(column, justify="right")
    count = len(results)
    table.add_row(
        str(count),
        str(ran),
        str(count - len(bad)),
        f"[bold red]{len(bad)}" if bad else "0",
        f"{sum(one.simulated_ns for one in results) / 1e6:,.1f} ms",
        f"{sum(one.wall_seconds for one in results) / max(count, 1):.1f} s",
        str(len({one.host for one in results})),
    )
    console.out.print(table)
    for one in bad[:SHOWN]:
        text = "\n".join(one.failure.splitlines()[:LINES])
        console.out.print(f"Seed {one.seed}: {text}", markup=False, highlight=False)
    if bad:
        if len(bad) > SHOWN:
            console.out.print(f"{len(bad) - SHOWN} more failures are in {db}")
        network = ["--impair", impair] if impair else []
        command = shlex.join(
            ["./rocinante", "campaign", name, "--seed", str(bad[0].seed), *network, "--waves"]
        )
        console.out.print(f"Repeat: {command}", highlight=False, soft_wrap=True)
