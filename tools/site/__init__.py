"""The documentation site: what it is made of (pages.py, reference.py) and how it is built (build.py)."""
