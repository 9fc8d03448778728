"""What a job's data look like, found out before anything is started."""

from dataclasses import dataclass

from dataloader_svc.corpus import find_splits, read_rows
from dataloader_svc.errors import DataFileError, SpecError
from dataloader_svc.labels import labels_of
from dataloader_svc.settings import DataSettings, Objective
from dataloader_svc.splits import SplitName
from dataloader_svc.tokens import RowTokenizer, open_tokenizer, require_mask_token, rows_digest

MAX_STEPS = 2**32 - 1
"""Step numbers are 32 bits wide on the wire."""
ROWS_TRIED = 64
"""Rows of a split that are tokenised, so that a tokenizer that can do nothing is found before the workers start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFacts:
    """One split of a task."""

    name: SplitName
    num_rows: int
    labelled: bool
    """Whether its rows say what is to be predicted; text itself does where tokens are."""
    evaluation_steps: int
    """Forward-only steps that a pass over it takes."""
    num_malformed: int
    """Lines of its file that were left out."""
    digest: str
    """That of its tokenised rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFacts:
    """All that is known about a job's data."""

    splits: tuple[SplitFacts, ...]
    labels: tuple[str, ...]
    """In the order of their ids; empty where tokens or numbers are predicted."""
    written_labels: tuple[str, ...]
    """How the files of GLUE write each of ``labels``."""
    num_labels: int
    """Outputs that a classification head needs; 1 where a number, 0 where tokens are predicted."""
    vocabulary_size: int
    pad_token_id: int
    steps_per_epoch: int
    total_steps: int


def inspect_data(settings: DataSettings) -> DataFacts:
    """Read the files that a job's data come from and check that it can be trained on them.

    Raises:
        DataServiceError: a file, the tokenizer or a setting does not allow it.
    """
    tokenizer = open_tokenizer(settings.tokenizer)
    tokenizer.check_length(settings.max_length, num_texts=settings.task.num_texts)
    if settings.objective is Objective.MASKED_LM:
        require_mask_token(tokenizer.mask_token_id, tokenizer=settings.tokenizer)
    if settings.predicted_split is not None:
        return _prediction_facts(settings, tokenizer, settings.predicted_split)
    files = find_splits(settings)
    splits = tuple(_split_facts(settings, tokenizer, split) for split in files)
    num_train_rows = next((facts.num_rows for facts in splits if facts.name is SplitName.TRAIN), None)
    if num_train_rows is None:
        raise DataFileError(
            f"task {settings.task.name} has no split to train on; a model of mnli predicts it: "
            "takt predict ID --split ax"
        )
    if num_train_rows == 0:
        places = ", ".join(map(str, files[SplitName.TRAIN]))
        raise DataFileError(f"task {settings.task.name}: the training split has no rows; needs some in {places}")
    steps_per_epoch = settings.training(num_train_rows).steps_per_epoch
    if steps_per_epoch == 0:
        raise SpecError(
            f"data.drop_last leaves nothing to train on: {num_train_rows} rows, "
            f"train.global_batch_size is {settings.global_batch_size}"
        )
    total_steps = settings.training_steps(num_train_rows)
    if total_steps > MAX_STEPS:
        raise SpecError(f"the job would take {total_steps} steps, at most {MAX_STEPS} are possible")
    return _facts(settings, tokenizer, splits, steps_per_epoch=steps_per_epoch, total_steps=total_steps)


def _prediction_facts(settings: DataSettings, tokenizer: RowTokenizer, split: SplitName) -> DataFacts:
    there = find_splits(settings)
    if split not in there:
        found = ", ".join(there) or "no split"
        fix = "; it is the split of data.task: ax, which a model of mnli predicts" if split is SplitName.AX else ""
        raise SpecError(f"predict.split: is {split}, but task {settings.task.name} has {found} in its files{fix}")
    facts = _split_facts(settings, tokenizer, split)
    if facts.num_rows == 0:
        raise SpecError(f"predict.split: is {split}, which has no row; needs rows to predict")
    return _facts(settings, tokenizer, (facts,), steps_per_epoch=0, total_steps=0)


def _facts(
    settings: DataSettings,
    tokenizer: RowTokenizer,
    splits: tuple[SplitFacts, ...],
    *,
    steps_per_epoch: int,
    total_steps: int,
) -> DataFacts:
    order = () if settings.objective.is_token_level else labels_of(settings.task, settings.model)
    return DataFacts(
        splits=splits,
        labels=order,
        written_labels=tuple(settings.task.written(label) for label in order),
        num_labels=_num_labels(settings),
        vocabulary_size=tokenizer.vocabulary_size,
        pad_token_id=tokenizer.pad_token_id,
        steps_per_epoch=steps_per_epoch,
        total_steps=total_steps,
    )


def _num_labels(settings: DataSettings) -> int:
    if settings.objective.is_token_level:
        return 0
    return 1 if settings.task.is_regression else len(settings.task.labels)


def _split_facts(settings: DataSettings, tokenizer: RowTokenizer, split: SplitName) -> SplitFacts:
    rows = read_rows(settings, split)
    tokenizer.tokenise(rows.head(ROWS_TRIED), max_length=settings.max_length)
    return SplitFacts(
        name=split,
        num_rows=len(rows),
        labelled=settings.objective.is_token_level or rows.labels is not None,
        evaluation_steps=settings.evaluation(len(rows)).steps_per_epoch,
        num_malformed=rows.num_malformed,
        digest=rows_digest(rows, tokenizer),
    )
