"""Training: recipes, losses, data, callbacks, runs."""
