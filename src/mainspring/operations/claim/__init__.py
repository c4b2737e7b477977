"""The claim: which runs a worker gets, and the exchanges that wait for some."""
