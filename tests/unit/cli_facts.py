"""What a command finds out about a job's model and data, where no test is about them."""

from coordinator.facts import DataFacts, ModelFacts, Split
from coordinator.spec import JobSpec


def facts(_: JobSpec, *, with_parts: bool = False) -> tuple[ModelFacts, DataFacts]:
    """Return a BERT of six layers, and 64 rows to train and 64 to evaluate on."""
    model = ModelFacts(
        model_type="bert", num_layers=6, hidden_size=8, max_positions=128, vocabulary_size=96, token_types=2, labels=()
    )
    data = DataFacts(
        splits=tuple(Split(name=name, num_rows=64, labelled=True, num_steps=1) for name in ("train", "validation")),
        labels=("no", "yes"),
        num_labels=2,
        vocabulary_size=96,
        pad_token_id=0,
        steps_per_epoch=2,
        total_steps=6,
    )
    return model, data
