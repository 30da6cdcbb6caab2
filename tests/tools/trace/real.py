"""Scenarios run by the probe's own worker on a real card, many at a time, each in a process of its own.

    python tests/tools/trace/real.py --program target/debug/plimsoll --prepare ROWS.jsonl [--hulls FOLDER] > ASKED.jsonl
    python tests/tools/trace/real.py --run ASKED.jsonl --out FOLDER [--jobs N] [--memory GIB] [--until SECONDS]

The first wants a built program and no card: it writes what the program understands each scenario to be, and what the run
will take of the card. The second wants the card and a Python with PyTorch, NVML and transformers, and nothing else of the
project's but its scripts. Rows of `lot.py`, with the card as `gpu`, are run as `own.py` does; their recordings are in the folder.
It begins the rows in their order, as many at a time as `--jobs` and `--memory` let, none that the folder has, and none after `--until` seconds; `FOLDER/rows.jsonl` has what each took, `FOLDER/segments.jsonl` the segments that PyTorch took from
the driver and gave back, with their addresses, and `FOLDER/events` every birth and death with the line of Python it came from.
"""

import argparse
import json
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import sys
import time

from hollow import answers, config_of, lines, measure

# `segment_map` is what expandable segments do instead.
SEGMENTS = {"segment_alloc": 1, "segment_free": -1, "segment_map": 2, "segment_unmap": -2}


def prepare(program, rows, folder):
    for row in rows:
        if "trace" in row:
            # One of a model of anyone's, with its recording.
            model = {"hull": str((folder / row["hull"]).resolve()), **row["axes"]}
            row["scenario"] = {
                "model": model, "input": {"batch": row["batch"]}, "training": row["training"], "device": {"gpu": row["gpu"]},
            }
    for row, answer in zip(rows, answers(program, rows), strict=True):
        if "error" in answer:
            print("%-28s not estimated: %s" % (row["id"], answer["error"]["problem"]), file=sys.stderr)
            continue
        full = answer["scenario"]
        if "trace" in row:
            print(json.dumps({**row, "steps": 2, "need": answer["peak"]["process"]}))
            continue
        asked = {
            **row, "full": full, "config": full["model"].get("hf") or answer.get("config") or config_of(full["model"]),
            "steps": full["training"].get("optimizer_steps", 2), "need": answer["peak"]["process"],
        }
        print(json.dumps(asked))


def beside(torch):
    """What the driver says that this process holds, less what PyTorch has reserved."""
    import pynvml

    pynvml.nvmlInit()
    card = pynvml.nvmlDeviceGetHandleByIndex(torch.cuda.current_device())
    held = [each.usedGpuMemory for each in pynvml.nvmlDeviceGetComputeRunningProcesses(card) if each.pid == os.getpid()]
    return held[0] - torch.cuda.memory_reserved() if held and held[0] is not None else None


def history(torch):
    """Segments with their addresses, and births and deaths: numbers of the places in Python they came from."""
    segments, events, places = [], [], {}
    for event in torch.cuda.memory._snapshot()["device_traces"][0]:
        kind = event["action"]
        if kind in SEGMENTS:
            segments.append([SEGMENTS[kind], event["addr"], event["size"]])
        elif kind in ("alloc", "free_completed"):
            frames = ["%s:%d %s" % (f["filename"].split("/")[-1], f["line"], f["name"]) for f in event.get("frames", [])]
            place = ";".join([frame for frame in frames if ".py:" in frame][:3])
            number = places.setdefault(place, len(places))
            events.append([event["size"] if kind == "alloc" else -event["size"], event["addr"], number])
    return segments, events, list(places)


def child(row, folder, results):
    """One scenario, in a process that ends with it."""
    said = {key: row[key] for key in ("id", "name", "scenario") if key in row}
    try:
        answer, torch = measure(row, record=True)
        if "error" not in answer:
            torch.cuda.synchronize()
            answer["beside"] = beside(torch)
            segments, events, places = history(torch)
            said["segments"] = segments
            with open(os.path.join(folder, "events", row["id"] + ".json"), "w", encoding="utf-8") as file:
                json.dump({"places": places, "events": events}, file, separators=(",", ":"))
    except BaseException as error:
        stop = getattr(error, "message", None)
        answer = {"error": "%s: %s" % (type(error).__name__, stop or error)}
    results.send({**said, "expected": answer})


def run(rows, folder, jobs, memory, until):
    """All rows, as many at a time as fit."""
    import torch
    import transformers  # noqa: F401
    import transformers.modeling_utils  # noqa: F401

    for package in ("peft", "bitsandbytes", "torchvision"):
        try:
            __import__(package)
        except ImportError as error:
            print("%s: %s" % (package, error), file=sys.stderr)
    # CUDA cannot be used in a fork of a process that has used it.
    context = multiprocessing.get_context("spawn" if torch.cuda.is_initialized() else "fork")
    os.makedirs(os.path.join(folder, "events"), exist_ok=True)
    there = os.path.join(folder, "rows.jsonl")
    known = {row["id"] for row in lines(there)} if os.path.exists(there) else set()
    began, waiting, running, done = time.monotonic(), [row for row in rows if row["id"] not in known], {}, 0
    with (
        open(there, "a", encoding="utf-8", buffering=1) as kept,
        open(os.path.join(folder, "segments.jsonl"), "a", encoding="utf-8", buffering=1) as taken,
    ):
        while waiting or running:
            late = time.monotonic() - began > until
            if late:
                waiting.clear()
            held = sum(row["need"] for row, _ in running.values())
            # The first that fits, so that a large one waits and small ones pass it.
            fits = [row for row in waiting if held + row["need"] <= memory or not running]
            if fits and len(running) < jobs:
                waiting.remove(fits[0])
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=child, args=(fits[0], folder, theirs))
                process.start()
                theirs.close()
                running[ours] = (fits[0], process)
                continue
            for ours in multiprocessing.connection.wait(list(running), timeout=1):
                row, process = running.pop(ours)
                try:
                    said = ours.recv()
                except EOFError:
                    said = {"id": row["id"], "scenario": row["scenario"], "expected": {"error": "it ended without an answer"}}
                process.join(30)
                segments = said.pop("segments", None)
                if segments is not None:
                    taken.write(json.dumps({"id": row["id"], "segments": segments}) + "\n")
                kept.write(json.dumps(said) + "\n")
                done += 1
                if "error" in said["expected"]:
                    print("%-28s %s" % (row["id"], said["expected"]["error"][:300]), file=sys.stderr)
            if late and time.monotonic() - began > until + 30:
                for _, process in running.values():
                    process.kill()
                break
    print("%d of %d rows in %.0f s" % (done, len(rows), time.monotonic() - began))


def main():
    parser = argparse.ArgumentParser(prog="real", description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="target/debug/plimsoll", help="a built plimsoll")
    parser.add_argument("--prepare", metavar="FILE", help="write what is to be run of these scenarios")
    parser.add_argument("--hulls", default="tests/corpus/hulls", metavar="FOLDER", help="recordings of models that rows build themselves")
    parser.add_argument("--run", metavar="FILE", help="run what was prepared")
    parser.add_argument("--out", metavar="FOLDER", help="where what was seen is written")
    parser.add_argument("--jobs", type=int, default=12, help="so many at a time")
    parser.add_argument("--memory", type=float, default=60, help="GiB of the card for all that run at a time")
    parser.add_argument("--until", type=float, default=1e9, help="begin none after so many seconds")
    options = parser.parse_args()
    if options.prepare:
        rows = [row if "scenario" in row or "trace" in row else {"scenario": row} for row in lines(options.prepare)]
        for number, row in enumerate(rows):
            row.setdefault("id", str(number))
        prepare(options.program, rows, pathlib.Path(options.hulls))
    elif options.run and options.out:
        run(lines(options.run), pathlib.Path(options.out), options.jobs, options.memory * 2**30, options.until)
    else:
        parser.error("either --prepare FILE, or --run FILE --out FOLDER")


if __name__ == "__main__":
    main()
