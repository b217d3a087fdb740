"""Makes the modules named in EVOLVE_WITHOUT look as if they were not installed."""

import os
import sys

for _name in filter(None, os.environ.get("EVOLVE_WITHOUT", "").split(",")):
    sys.modules[_name] = None
