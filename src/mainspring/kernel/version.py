"""The version. It stands here and in pyproject.toml, and a test holds them together."""

# Written down, because asking importlib.metadata for it cost every process 10 ms and more, the mail parser included.
VERSION = "0.3.0"
