"""The wire of Takt: messages and services in takt.v1, what every wire needs in takt.rpc."""
