"""Run a command, then write the bytes it took at most: `at_peak.py COMMAND ...`.

The number is the last line of standard error. On Linux a process counts from the peak
of the one that began it, so this small one stands between.
"""

import resource
import subprocess
import sys

done = subprocess.run(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss
print(used.ru_maxrss * unit, file=sys.stderr)
sys.exit(done.returncode)
