"""Traces a scenario's memory with PyTorch itself, without a card.

    python tests/tools/trace SCENARIO.json...           # or - : one JSON scenario (or reference row) a line
    python tests/tools/trace --events OUT SCENARIO      # the ordered stream of births and deaths as well
    python tests/tools/trace --work ROWS.jsonl [ID...]  # rows of the steady step's floating-point operations
    python tests/tools/trace --check ROWS.jsonl [ID...] # reference rows: run each and compare with what it expects

See tests/corpus/README.md for what it needs and how it is done.
"""

import argparse
import json
import multiprocessing
import sys
import time
import traceback


def lines(path):
    with sys.stdin if path == "-" else open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        values = [json.loads(text)]
    except ValueError:
        values = [json.loads(line) for line in text.splitlines() if line.strip()]
    return [value if "scenario" in value else {"scenario": value} for value in values]


def trace(scenario, bitsandbytes, results):
    """In a process of its own, so that one scenario leaves nothing to the next."""
    try:
        import runs

        traced = runs.Traced(scenario).run(bitsandbytes)
        answer = {
            "parameters": traced.parameters,
            "peak_requested": traced.ledger.peak,
            "phases": traced.ledger.phases,
            "events": len(traced.ledger.events),
            "allocations": traced.ledger.births,
            "sdpa_kernels": traced.attention.taken,
            "work": traced.work.of_step(2 if traced.training["mode"] == "train" else 1),
        }
        results.send((answer, traced.ledger.events))
    except BaseException as error:
        traceback.print_exc()
        results.send(("%s: %s" % (type(error).__name__, error), None))


def run(scenario, bitsandbytes):
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=trace, args=(scenario, bitsandbytes, theirs))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        process.join()
        return "it ended with %s" % process.exitcode, None
    finally:
        process.join()


def differences(got, expected):
    """What a row expects and the trace does not have, in words."""
    found = []
    for key in ("events", "allocations", "peak_requested"):
        if key in expected and expected[key] != got[key]:
            found.append("%s %s, expected %s" % (key, got[key], expected[key]))
    if "peak" in expected and expected["peak"]["requested"] != got["peak_requested"]:
        found.append("peak_requested %s, expected %s" % (got["peak_requested"], expected["peak"]["requested"]))
    parameters = expected["parameters"]
    total = parameters["total"] if isinstance(parameters, dict) else parameters
    if total != got["parameters"]["total"]:
        found.append("parameters %s, expected %s" % (got["parameters"]["total"], total))
    # The first rows close with a phase that is none: what stands after the loop.
    wanted = [phase for phase in expected["phases"] if phase["name"] != "end"]
    if [phase["name"] for phase in wanted] != [phase["name"] for phase in got["phases"]]:
        found.append("phases %s" % " ".join(phase["name"] for phase in got["phases"]))
    for number, (mine, theirs) in enumerate(zip(got["phases"], wanted)):
        for key in ("peak_requested", "end_requested"):
            if mine[key] != theirs[key]:
                place = "%s (%d) %s" % (mine["name"], number, key)
                found.append("%s %s, expected %s" % (place, mine[key], theirs[key]))
    return found


def check(paths, chosen, bitsandbytes):
    """Runs the rows and compares them. Yields each with its events, and whether it agrees."""
    passed = failed = 0
    for row in (row for path in paths for row in lines(path)):
        if chosen and not any(row["id"].startswith(name) for name in chosen):
            continue
        start = time.monotonic()
        got, events = run(row["scenario"], bitsandbytes)
        found = [got] if events is None else differences(got, row.get("expected") or got)
        passed, failed = passed + (not found), failed + bool(found)
        print("%-32s %s  %.1f s" % (row["id"], "FAILED" if found else "ok", time.monotonic() - start), flush=True)
        for line in found[:8]:
            print("    " + line)
        yield row, events, not found
    print("%d passed, %d failed" % (passed, failed))


def write(path, events):
    with open(path, "w", encoding="utf-8") as file:
        for event in events:
            file.write(json.dumps(event) + "\n")


def main():
    parser = argparse.ArgumentParser(prog="trace", description=__doc__.splitlines()[0])
    parser.add_argument("scenarios", nargs="*", help="a scenario, or rows with one; - is standard input. With --check: ids")
    parser.add_argument("--events", metavar="FILE", help="write the stream of births and deaths (of the last scenario)")
    parser.add_argument("--check", metavar="ROWS", action="append", help="compare rows with what they expect")
    parser.add_argument("--work", metavar="ROWS", action="append", help="write the operations that rows take, one row a line")
    parser.add_argument("--bitsandbytes", metavar="FOLDER", help="take the Python of an older one, from its unpacked wheel")
    options = parser.parse_args()
    # Before the processes part, so that each finds everything loaded.
    import runs

    runs.warm_up()

    failed = False
    if options.check:
        for row, events, agrees in check(options.check, options.scenarios, options.bitsandbytes):
            failed = failed or not agrees
            if options.events and events is not None and options.events.endswith("/"):
                write(options.events + row["id"] + ".json", events)
            elif options.events and events is not None:
                write(options.events, events)
        sys.exit(1 if failed else 0)
    if options.work:
        for row in (row for path in options.work for row in lines(path)):
            if options.scenarios and not any(row["id"].startswith(name) for name in options.scenarios):
                continue
            got, events = run(row["scenario"], options.bitsandbytes)
            failed = failed or events is None
            if events is None:
                print("%s: %s" % (row["id"], got), file=sys.stderr)
                continue
            flops = {phase: {"flops": counted} for phase, counted in got["work"].items()}
            row = {"id": row["id"], "work": flops}
            print(json.dumps(row, separators=(",", ":")), flush=True)
        sys.exit(1 if failed else 0)
    for row in (row for path in options.scenarios for row in lines(path)):
        got, events = run(row["scenario"], options.bitsandbytes)
        failed = failed or events is None
        print(json.dumps({**({"id": row["id"]} if "id" in row else {}), **(got if events is not None else {"error": got})}))
        if options.events and events is not None:
            write(options.events, events)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
