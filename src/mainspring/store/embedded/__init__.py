"""The embedded PostgreSQL: real binaries, from a wheel or from the system, run as a child process on a private folder.

The rest of Mainspring only uses the URL. It does not know whether the URL leads to the embedded PostgreSQL or to
another server.
"""

from mainspring.store.embedded.folder import FolderLock
from mainspring.store.embedded.server import POLL_SECONDS, EmbeddedPostgres, runs_on

__all__ = ["POLL_SECONDS", "EmbeddedPostgres", "FolderLock", "runs_on"]
