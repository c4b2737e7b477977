"""Two ways to make a run of the tests restless (`make chaos`): it finds tests that lean on time or on who is first."""
