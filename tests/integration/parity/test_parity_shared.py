"""Parameters that several stages use: one tensor to the eye of the job, as many copies as there are workers."""

from itertools import pairwise

import pytest
import torch

from benchmarks.local_case import LocalCase, LocalStep
from tests.integration.parity.conftest import Run, Train
from tests.integration.parity.matrix import ModelFolder
from tests.integration.parity.models import MODELS
from tests.integration.parity.reference import assert_close, assert_copies_are_equal

pytestmark = pytest.mark.timeout(180)

EIGHT = (7, 12, 32, 9, 5, 6, 8, 20)
FIVE_STEPS = tuple(LocalStep(EIGHT[shift:] + EIGHT[:shift]) for shift in range(5))


def case_of(name: str, model_folder: ModelFolder, *, pp: int, dp: int = 1) -> LocalCase:
    model = MODELS[name]
    return LocalCase(
        model=model.config(),
        folder=model_folder(name, 4),
        objective=model.objective,
        pp=pp,
        dp=dp,
        num_microbatches=4,
        steps=FIVE_STEPS,
        learning_rate=1e-4,
        records_gradients=True,
    )


def holders(tensors: list[dict[str, torch.Tensor]], name: str) -> list[int]:
    return [worker for worker, own in enumerate(tensors) if f"weight/1/{name}" in own]


@pytest.mark.parametrize(
    ("name", "shared", "pp", "workers"),
    [
        ("bert-masked_lm", "bert.embeddings.word_embeddings.weight", 2, [0, 1]),
        ("bert-masked_lm", "bert.embeddings.word_embeddings.weight", 4, [0, 3]),
        ("gpt2-causal_lm", "transformer.wte.weight", 2, [0, 1]),
        ("gpt2-causal_lm", "transformer.wte.weight", 4, [0, 3]),
        ("albert", "albert.encoder.albert_layer_groups.0.albert_layers.0.ffn.weight", 4, [0, 1, 2, 3]),
        ("albert-2-groups", "albert.encoder.albert_layer_groups.0.albert_layers.0.ffn.weight", 4, [0, 1]),
        ("albert-2-groups", "albert.encoder.albert_layer_groups.1.albert_layers.0.ffn.weight", 4, [2, 3]),
    ],
)
def test_shared_weights_stay_the_same_bits_and_train_like_one_process(
    name: str, shared: str, pp: int, workers: list[int], *, model_folder: ModelFolder, run: Run, train: Train
) -> None:
    """H46: five steps of AdamW; only those workers that use a parameter have it."""
    case = case_of(name, model_folder, pp=pp)
    result, expected = run(case), train(case)
    assert holders(result.tensors, shared) == workers
    copies = [result.tensors[workers[0]][f"weight/{step}/{shared}"] for step in range(1, 6)]
    assert not any(torch.equal(a, b) for a, b in pairwise(copies)), "it was not trained"
    for step in range(1, 6):
        assert_copies_are_equal(result.tensors, f"weight/{step}/")
        assert_close(result.merged(f"gradient/{step}"), expected.gradients[step - 1], limit=1e-6)
        assert_close(result.merged(f"weight/{step}"), expected.weights[step - 1], limit=1e-6)


@pytest.mark.parametrize("name", ["bert-masked_lm", "gpt2-causal_lm", "albert"])
def test_shared_weights_are_stored_and_counted_once(
    name: str, *, model_folder: ModelFolder, run: Run, train: Train
) -> None:
    """One worker answers for each: what is exported, the optimizer's state and the norm have it once."""
    case = case_of(name, model_folder, pp=4)
    result, expected = run(case), train(case)
    for prefix in ("final/", "moment/"):
        names = [key for own in result.tensors for key in own if key.startswith(prefix)]
        assert len(names) == len(set(names))
    assert result.merged("final").keys() == expected.weights[0].keys()
    for index, step in enumerate(result.steps(0)):
        assert step["grad_norm"] == pytest.approx(expected.norms[index], rel=1e-5)
