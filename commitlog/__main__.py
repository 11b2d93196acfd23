"""Run the command line as ``python -m commitlog``."""

from commitlog.cli import main

if __name__ == "__main__":
    main(prog_name="commitlog")
