"""`python -m clotho.monitoring`: the dashboard for Grafana, to be imported there."""

import sys
from pathlib import Path

sys.stdout.write(Path(__file__).with_name("dashboard.json").read_text())
