"""Two streams of births and deaths laid beside one another: the estimate's, and that of a run that `real.py` made.

    python tests/tools/trace/streams.py --program target/debug/plimsoll FOLDER [ID...] [--births] [--around N] [--least BYTES]

FOLDER is what `real.py --out` wrote. Of each row it says where the first event is that differs, in the order in which they came, with
what each side did before and after it: the operator and shape of ours, the line of Python of theirs. Deaths without a birth between
them are taken in the order of their sizes: what is left of the card's memory is the same in any. `--births` leaves deaths out, and
lists every stretch of births that one side has and the other has not, in all of the run.
"""

import argparse
import difflib
import gzip
import itertools
import json
import os
import pathlib
import subprocess
import tempfile

from hollow import lines

# What PyTorch rounds a block to: `kMinBlockSize` of CUDACachingAllocator.cpp.
BLOCK = 512


def rounded(size):
    return -(-size // BLOCK) * BLOCK


def ours(program, scenario):
    """Size, negative of what dies, and what is said of it, in order."""
    with tempfile.TemporaryDirectory() as folder:
        asked, ledger = os.path.join(folder, "asked.json"), os.path.join(folder, "ledger.json.gz")
        with open(asked, "w", encoding="utf-8") as file:
            json.dump(scenario, file)
        subprocess.run([program, "estimate", asked, "--ledger", ledger, "--format", "json"], stdout=subprocess.DEVNULL, check=True)
        with gzip.open(ledger) as file:
            told = json.load(file)
    of = told["storages"]
    for event in told["events"]["storage"]:
        storage = event if event >= 0 else -1 - event
        size = rounded(of["bytes"][storage])
        if size:
            shape = "x".join(map(str, told["shapes"][of["shape"][storage]]))
            said = "%s [%s] %s, %s" % (
                told["ops"][of["op"][storage]], shape, told["dtypes"][of["dtype"][storage]], told["kinds"][of["kind"][storage]],
            )
            yield (size if event >= 0 else -size), said


def theirs(path):
    with open(path, encoding="utf-8") as file:
        told = json.load(file)
    for size, _, place in told["events"]:
        yield (rounded(size) if size > 0 else -rounded(-size)), told["places"][place]


def settled(stream):
    """The same, with deaths that nothing comes between in the order of their sizes."""
    out = []
    for dies, run in itertools.groupby(stream, lambda event: event[0] < 0):
        out += sorted(run, key=lambda event: event[0]) if dies else run
    return out


def first(left, right, around):
    """Where two streams part, and what is around it."""
    at = next((n for n, (a, b) in enumerate(zip(left, right)) if a[0] != b[0]), min(len(left), len(right)))
    if at == len(left) == len(right):
        print("  all %d events are in their places" % at)
        return
    print("  event %d of %d and %d" % (at, len(left), len(right)))
    for n in range(max(0, at - around), at):
        print("    %8d %+14d  %-70s | %s" % (n, left[n][0], left[n][1][:70], right[n][1][:110]))
    for mark, stream in (("ours", left), ("card", right)):
        for n in range(at, min(at + around, len(stream))):
            print("    %s %3d %+14d  %s" % (mark, n - at, stream[n][0], stream[n][1][:140]))


def births(left, right, least):
    """Every stretch of births that one side alone has."""
    left, right = ([event for event in stream if event[0] >= least] for stream in (left, right))
    matcher = difflib.SequenceMatcher(None, [size for size, _ in left], [size for size, _ in right], autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind != "equal":
            print("  births %d and %d" % (a, c))
            for size, said in left[a:b]:
                print("    ours %14d  %s" % (size, said[:140]))
            for size, said in right[c:d]:
                print("    card %14d  %s" % (size, said[:140]))


def main():
    parser = argparse.ArgumentParser(prog="streams", description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="target/debug/plimsoll", help="a built plimsoll")
    parser.add_argument("folder", type=pathlib.Path, help="what real.py wrote")
    parser.add_argument("ids", nargs="*", help="rows whose ids begin so; all")
    parser.add_argument("--births", action="store_true", help="all births that one side alone has")
    parser.add_argument("--around", type=int, default=6, help="so many events before and after the first that differs")
    parser.add_argument("--least", type=int, default=1, help="of --births: none of fewer bytes")
    options = parser.parse_args()
    for row in lines(options.folder / "rows.jsonl"):
        events = options.folder / "events" / (row["id"] + ".json")
        if "error" in row["expected"] or not events.exists() or (options.ids and not row["id"].startswith(tuple(options.ids))):
            continue
        print(row["id"])
        left, right = settled(ours(options.program, row["scenario"])), settled(theirs(events))
        if options.births:
            births(left, right, options.least)
        else:
            first(left, right, options.around)


if __name__ == "__main__":
    main()
