"""What services share at a wire: errors, servers, channels, logs, metrics. Knows no pipeline word."""
