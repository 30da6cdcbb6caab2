"""Answers the lines of `tests/corpus/cudnn.csv`, with the script that `plimsoll estimate --ask-cudnn` runs.

    python tests/tools/cudnn.py                  asks every line again and says which answers are others
    python tests/tools/cudnn.py --add LINES      adds what stands in a file, lines without their last field

Run it by the Python of an environment with PyTorch 2.11 for CUDA, which brings the cuDNN 9.19 that the file is of.
"""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILE = ROOT / "tests/corpus/cudnn.csv"
VERSION = "9.19.0"
CARD = {"capability": [9, 0], "multiprocessors": 132}


def question(line):
    product, *tensors, stride, padding, last, dtype = line.split(",")
    sizes = [[int(size) for size in text.split("x")] for text in (*tensors, stride, padding)]
    return [product, *sizes, last == "1", dtype]


def ask(lines):
    given = "\n".join([json.dumps(CARD), json.dumps([question(line) for line in lines])]) + "\n"
    script = [sys.executable, ROOT / "probe/cudnn/ask.py"]
    said = subprocess.run(script, input=given, capture_output=True, text=True, check=True).stdout.splitlines()
    greeting = json.loads(said[0])
    if greeting.get("version") != VERSION:
        sys.exit(f"cuDNN {VERSION} is wanted: {greeting}")
    return json.loads(said[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", type=pathlib.Path, metavar="LINES")
    add = parser.parse_args().add
    head, *known = FILE.read_text().split()
    if add:
        lines = add.read_text().split()
        known += [f"{line},{answer}" for line, answer in zip(lines, ask(lines)) if answer is not None]
        FILE.write_text("\n".join([head, *sorted(set(known))]) + "\n")
        return
    lines, answers = zip(*(line.rsplit(",", 1) for line in known))
    others = [(line, old, new) for line, old, new in zip(lines, answers, ask(lines)) if str(new) != old]
    print(*others, sep="\n")
    print(f"{len(lines) - len(others)} of {len(lines)} the same")


if __name__ == "__main__":
    main()
