"""Pages, plots and exports of what the engine left. Nothing of the benchmark imports this room."""
