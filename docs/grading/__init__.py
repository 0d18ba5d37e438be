"""A hand-in's way to its grade, a module for each step; nbgrader calls them.

`hand_ins` takes a file under its right name, `mending` mends it, `running` runs it,
`feedback` hides what students don't receive, and `grades` writes the table. `plugins`
puts them in nbgrader's places; nothing else here needs nbgrader.
"""
