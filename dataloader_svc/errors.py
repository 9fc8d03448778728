"""What can go wrong in the data service; each message names the value, the rule and the fix."""

from takt.rpc.errors import TaktError


class DataServiceError(TaktError):
    """The data service cannot do what was asked."""


class SpecError(DataServiceError):
    """A job's spec lacks a key, or a value in it cannot be served."""


class DataFileError(DataServiceError):
    """A file of a task is missing or is not what its name promises."""


class TokenizerError(DataServiceError):
    """A tokenizer folder cannot be used."""


class RequestError(DataServiceError):
    """A request does not fit the job it names."""


class ReplacedError(DataServiceError):
    """What the rows of a split come from is not what it was when the job was checked."""


class UnknownJobError(DataServiceError):
    """No job of this id has a spec in the state folder."""
