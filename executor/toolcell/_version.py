"""The one place that holds the version: hatchling reads it here, and so does `--version`."""

__version__ = "0.1.0"
