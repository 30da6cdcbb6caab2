"""Makes the catalog's recordings again, as `data/hulls.toml` says how.

    python tests/tools/hulls/make.py --program target/release/plimsoll [--python PATH] [ID...]
    python tests/tools/hulls/make.py --lot SEED [ID...]

It is run by any Python with `tomllib`; `--python` names one that has the libraries. Without an id it makes what is missing. A
file that was there before stays as it is where the new one says the same, packed in another way or made with other versions; where it
does not, it is kept beside the new one under its hash: links name files by their hashes for ever. `--lot` draws two rows of each instead, at sizes and with recipes by chance, for `tests/tools/trace/hulls.py`.
"""

import argparse
import hashlib
import json
import lzma
import pathlib
import random
import subprocess
import sys
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[3]
TABLE, FOLDER = ROOT / "data/hulls.toml", ROOT / "data/hulls"


def command(row, program, python, out):
    program = str(pathlib.Path(program).resolve()) if "/" in program else program
    asked = [program, "trace", row["model"], "--loss", row["loss"], "--precision", row["precision"], "-o", str(out)]
    asked += ["--python", python] if python else []
    asked += ["--gpu", row["gpu"]] if "gpu" in row else []
    for flag, key in (("--input", "inputs"), ("--axis", "axes"), ("--answer", "answers")):
        asked += [word for given in row.get(key, []) for word in (flag, given)]
    return asked


def hash_of(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def said(path):
    """What a file says, but for what it was made with (docs/hull.md)."""
    head, _, rest = path.read_bytes().partition(b"\n")
    if head != b"plimsoll-hull 2":
        return head
    length = int.from_bytes(rest[:4], "little")
    options = {"id": lzma.FILTER_LZMA1, "lc": 3, "lp": 0, "pb": 0, "dict_size": max(length, 4096)}
    text = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[options]).decompress(rest[4:], length)
    return {key: value for key, value in json.loads(text).items() if key != "made"}


def make(row, options):
    path, made = FOLDER / (row["id"] + ".hull"), FOLDER / (row["id"] + ".part")
    begun = time.monotonic()
    code = subprocess.run(command(row, options.program, options.python, made), cwd=ROOT).returncode
    if code:
        made.unlink(missing_ok=True)
        return "%s: refused" % row["id"]
    if path.exists() and said(path) == said(made):
        made.unlink()
        return "%s: as it was, %.0f s" % (row["id"], time.monotonic() - begun)
    if path.exists():
        path.rename(FOLDER / ("%s-%s.hull" % (row["id"], hash_of(path)[:16])))
    made.rename(path)
    return "%s: %d bytes, %.0f s" % (row["id"], path.stat().st_size, time.monotonic() - begun)


def lot(row, seed):
    """Two rows of a hull, as `tests/tools/trace/hulls.py` takes them."""
    draw = random.Random("%s %s" % (seed, row["id"]))
    axes = {}
    for given in row.get("axes", []):
        name, _, usual = given.partition("=")
        usual, _, step = usual.partition("/")
        axes[name] = int(usual), int(step or 1)
    for number in range(2):
        precision = draw.choice(row["precision"].split(","))
        trace = {"model": row["model"], "input": row["inputs"], "loss": row["loss"], "precision": precision,
                 "detach_loss": False}
        optimizer = draw.choice(["adamw", "adamw", "sgd-momentum", "adafactor", "lion"])
        training = {
            "precision": precision,
            "optimizer": optimizer,
            # The tracer's default, where a scenario's is another.
            **({"optimizer_impl": "foreach"} if optimizer == "lion" else {}),
            "accumulation": draw.choice([1, 1, 2, 3]),
            "clip_grad_norm": draw.random() < 0.5,
            "zero_grad_at": draw.choice(["after-step", "before-forward"]),
            "checkpointing": draw.choice(["none", "none", "full"]),
        }
        drawn = {name: usual + step * draw.randint(0, max(1, usual // (2 * step))) for name, (usual, step) in axes.items()}
        yield {"id": "%s-%d" % (row["id"], number), "hull": row["id"] + ".hull", "trace": trace,
               "batch": draw.choice([1, 2, 4, 7, 8]), "axes": drawn, "training": training, "gpu": row.get("gpu", "h200")}


def main():
    parser = argparse.ArgumentParser(prog="make", description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="plimsoll", help="a built plimsoll")
    parser.add_argument("--lot", metavar="SEED", help="draw rows instead")
    parser.add_argument("--python", help="the Python that has the libraries")
    parser.add_argument("ids", nargs="*")
    options = parser.parse_args()
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))["hull"]
    unknown = set(options.ids) - {row["id"] for row in rows}
    if unknown:
        raise SystemExit("data/hulls.toml has no %s" % ", ".join(sorted(unknown)))
    wanted = [row for row in rows if row["id"] in options.ids or not options.ids and not (FOLDER / (row["id"] + ".hull")).exists()]
    if options.lot is not None:
        for row in rows:
            if not options.ids or row["id"] in options.ids:
                print("\n".join(map(json.dumps, lot(row, options.lot))))
        return 0
    said = [make(row, options) for row in wanted]
    print("\n".join(said))
    return 1 if any(line.endswith("refused") for line in said) else 0


if __name__ == "__main__":
    sys.exit(main())
