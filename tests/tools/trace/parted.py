"""Where an estimate and a hollow card part, phase by phase: what `hollow.py --events FOLDER ROWS.jsonl` wrote, beside the estimate's ledger.

    python tests/tools/trace/parted.py --program target/debug/plimsoll FOLDER ROWS.jsonl [ID...] [--births] [--most N] [--around N]

Of each phase it lists the stretches that one side alone has, each with what comes before it: the operator and shape of ours, the lines of
Python of the card's. Deaths without a birth between them are taken in the order of their sizes; `--births` leaves them out.
"""

import argparse
import difflib
import gzip
import json
import pathlib
import subprocess
import tempfile

from hollow import MARK, lines
from streams import rounded, settled


def ledger(program, scenario):
    """The ledger of an estimate."""
    with tempfile.TemporaryDirectory() as folder:
        asked, told = pathlib.Path(folder, "asked.json"), pathlib.Path(folder, "ledger.json.gz")
        asked.write_text(json.dumps(scenario), encoding="utf-8")
        subprocess.run([program, "estimate", asked, "--ledger", told, "--format", "json"], stdout=subprocess.DEVNULL, check=True)
        with gzip.open(told) as file:
            return json.load(file)


def place(told, module):
    """The last four names of a module."""
    modules, names = told["modules"], []
    while module and len(names) < 4:
        item = modules["item"][module]
        names.insert(0, modules["name"][module] + ("" if item is None else ".%d" % item))
        module = modules["parent"][module]
    return "/".join(names)


def ours(program, scenario):
    """Each phase's name, step and events: size, negative of what dies, and what is said of it."""
    told = ledger(program, scenario)
    of, phases, events = told["storages"], told["phases"], []
    for event in told["events"]["storage"]:
        storage = event if event >= 0 else -1 - event
        size = rounded(of["bytes"][storage])
        shape = "x".join(map(str, told["shapes"][of["shape"][storage]]))
        said = "%s [%s] %s, %s  @%s" % (
            told["ops"][of["op"][storage]], shape, told["dtypes"][of["dtype"][storage]], told["kinds"][of["kind"][storage]],
            place(told, of["module"][storage]),
        )
        events.append((size if event >= 0 else -size, said))
    starts = phases["event"] + [len(events)]
    for number, (name, step) in enumerate(zip(phases["name"], phases["step"])):
        if name != "end":
            yield name, step, [event for event in events[starts[number]:starts[number + 1]] if event[0]]


def theirs(path):
    """The same of a card's history, which a mark parts, or in `fleet.py`'s the names of the phases."""
    phases, alive, phase = [], {}, None
    for line in lines(path):
        if len(line) == 4:
            born, address, size, frames = line
        else:
            what, address, size, named, _, _, frames = line
            born = what == "a"
            if named != phase:
                phase = named
                phases.append([])
        if born:
            alive[address] = size
        else:
            size = alive.pop(address, size)
        if size != MARK and phases:
            said = " < ".join(frame.split("site-packages/")[-1] for frame in frames)
            phases[-1].append((rounded(size) if born else -rounded(size), said))
        elif size == MARK and born:
            phases.append([])
    return phases


def part(left, right, most, around):
    """The stretches that one side alone has."""
    matcher = difflib.SequenceMatcher(None, [size for size, _ in left], [size for size, _ in right], autojunk=False)
    stretches = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    for _, a, b, c, d in stretches[:most]:
        print("  events %d and %d of %d stretches" % (a, c, len(stretches)))
        for size, said in left[max(0, a - around):a]:
            print("         %+14d  %s" % (size, said[:160]))
        for mark, stream in (("ours", left[a:b]), ("card", right[c:d])):
            for size, said in stream:
                print("    %s %+14d  %s" % (mark, size, said[:200]))


def main():
    parser = argparse.ArgumentParser(prog="parted", description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="target/debug/plimsoll", help="a built plimsoll")
    parser.add_argument("folder", type=pathlib.Path, help="what hollow.py --events wrote")
    parser.add_argument("rows", help="the rows that it ran")
    parser.add_argument("ids", nargs="*", help="those whose ids begin so; all")
    parser.add_argument("--births", action="store_true", help="deaths are left out")
    parser.add_argument("--most", type=int, default=6, help="so many stretches of a phase")
    parser.add_argument("--around", type=int, default=3, help="so many events before each")
    options = parser.parse_args()
    for row in lines(options.rows):
        events = options.folder / (row["id"] + ".jsonl")
        if not events.exists() or (options.ids and not row["id"].startswith(tuple(options.ids))):
            continue
        print(row["id"])
        for (name, step, left), right in zip(ours(options.program, row["scenario"]), theirs(events)):
            if options.births:
                left, right = ([event for event in stream if event[0] > 0] for stream in (left, right))
            else:
                left, right = settled(left), settled(right)
            if [size for size, _ in left] != [size for size, _ in right]:
                print("%s %s: %d and %d events" % (name, step, len(left), len(right)))
                part(left, right, options.most, options.around)


if __name__ == "__main__":
    main()
