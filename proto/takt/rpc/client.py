"""Channels to other services: no proxy, equal limits, keepalive, retries where they are safe."""

import json
from collections.abc import Sequence

import grpc
import grpc.aio

from takt.rpc.limits import CLIENT_OPTIONS, MAX_MESSAGE_BYTES, Options

__all__ = ["MAX_MESSAGE_BYTES", "aio_channel", "channel"]


def channel(address: str, *, idempotent: Sequence[str] = ()) -> grpc.Channel:
    """Open a channel to ``host:port``; it connects at the first call.

    Args:
        address: where the service listens.
        idempotent: unary methods, as ``package.Service/Method``, that are called again when the service was
            UNAVAILABLE. A method that changes something, or streams, does not belong here.
    """
    return grpc.insecure_channel(address, options=_options(idempotent))


def aio_channel(address: str, *, idempotent: Sequence[str] = ()) -> grpc.aio.Channel:
    """As ``channel``, for asyncio."""
    return grpc.aio.insecure_channel(address, options=_options(idempotent))


def _options(idempotent: Sequence[str]) -> Options:
    if not idempotent:
        return CLIENT_OPTIONS
    policy = {
        "maxAttempts": 4,
        "initialBackoff": "0.1s",
        "maxBackoff": "1s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
    names = [dict(zip(("service", "method"), name.rsplit("/", 1), strict=True)) for name in idempotent]
    config = {"methodConfig": [{"name": names, "retryPolicy": policy}]}
    return [*CLIENT_OPTIONS, ("grpc.service_config", json.dumps(config))]
