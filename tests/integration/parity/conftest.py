"""The warm worker processes that all parity tests share."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from benchmarks.local_case import LocalCase, LocalStep
from benchmarks.local_pool import CaseResult, LocalPool
from tests.integration.parity.layouts import Folders
from tests.integration.parity.matrix import ModelFolder
from tests.integration.parity.models import MODELS, TINY, save_tiny_model
from tests.integration.parity.reference import Reference, train_whole

Run = Callable[[LocalCase], CaseResult]
Train = Callable[[LocalCase], Reference]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Compute the reference with as many threads as the workers; the count is part of the numbers."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def pool() -> Iterator[LocalPool]:
    """Return eight worker processes, imports done."""
    with LocalPool(8) as pool:
        pool.run(LocalCase(model=TINY, pp=4, steps=(LocalStep((4, 5)),)), limit_seconds=150)
        yield pool


@pytest.fixture(scope="session")
def run(pool: LocalPool) -> Run:
    """Return a function that runs a case; those that are asked for again soon are not run again."""

    @functools.lru_cache(maxsize=300)  # some 1 MB each
    def run_text(text: str) -> CaseResult:
        return pool.run(LocalCase.from_json(text))

    return lambda case: run_text(case.to_json())


@pytest.fixture(scope="session")
def train() -> Train:
    """Return a function that trains a case in this process, each only once a session, whatever its layout."""
    done: dict[tuple[object, ...], Reference] = {}

    def train(case: LocalCase) -> Reference:
        optimizer = (case.optimizer, case.learning_rate, case.weight_decay, case.max_grad_norm)
        key = (case.folder, case.objective, case.steps, optimizer, case.attention, case.seed)
        if key not in done:
            done[key] = train_whole(case)
        return done[key]

    return train


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a folder with a tiny BERT, no dropout."""
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny_model(folder)
    return str(folder)


@pytest.fixture(scope="session")
def folders(tiny: str, tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Return the folder of the tiny BERT, and those of BERTs of eight and of twelve layers."""
    folders = {TINY["num_hidden_layers"]: tiny}
    for num_layers in (8, 12):
        folder = tmp_path_factory.mktemp(f"layers-{num_layers}")
        save_tiny_model(folder, TINY | {"num_hidden_layers": num_layers})
        folders[num_layers] = str(folder)
    return folders


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    """Return a function that tells the folder of a model by name and number of layers, each saved once a session."""

    @functools.cache
    def folder(name: str, num_layers: int) -> str:
        path = tmp_path_factory.mktemp(f"{name}-{num_layers}")
        save_tiny_model(path, MODELS[name].config(num_layers=num_layers), objective=MODELS[name].objective)
        return str(path)

    return folder


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for the whole session."""
    return tmp_path_factory.mktemp("parity")
