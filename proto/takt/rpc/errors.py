"""Errors that cross a wire, and the one table that gives each its status code."""

from collections.abc import Mapping

import grpc

StatusTable = Mapping[type[Exception], grpc.StatusCode]
"""Status code of each error type that callers may see; a subclass has its nearest listed ancestor's."""


class TaktError(Exception):
    """Something a person can act on; the text names the value, the rule and the fix."""


class ListenError(TaktError):
    """An address cannot be listened on: malformed, unknown here, or not allowed."""


class AddressInUseError(TaktError):
    """Another process already listens on the address."""


class UnreachableError(TaktError):
    """A peer did not answer in the time that it had."""


def status_of(error: Exception, table: StatusTable) -> grpc.StatusCode:
    """Return the code of the error's nearest listed ancestor, INTERNAL if none is listed."""
    return next((table[kind] for kind in type(error).__mro__ if kind in table), grpc.StatusCode.INTERNAL)
