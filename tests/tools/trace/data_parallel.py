"""`torch.nn.DataParallel` on hollow cards: what each card holds.

    plimsoll rehearse --gpu h200 --cards 4 -- python tests/tools/trace/data_parallel.py ROWS.jsonl [ID...] > traced.jsonl

A line a row: for every card the phases with the highest and the last sum of its live storages, each rounded to 512 bytes, and what was
allocated and reserved at most. The loop is the probe's own around `DataParallel(model)`; each of the `gpus` cards takes `batch`
samples, and the losses that come back are averaged, as transformers' Trainer does it. What transformers gathers with the losses (logits) is
gathered here. EVENTS=FOLDER/ writes every birth and death of card 0.
"""

import importlib.util
import json
import os
import pathlib
import sys
import tempfile
import traceback

import torch

spec = importlib.util.spec_from_file_location("fleet", pathlib.Path(__file__).with_name("fleet.py"))
fleet = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fleet)
worker = fleet.worker


class Marks(fleet.Marks):
    """On every card."""

    cards = 1

    def begin(self, name, step=None, micro_batch=None):
        self.names.append((name, step, micro_batch))
        for card in range(self.cards):
            mark = torch.empty(fleet.MARK, dtype=torch.uint8, device="cuda:%d" % card)
            del mark


class Averaged(torch.nn.DataParallel):
    """With the mean of the losses that came back, as transformers' Trainer takes it."""

    def forward(self, *args, **kwargs):
        output = super().forward(*args, **kwargs)
        if isinstance(output, tuple):
            return output[0], output[1].mean()
        output.loss = output.loss.mean()
        return output


def run(scenario, events):
    scenario = fleet.filled(scenario)
    cards, training = scenario["parallel"]["gpus"], scenario["training"]
    samples = scenario["input"]["batch"] * cards
    marks = fleet.MARKS = Marks()
    marks.cards = cards
    torch.cuda.init()
    # One thread after the other, so that what a card does has one order.
    torch.cuda.memory._record_memory_history(enabled="all", context="all" if events else None, stacks="python", max_entries=10**7)
    config = scenario["model"].get("hf")
    packages = worker.import_for(scenario, config)
    if config is not None:
        config = worker.read_config(scenario, dict(config), packages["transformers"])

    def build(scenario, config, packages, device):
        model, dtype = fleet.made(scenario, config, packages, "cuda")
        return Averaged(model, list(range(cards))), dtype

    worker.build = build
    loop = fleet.Loop({"scenario": scenario}, config, packages, fleet.Card(), fleet.Silent())
    for step in (1, 2):
        loop.one_step(step, [samples] * training["accumulation"])
    marks.begin("end")
    torch.cuda.synchronize()
    answer = {"parameters": fleet.COUNTED, "cards": []}
    traces = torch.cuda.memory._snapshot()["device_traces"]
    for card in range(cards):
        fleet.MARKS = marks
        phases, peak, seen = fleet.read(traces[card])
        if events and card in (0, 1):
            with open("%s-%d.jsonl" % (events, card), "w", encoding="utf-8") as file:
                file.writelines(json.dumps(event) + "\n" for event in seen)
        answer["cards"].append({
            "peak_requested": peak, "phases": phases, "max_allocated": torch.cuda.max_memory_allocated(card),
            "max_reserved": torch.cuda.max_memory_reserved(card),
        })
    return answer


def child(row, path):
    try:
        events = os.environ.get("EVENTS")
        answer = run(row["scenario"], events and events + row["id"])
    except BaseException as error:
        traceback.print_exc()
        answer = {"error": "%s: %s" % (type(error).__name__, error)}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(answer, file)
    os._exit(0)


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import transformers.modeling_utils  # noqa: F401

    with open(sys.argv[1], encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "answer.json")
        for row in rows:
            if sys.argv[2:] and row["id"] not in sys.argv[2:]:
                continue
            pid = os.fork()
            if pid == 0:
                child(row, path)
            os.waitpid(pid, 0)
            with open(path, encoding="utf-8") as file:
                print(json.dumps({"id": row["id"], "scenario": row["scenario"], **json.load(file)}), file=answers, flush=True)


if __name__ == "__main__":
    main()
