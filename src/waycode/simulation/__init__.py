"""Stepping the world with a planner in it, and scoring what it did.

`rollout.simulate` drives one scene, `campaign.drive_campaign` many; `metrics.score_run` judges. A planner of your own
is any object with `plan(observation) -> Trajectory` (see `waycode.driving`); ours by the model are in `planners`.
Nothing is imported here: SUMO's own process needs only the few modules that it names.
"""
