"""Closed-loop simulation: rollouts of a driver in traffic, and nuPlan's score.

`rollout.simulate` drives one scene, `campaign.drive_campaign` many; `rollout.score` scores a rollout. A driver is any
object with the methods of `waycode.driving.Driver`; the drivers that use the model are in `drivers`. Nothing is
imported here: SUMO's process needs only the few modules that it names.
"""
