"""Spreads the seeds of a campaign over a Dask cluster."""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

import dask
from distributed import Client, Future, KilledWorker, LocalCluster, as_completed

from sim.bench.scenario.draw import draw
from sim.campaign.store import Result
from sim.campaign.work import Batch, Shipment, code, simulate_batch, version
from sim.rtl.build import ModelSources

__all__ = ["BATCH", "connected", "spread"]

#: Seeds in one simulation at most: what is begun anew when a worker is lost.
BATCH = 4


@contextmanager
def connected(address: str | None, workers: int | None = None) -> Iterator[Client]:
    """Yield a client of the cluster at ``address``; without one of a cluster on this machine, with
    ``workers`` processes or one for each core.

    Raises ValueError when nobody answers at the address.
    """
    with dask.config.set({"distributed.comm.timeouts.connect": "30s"}):  # a busy machine
        if address is not None:
            try:
                client = Client(address)
            except (OSError, ValueError) as error:
                raise ValueError(f"No Dask cluster at {address}: {error}") from None
            with client:
                yield client
            return
        with (
            LocalCluster(
                n_workers=workers or os.cpu_count() or 1,
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",
                memory_limit=0,
                silence_logs=logging.CRITICAL,
            ) as cluster,
            Client(cluster) as client,
        ):
            yield client


def spread(
    client: Client,
    sources: ModelSources,
    name: str,
    seeds: Sequence[int],
    impair: str = "",
    batch: int = BATCH,
) -> Generator[list[Result]]:
    """Simulate seeds; yields results as they come, each seed once. Closing it cancels the rest.

    impair: see ``draw``. batch: seeds in one simulation at most.
    Raises what stops a whole campaign: a model that does not build, a worker with other code.
    """
    shipment = Shipment(sources)
    client.register_plugin(shipment)
    current, own = version(sources, impair), code()
    size = max(1, min(batch, len(seeds) // (2 * max(1, sum(client.nthreads().values())))))
    batches = [
        Batch(name, tuple(seeds[at : at + size]), shipment.name, own, current, impair)
        for at in range(0, len(seeds), size)
    ]
    futures = {client.submit(simulate_batch, batch, pure=False): batch for batch in batches}
    try:
        for future in as_completed(list(futures)):
            yield _results(future, futures[future])
    finally:
        client.cancel(list(futures))


def _results(future: Future, batch: Batch) -> list[Result]:
    """The results of a batch; one that has killed several workers in turn has failed."""
    try:
        return list(future.result())
    except KilledWorker as error:
        return [
            Result(
                name=batch.name,
                seed=seed,
                version=batch.version,
                outcome="failed",
                failure=f"The seeds {batch.seeds} together: {error}",
                simulated_ns=0,
                wall_seconds=0,
                host=platform.node(),
                scenario=draw(batch.name, seed, batch.impair).text(),
            )
            for seed in batch.seeds
        ]
