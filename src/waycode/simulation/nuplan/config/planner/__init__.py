"""planner=waycode_planner."""
