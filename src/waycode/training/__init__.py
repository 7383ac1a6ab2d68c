"""How models are trained: recipes, losses, data, checkpoints."""
