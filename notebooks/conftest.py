"""For tests of the notebooks: the machine that they keep lies apart, not here."""

import tempfile

from course_gpt import set_apart

folder = tempfile.TemporaryDirectory()
set_apart(folder.name)
