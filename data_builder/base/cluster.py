"""The jobs of a build on a Dask cluster (`--dask ADDRESS`; the extra `dask` installs `distributed`).

Machines share the dataset's directory: jobs and results are small, the data goes through the files, each of
which appears whole or not at all. So a worker that dies costs its job's time and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from data_builder.base.workers import Beat, Outcome
from wmsched.base.errors import EnvironmentProblem

J = TypeVar("J")


def _quiet(position: int, place: str) -> None:
    """A cluster's worker tells no beats."""


def _attempt(work: Callable[[J, Beat], Any], job: J) -> tuple[str, Any]:
    try:
        return "done", work(job, _quiet)
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"


def run_on_cluster(
    address: str,
    jobs: Sequence[J],
    work: Callable[[J, Beat], Any],
    *,
    again: Callable[[Outcome[J]], J | None],
) -> Iterator[Outcome[J]]:
    """Do jobs on the workers of a cluster; yield outcomes as `workers.run_jobs` does.

    Parameters
    ----------
    address : str
        Of the scheduler, such as `tcp://10.0.0.5:8786`.
    jobs, work, again
        As for `run_jobs`. Dask itself tries a job on a few workers before it counts as one that kills them;
        only then `again` is asked, and of the place nothing is known.

    Raises
    ------
    EnvironmentProblem
        `distributed` is not installed, or no scheduler answers.
    """
    try:
        import distributed
    except ImportError as error:
        raise EnvironmentProblem("--dask needs distributed: pip install distributed") from error
    try:
        client = distributed.Client(address, timeout=20, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise EnvironmentProblem(
            f"no Dask scheduler answers at {address} ({type(error).__name__}); start one with "
            "`dask scheduler`, and workers with `dask worker ADDRESS`"
        ) from error
    with client, client.as_current():
        waiting = {client.submit(_attempt, work, job, pure=False, retries=0): job for job in jobs}
        done = distributed.as_completed(list(waiting))
        for future in done:
            job = waiting.pop(future)
            try:
                kind, value = future.result()
            except Exception as error:  # KilledWorker, or what became of the cluster
                outcome: Outcome[J] = Outcome("died", job, why=f"{type(error).__name__} on {address}")
                follow = again(outcome)
                if follow is not None:
                    another = client.submit(_attempt, work, follow, pure=False, retries=0)
                    waiting[another] = follow
                    done.add(another)
                yield outcome
                continue
            finally:
                future.release()
            yield Outcome("done", job, result=value) if kind == "done" else Outcome("failed", job, why=value)
