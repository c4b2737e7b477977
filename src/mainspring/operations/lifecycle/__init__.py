"""How runs are completed and change hands: report, cancel, expire, rescue, skip, discard.

Every end of a run, and every way back into its lane, goes through this package, in the caller's transaction. The answer
is an `Effects`: what follows, for the caller to do after the commit.
"""
