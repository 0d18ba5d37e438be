"""A hand-in's way to its grade, a module for each step; nbgrader calls them.

`hand_ins` takes a file under its right name, `mending` mends it, `running` runs it,
`feedback` hides what students don't receive, and `grades` writes the table. `cells` has
what all of them know of a cell; none of these needs nbgrader. `plugins` puts them in
nbgrader's places, `gradebook` reads its gradebook, and `converters` replaces what of
nbgrader has no place for them.
"""
