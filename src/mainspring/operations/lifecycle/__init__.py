"""How runs are completed and change hands: report, cancel, expire, rescue, skip, discard.

Every end of a run and every requeue goes through this package, in the caller's transaction. The result is an `Effects`:
what the caller must do after the commit.
"""
