"""nbgrader's settings for the course that `make assignment` writes.

A grade follows what was handed in. `grading/`, beside this file, says how: it takes a
hand-in under its right name, mends it, runs it, and writes the page and `grades.csv`.
"""

import os
import sys
from pathlib import Path

# A hand-in that keeps a machine writes it beside itself, and never into the teacher's.
os.environ.pop("MY_GPT_FILE", None)
sys.path.insert(0, str(Path(__file__).parent))

from grading.converters import take_their_places  # noqa: E402
from grading.plugins import ByHand, Grades, Hide, Mend, Run, with_others  # noqa: E402
from nbgrader.converters import Autograde, GenerateFeedback  # noqa: E402
from nbgrader.preprocessors import Execute, GetGrades  # noqa: E402

take_their_places()

c = get_config()  # noqa: F821
c.CourseDirectory.course_id = "transformer"

# Giving out. An answer's stub is that of the chapters; a source that was mended is
# given out by the same words.
c.ClearSolutions.code_stub = {"python": "raise NotImplementedError"}
c.GenerateAssignment.force = True

# Grading. Seconds a cell; after 30, the default, a cell that trains would fail.
c.Execute.timeout = 600
# To nbgrader a warning is a failure: a right answer would lose its point.
c.IgnorePattern.enabled = True
c.IgnorePattern.pattern = "(?s)."
before = Autograde.sanitize_preprocessors
then = Autograde.autograde_preprocessors
c.Autograde.sanitize_preprocessors = [Mend, *before.default()]
c.Autograde.autograde_preprocessors = [
    *with_others(then.default(), {Execute: Run}),
    ByHand,
]

# Telling. A grade that has changed is told by the same words.
c.GenerateFeedback.force = True
pages = GenerateFeedback.preprocessors
c.GenerateFeedback.preprocessors = with_others(pages.default(), {GetGrades: Hide})
c.ExportApp.plugin_class = Grades
