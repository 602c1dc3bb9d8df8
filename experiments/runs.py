"""Runs the experiments in parallel on a CPU's cores, and resumes interrupted runs."""

import os
import signal
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from functools import cached_property
from multiprocessing import get_context, parent_process
from pathlib import Path
from time import monotonic

import torch
from tqdm import tqdm

import gelu_kernels
from experiments.data.dataset import Dataset
from experiments.recipe import Recipe
from experiments.recipes import recipe_of
from experiments.training import Run, Settings

SECONDS_BETWEEN_CHECKPOINTS = 10.0
Results = dict[str, list]  # "rows" and "robustness" of a run


@dataclass(frozen=True)
class Plan:
    """An experiment on a data set; `folder` has a file for each of its runs."""

    experiment: str
    quick: bool
    epochs: int | None  # instead of the recipe's
    data: Dataset
    device: torch.device
    folder: Path

    @property
    def recipe(self) -> Recipe:
        return recipe_of(self.experiment, self.quick, self.epochs)

    @cached_property
    def identity(self) -> dict[str, object]:
        """Distinguishes the files of its runs from others in the same folder."""
        return {
            "experiment": self.experiment,
            "quick": self.quick,
            "data": self.data.digest(),
            "device": self.device.type,
            "versions": [str(torch.__version__), gelu_kernels.__version__],
        }

    def train(self, settings: Settings, epoch_done: Callable[[], None]) -> Results:
        """Resumes from the run's file, if there is one."""
        path = self.folder / f"{settings}.pt"
        identity = {**self.identity, **asdict(settings)}
        state = torch.load(path, weights_only=True) if path.exists() else {}
        if state.get("identity") != identity:
            state = {"rows": []}
        for _ in state["rows"]:
            epoch_done()
        if len(state["rows"]) == settings.epochs:
            return state
        run = Run(self.recipe, settings, self.data, self.device)
        if state["rows"]:
            run.restore(state)
        saved = monotonic()
        while True:
            run.epoch()
            epoch_done()
            if run.finished():
                break
            if monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS:
                save({"identity": identity, **run.state()}, path)
                saved = monotonic()
        run.test_with_noise()
        save({"identity": identity, **run.state()}, path)
        return run.state()


def save(state: dict[str, object], path: Path) -> None:
    """Writes a temporary file and renames it, so an interruption leaves no truncated file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    torch.save(state, new)
    os.replace(new, path)


def start_worker(plan: Plan, done: object) -> None:
    """`done` counts the epochs of all workers."""
    global in_worker
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # an interruption prints no traceback
    threading.Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(1)

    def epoch_done() -> None:
        with done.get_lock():
            done.value += 1

    in_worker = plan, epoch_done


def end_with_parent() -> None:
    """Without this, a worker whose parent was killed would wait for work for ever."""
    parent_process().join()
    os._exit(1)


def train_in_worker(settings: Settings) -> Results:
    plan, epoch_done = in_worker
    return plan.train(settings, epoch_done)


def train_all(
    plan: Plan, wanted: Iterable[Settings], processes: int, label: str
) -> dict[Settings, Results]:
    """Trains each run with one thread, so the results do not depend on `processes`."""
    wanted = list(wanted)
    total = sum(settings.epochs for settings in wanted)
    progress = tqdm(total=total, desc=label, unit="epoch", disable=None)  # only on a terminal
    processes = min(processes, len(wanted))
    with progress:
        if processes == 1:
            torch.set_num_threads(1)
            return {settings: plan.train(settings, progress.update) for settings in wanted}
        context = get_context("spawn")  # torch's threads do not survive a fork
        done = context.Value("q", 0)
        pool = ProcessPoolExecutor(processes, context, start_worker, (plan, done))
        try:
            futures = {settings: pool.submit(train_in_worker, settings) for settings in wanted}
            waiting = set(futures.values())
            while waiting:
                finished, waiting = wait(waiting, timeout=0.5)
                progress.update(done.value - progress.n)
                for future in finished:
                    future.result()
        finally:
            pool.shutdown(cancel_futures=True)
        return {settings: future.result() for settings, future in futures.items()}
