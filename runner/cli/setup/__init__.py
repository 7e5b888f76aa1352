"""Commands that set the runner up: its configuration, completion in shells, versions."""
