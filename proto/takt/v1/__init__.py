"""Generated messages and services; the .proto files beside them are the source."""
