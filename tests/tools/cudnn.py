"""Answers the lines of `tests/corpus/cudnn.csv`, with the script that `plimsoll estimate --ask-cudnn` runs.

    python tests/tools/cudnn.py                  asks every line again and says which answers are others
    python tests/tools/cudnn.py --add LINES --capability 8.9    adds what stands in a file, lines without their first and last field

Run it by the Python of an environment with PyTorch 2.11 for CUDA, which brings the cuDNN 9.19 that the file is of.
"""

import argparse
import itertools
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILE = ROOT / "tests/corpus/cudnn.csv"
VERSION = "9.19.0"
# Of compute capability 7.5 the number of multiprocessors decides too: those are a T4's.
MULTIPROCESSORS = 40


def question(line):
    product, *tensors, stride, padding, last, dtype = line.split(",")
    sizes = [[int(size) for size in text.split("x")] for text in (*tensors, stride, padding)]
    return [product, *sizes, last == "1", dtype]


def ask(capability, lines):
    card = {"capability": [int(part) for part in capability.split(".")], "multiprocessors": MULTIPROCESSORS}
    given = "\n".join([json.dumps(card), json.dumps([question(line) for line in lines])]) + "\n"
    script = [sys.executable, ROOT / "probe/cudnn/ask.py"]
    said = subprocess.run(script, input=given, capture_output=True, text=True, check=True).stdout.splitlines()
    greeting = json.loads(said[0])
    if greeting.get("version") != VERSION:
        sys.exit(f"cuDNN {VERSION} is wanted: {greeting}")
    return json.loads(said[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", type=pathlib.Path, metavar="LINES")
    parser.add_argument("--capability", default="9.0", metavar="X.Y")
    options = parser.parse_args()
    head, *known = FILE.read_text().split()
    if options.add:
        lines, of = options.add.read_text().split(), options.capability
        known += [f"{of},{line},{answer}" for line, answer in zip(lines, ask(of, lines)) if answer is not None]
        FILE.write_text("\n".join([head, *sorted(set(known))]) + "\n")
        return
    same = 0
    for capability, lines in itertools.groupby(known, lambda line: line.split(",", 1)[0]):
        questions, answers = zip(*(line.split(",", 1)[1].rsplit(",", 1) for line in lines))
        for line, old, new in zip(questions, answers, ask(capability, questions)):
            same += old == str(new)
            if old != str(new):
                print(capability, line, old, new)
    print(f"{same} of {len(known)} the same")


if __name__ == "__main__":
    main()
