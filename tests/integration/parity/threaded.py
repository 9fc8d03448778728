"""Workers as threads of the test's process: real sockets, no start-up, and models of next to no computation."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, TypeVar

import torch
from torch import nn

from benchmarks.local_case import LocalCase, slices_of
from benchmarks.local_run import LocalResult, LocalWorker
from stage_worker.comm_gloo import GlooTransport, join_gloo
from stage_worker.comm_place import Place
from stage_worker.comm_store import PrefixStore, join_store, open_store
from stage_worker.models.family import Block, Family, Inputs
from stage_worker.models.loaded import LoadedModel, StageBlocks
from stage_worker.models.objective import Objective
from stage_worker.models.uses import uses_of

T = TypeVar("T")
CPU = torch.device("cpu")


def together(calls: list[Callable[[], T]], *, limit_seconds: float = 60.0) -> list[T]:
    """Make all calls at once, each in a thread of its own; return what they return, raise what the first one raises."""
    executor = ThreadPoolExecutor(len(calls))
    try:
        futures = [executor.submit(call) for call in calls]
        return [future.result(limit_seconds) for future in futures]
    finally:
        executor.shutdown(wait=False)


def joined(*, pp: int, dp: int = 1, limit_seconds: float = 30.0) -> list[GlooTransport]:
    """Return connected transports, by worker."""
    store = open_store("127.0.0.1", limit_seconds=10)

    def join(worker: int) -> GlooTransport:
        client = join_store(store.address, limit_seconds=10)
        own = PrefixStore("test/1", client)
        place = Place(worker=worker, pp=pp, dp=dp)
        return join_gloo(own, place=place, host="127.0.0.1", device=CPU, limit=timedelta(seconds=limit_seconds))

    return together([lambda worker=worker: join(worker) for worker in range(pp * dp)])  # type: ignore[misc]


class Wide(nn.Module):
    """Embeds a token as its number times a vector; a layer multiplies by a vector; the head takes the mean."""

    def __init__(self, *, hidden_size: int, num_layers: int) -> None:
        super().__init__()
        values = torch.linspace(0.5, 1.5, hidden_size)
        self.embedding = _Scale(values / 50)
        self.layers = nn.ModuleList(_Scale(values.roll(layer + 1)) for layer in range(num_layers))
        self.head = nn.Linear(hidden_size, 2)
        nn.init.constant_(self.head.weight, 0.01)
        nn.init.constant_(self.head.bias, 0.0)


class _Scale(nn.Module):
    def __init__(self, values: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(values)

    def forward(self, h_BLD: torch.Tensor) -> torch.Tensor:
        return h_BLD * self.weight


def _blocks(config: Any) -> tuple[Block, ...]:
    def embed(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
        ids_BL = inputs.batch.input_ids_BL
        assert ids_BL is not None
        return model.embedding(ids_BL[..., None].float())

    def layer(index: int) -> Block:
        return Block(f"layers.{index}", (f"layers.{index}",), lambda model, h_BLD, inputs: model.layers[index](h_BLD))

    def head(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
        assert h_BLD is not None
        return model.head(h_BLD.mean(1))

    layers = (layer(index) for index in range(config.num_hidden_layers))
    return Block("embedding", ("embedding",), embed), *layers, Block("head", ("head",), head)


WIDE = Family(
    model_type="wide",
    build=lambda config: Wide(hidden_size=config.hidden_size, num_layers=config.num_hidden_layers),
    base_prefix="",
    new_in_a_task=(),
    blocks=_blocks,
    objective=Objective.CLASSIFICATION,
    context=lambda config, attention_mask_BL, dtype: {},
    buffers=lambda config: {},
    first_columns=frozenset({"input_ids"}),
    last_columns=frozenset({"labels"}),
)


def _views(config: Any) -> tuple[Block, ...]:
    """Return the same blocks; what they hand over is no tensor of one piece, forwards or backwards."""

    def turned(block: Block) -> Block:
        def call(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
            if h_BLD is not None:  # the gradient comes back as the transpose of a tensor of one piece
                h_BLD = h_BLD.transpose(1, 2).contiguous().transpose(1, 2)
            out_BLD = block.call(model, h_BLD, inputs)
            slice_BLD = torch.cat([out_BLD, -out_BLD], dim=-1)[..., : out_BLD.shape[-1]]
            assert not slice_BLD.is_contiguous()
            return slice_BLD

        return replace(block, call=call)

    *body, head = _blocks(config)
    return *map(turned, body), head


VIEWS = replace(WIDE, blocks=_views)


def wide_part(case: LocalCase, place: Place, *, hidden_size: int, family: Family = WIDE) -> LoadedModel:
    """Return one worker's stages: one layer a stage."""
    plan = case.train_plan()
    num_stages = plan.placement.num_stages
    config = SimpleNamespace(hidden_size=hidden_size, num_hidden_layers=num_stages)
    slices = slices_of(plan, place, num_layers=num_stages)
    model, blocks = family.build(config), family.blocks(config)
    uses = uses_of(model, blocks)
    stages = {part.stage: StageBlocks(part, part.blocks(blocks)) for part in slices}
    own = {name for stage in stages.values() for index in stage.blocks for name in uses.by_block[index].values()}
    return LoadedModel(
        config=config,
        family=family,
        model=model,
        device=CPU,
        layers_by_stage=(1,) * num_stages,
        stages=stages,
        uses=uses,
        held={name: parameter for name, parameter in model.named_parameters() if name in own},
    )


def run_wide(case: LocalCase, *, hidden_size: int, family: Family = WIDE) -> list[LocalResult]:
    """Run a case with the wide model, one thread a worker; its config and folder do not count."""
    transports = joined(pp=case.pp, dp=case.dp)

    def work(worker: int) -> LocalResult:
        place = Place(worker=worker, pp=case.pp, dp=case.dp)
        model = wide_part(case, place, hidden_size=hidden_size, family=family)
        return LocalWorker(case, place, model, transports[worker]).run()

    try:
        return together([lambda worker=worker: work(worker) for worker in range(case.num_workers)])  # type: ignore[misc]
    finally:
        for transport in transports:
            transport.close()
