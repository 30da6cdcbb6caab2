"""The probe's worker as a module: its parts, in the order in which `probe/src/scripts.rs` joins them. Tracebacks name the parts."""

import pathlib
import re

PROBE = pathlib.Path(__file__).resolve().parents[2] / "probe"


def parts():
    table = re.search(r'joined!\(\s*"worker":(.*?)\)', (PROBE / "src" / "scripts.rs").read_text(encoding="utf-8"), re.DOTALL)
    return [PROBE / "worker" / (name + ".py") for name in re.findall(r'"(\w+)"', table.group(1))]


for part in parts():
    exec(compile(part.read_text(encoding="utf-8"), part, "exec"))
