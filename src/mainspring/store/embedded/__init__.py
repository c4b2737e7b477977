"""A PostgreSQL of our own: real binaries (from a wheel, or the system's) run as our child on a private folder.

This is the whole seam: nothing else in Mainspring knows whether the URL it was given leads here or to a server
somebody else runs.
"""

from mainspring.store.embedded.folder import FolderLock
from mainspring.store.embedded.server import POLL_SECONDS, EmbeddedPostgres, runs_on

__all__ = ["POLL_SECONDS", "EmbeddedPostgres", "FolderLock", "runs_on"]
