"""The experiments: what is to be done, and how.

Every one is a module (or a folder) with two functions: `units(preset)`, what is to be done, and
`work(unit, tell, checkpoint)`, which does one unit and returns its metrics. They share `training` and `images`.
"""
