"""The command line program `takt`."""
