"""One target a file; all of them are listed in `tests.fuzz.catalogue`."""
