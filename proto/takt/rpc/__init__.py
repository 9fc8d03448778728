"""What services share at a wire: errors, servers, channels, logs, metrics. Knows nothing of what they do."""
