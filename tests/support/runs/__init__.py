"""How the suite is run: pytest plugins of every run, and the programs behind `make stress` and `make soak`."""
