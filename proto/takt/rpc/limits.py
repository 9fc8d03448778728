"""Limits that both ends of a connection must agree on, as gRPC channel arguments."""

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Largest message, the same at both ends and in both directions."""

MAX_STATUS_BYTES = 20_000
"""Longest error text in UTF-8; it travels in metadata, where a byte may take three."""

CLIENT_PING_SECONDS = 30
SERVER_MIN_PING_SECONDS = 10
"""A server ends connections that ping more often than this, so clients must stay well above it."""

Options = list[tuple[str, int | str]]

_BOTH_ENDS: Options = [
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_metadata_size", 64 * 1024),
    ("grpc.absolute_max_metadata_size", 128 * 1024),
    ("grpc.keepalive_time_ms", CLIENT_PING_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]

CLIENT_OPTIONS: Options = [
    *_BOTH_ENDS,
    ("grpc.enable_http_proxy", 0),
    # The default doubles up to two minutes; a peer that came back is wanted at once: a killed data service that is
    # ready after 2 s has its readers back 0.6 s later, at most.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 500),
]

SERVER_OPTIONS: Options = [
    *_BOTH_ENDS,
    # With it on, two servers share one port and each gets some of the calls.
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", SERVER_MIN_PING_SECONDS * 1000),
    ("grpc.http2.max_ping_strikes", 2),
    ("grpc.max_concurrent_streams", 1024),
]
