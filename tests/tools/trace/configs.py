"""Has the program read configurations as transformers saves them.

    python tests/tools/trace/configs.py PROGRAM [TYPE...]           # saved by this Python's transformers
    python tests/tools/trace/configs.py --save FILE [TYPE...]       # only saves them: in a Python with an older one
    python tests/tools/trace/configs.py --saved FILE PROGRAM        # what that one saved
    python tests/tools/trace/configs.py --rows FILE PROGRAM         # the scenarios as well, for `--against`

PROGRAM is a built `plimsoll`. Every setting in `settings.py` is saved in every form transformers has. The program must read
it, have as many parameters as the real model, and answer as it does for the whole configuration that transformers makes of
the file. Where transformers itself refuses a file, or builds no model, nothing is asked.
"""

import argparse
import collections
import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile

from settings import SETTINGS

# Those that are not causal language models and classifiers of sequences: core/catalog/src/families.
TASKS = {
    **dict.fromkeys(("bert", "roberta", "distilbert", "electra", "deberta-v2", "modernbert"), ("masked-lm", "sequence-classification")),
    **dict.fromkeys(("vit", "dinov2", "resnet", "convnext", "swin"), ("image-classification",)),
    **dict.fromkeys(("t5", "bart"), ("seq2seq-lm",)),
    **dict.fromkeys((
        "olmoe", "glm4_moe_lite", "gemma4_text", "gemma4_unified_text", "granite", "llama4_text", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe",
        "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text",
    ), ("causal-lm",)),
    "whisper": ("speech-seq2seq",), "clip": ("contrastive",),
}
DECODER = ("causal-lm", "sequence-classification")
CONVOLUTIONS = ("resnet", "convnext")
MASKLESS = ("whisper", "clip", "vit", "dinov2", "swin", *CONVOLUTIONS)
# transformers has only its own attention for them.
EAGER = ("bloom", "gptj", "deberta-v2")
# What a refusal says that is none of the configuration's reading: what is not estimated, what transformers cannot run.
KNOWN = ("not estimated", "yet", "fails")


def merged(small, changes):
    """The sizes with what is changed in them, nested configurations too."""
    nested = {key: merged(small.get(key) or {}, value) for key, value in changes.items() if key.endswith("_config")}
    return {**small, **changes, **nested}


def cases(types):
    """The types with an id and what is set: everything as it is, then small sizes with every change."""
    for kind, (small, changed) in SETTINGS.items():
        if not types or kind in types:
            yield kind, kind, {}
            for number, changes in enumerate(changed):
                yield "%s-%02d" % (kind, number), kind, merged(small, changes)


def forms(config):
    """What a configuration looks like in files."""
    yield "differences", json.loads(config.to_json_string())
    yield "everything", json.loads(config.to_json_string(use_diff=False))
    # A model's `save_pretrained` writes these two down first.
    config.architectures = ["SomeModel"]
    with contextlib.suppress(AttributeError, TypeError):
        config.dtype = "float32"
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        yield "saved", json.loads((pathlib.Path(folder) / "config.json").read_text())


def saved(types):
    """Every file there is: its id, its form, and what stands in it."""
    import transformers

    transformers.logging.set_verbosity_error()
    for name, kind, settings in cases(types):
        made = None
        if kind in transformers.CONFIG_MAPPING:
            with contextlib.suppress(Exception), contextlib.redirect_stderr(io.StringIO()):
                made = transformers.CONFIG_MAPPING[kind](**json.loads(json.dumps(settings)))
        if made is None:
            continue
        found = [("by hand", {"model_type": kind, **settings}), *forms(made)]
        for form, config in found:
            yield {"id": name, "form": form, "by": transformers.__version__, "config": config}


def scenarios(config, task):
    """What is asked about a file."""
    kind = config["model_type"]
    given = {} if task == "image-classification" else {"seq": 16}
    training = {"optimizer": "sgd", "precision": "bf16-amp"}
    model, device = {"hf": config, "task": task}, {"gpu": "h200", "workspaces": False}
    ask = lambda given, training: {"model": model, "input": {"batch": 2, **given}, "training": training, "device": device}
    if kind not in EAGER:
        yield "sdpa", ask(given, training)
    if kind not in MASKLESS:
        given = {**given, "attention_mask": "padded"}
    if kind not in CONVOLUTIONS:
        yield "eager", ask(given, {"optimizer": "sgd", "precision": "fp32", "attention": "eager"})
    if task in ("causal-lm", "seq2seq-lm", "speech-seq2seq"):
        if task == "speech-seq2seq":
            given = {}
        attention = "eager" if kind in EAGER else "sdpa"
        answers = {"mode": "inference", "precision": "bf16", "attention": attention}
        yield "generate", ask({**given, "max_new_tokens": 3}, answers)


class Truth:
    """What transformers makes of a file."""

    def __init__(self):
        import runs
        import torch

        self.torch, self.worker, self.transformers = torch, runs.worker, runs.warm_up() and sys.modules["transformers"]
        self.filled, self.known = runs.filled, {}

    def read(self, scenario):
        """The whole configuration, and the number of parameters of its model; or why there is none."""
        scenario = self.filled(scenario)
        config, task = scenario["model"]["hf"], scenario["model"]["task"]
        key = json.dumps([config, task], sort_keys=True)
        if key not in self.known:
            try:
                made = self.worker.read_config(scenario, json.loads(json.dumps(config)), self.transformers)
                whole = json.loads(made.to_json_string(use_diff=False))
                with self.torch.device("meta"):
                    model = self.worker.build_hugging_face(scenario, made, self.torch.float32, self.transformers)
                whole["model_type"] = config["model_type"]
                self.known[key] = whole, sum(p.numel() for p in model.parameters())
            except (Exception, SystemExit) as error:
                self.known[key] = None, "%s: %s" % (type(error).__name__, error)
        return self.known[key]


def estimates(program, asked):
    """The program's answers, one a scenario; it is asked once what is asked often."""
    lines = [json.dumps(scenario, sort_keys=True) for scenario in asked]
    once = list(dict.fromkeys(lines))
    done = subprocess.run([program, "estimate", "--jsonl"], input="\n".join(once), stdout=subprocess.PIPE, text=True)
    answers = dict(zip(once, map(json.loads, done.stdout.splitlines()), strict=True))
    return [answers[line] for line in lines]


def bears(answer):
    return {key: answer.get(key) for key in ("parameters", "peak", "at_peak", "phases")}


def complaint(answer):
    return "%(key)s: %(problem)s" % answer["error"]


def check(files, program, rows):
    """Prints what is wrong; whether nothing is."""
    truth, asked = Truth(), []
    counts, wrong, gaps = collections.Counter(), collections.defaultdict(list), collections.defaultdict(set)
    distinct = {}
    for file in files:
        counts["files"] += 1
        for task in TASKS.get(file["config"]["model_type"], DECODER):
            for way, scenario in scenarios(file["config"], task):
                whole, parameters = truth.read(scenario)
                if whole is None:
                    counts["refused by transformers"] += 1
                    gaps["transformers: " + parameters.splitlines()[0][:150]].add(file["id"])
                    break
                meant = json.loads(json.dumps(scenario))
                meant["model"]["hf"] = whole
                asked.append((file, task, way, parameters, scenario, meant))
                distinct.setdefault(json.dumps(meant, sort_keys=True), (file, task, way, scenario))
    answers = estimates(program, [scenario for *_, scenario, meant in asked for scenario in (scenario, meant)])
    for number, (file, task, way, parameters, _, _) in enumerate(asked):
        answer, meant = answers[2 * number : 2 * number + 2]
        counts["questions"] += 1
        place = "%s, %s by %s (%s, %s)" % (file["id"], file["form"], file["by"], task, way)
        if "error" in answer:
            said = complaint(answer)
            if any(word in said for word in KNOWN):
                counts["known gaps"] += 1
                gaps["not estimated: " + said].add(file["id"])
            else:
                wrong["refused: " + said].append(place)
        elif answer["parameters"]["total"] != parameters:
            wrong["%d parameters instead of %d" % (answer["parameters"]["total"], parameters)].append(place)
        elif bears(answer) != bears(meant):
            said = complaint(meant) if "error" in meant else "other phases"
            wrong["read otherwise than the whole configuration: %s" % said].append(place)
    for why, names in sorted(gaps.items()):
        print("%s\n    %s" % (why, " ".join(sorted(names))))
    for why, places in wrong.items():
        print("WRONG %s" % why)
        for place in places[:6]:
            print("    " + place)
        if len(places) > 6:
            print("    and %d more" % (len(places) - 6))
    print(", ".join("%d %s" % (count, name) for name, count in counts.items()), "%d wrong" % sum(map(len, wrong.values())), sep=", ")
    if rows:
        with open(rows, "w", encoding="utf-8") as out:
            for file, task, way, scenario in distinct.values():
                row = {"id": "%s-%s-%s" % (file["id"], task, way), "name": file["form"], "scenario": scenario}
                # Whole models are counted, not run.
                if file["id"] != file["config"]["model_type"]:
                    out.write(json.dumps(row) + "\n")
    return not wrong


def main():
    parser = argparse.ArgumentParser(prog="configs", description=__doc__.splitlines()[0])
    parser.add_argument("program", nargs="?", help="a built plimsoll")
    parser.add_argument("types", nargs="*", help="model types; all of them if none is named")
    parser.add_argument("--save", metavar="FILE", help="save the files and do nothing else")
    parser.add_argument("--saved", metavar="FILE", help="take the files from there")
    parser.add_argument("--rows", metavar="FILE", help="write every scenario that differs from the others")
    options = parser.parse_args()
    if options.save:
        types = [options.program, *options.types] if options.program else []
        with open(options.save, "w", encoding="utf-8") as out:
            for file in saved(types):
                out.write(json.dumps(file) + "\n")
        return
    if not options.program:
        parser.error("name the program")
    if options.saved:
        with open(options.saved, encoding="utf-8") as given:
            files = [json.loads(line) for line in given]
        files = [file for file in files if not options.types or file["config"]["model_type"] in options.types]
    else:
        files = list(saved(options.types))
    sys.exit(0 if check(files, options.program, options.rows) else 1)


if __name__ == "__main__":
    main()
