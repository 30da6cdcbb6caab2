"""The probe's scripts as modules: their parts, in the order in which `probe/src/scripts.rs` joins them. Tracebacks name the parts."""

import pathlib
import re
import types

PROBE = pathlib.Path(__file__).resolve().parents[3] / "probe"


def load(script):
    """`worker` or `recorder`."""
    table = re.search(r'joined!\(\s*"%s":(.*?)\)' % script, (PROBE / "src" / "scripts.rs").read_text(encoding="utf-8"), re.DOTALL)
    module = types.ModuleType(script)
    for name in re.findall(r'"(\w+)"', table.group(1)):
        part = PROBE / script / (name + ".py")
        exec(compile(part.read_text(encoding="utf-8"), part, "exec"), module.__dict__)
    return module
