"""The table of status codes."""

import grpc
from takt.rpc.errors import StatusTable, TaktError, status_of


class ParentError(TaktError):
    pass


class ChildError(ParentError):
    pass


TABLE: StatusTable = {ParentError: grpc.StatusCode.NOT_FOUND, TaktError: grpc.StatusCode.ABORTED}


def test_status_of_listed_error_is_its_own_code() -> None:
    assert status_of(ParentError(), TABLE) is grpc.StatusCode.NOT_FOUND


def test_status_of_unlisted_error_is_its_nearest_ancestors_code() -> None:
    assert status_of(ChildError(), TABLE) is grpc.StatusCode.NOT_FOUND


def test_status_of_stranger_is_internal() -> None:
    assert status_of(KeyError("x"), TABLE) is grpc.StatusCode.INTERNAL
