"""Records a small model of every hand-written family, from the real code: what each family is held against.

    python tests/tools/hulls/families.py --program target/debug/plimsoll --python PATH [--lot quantized] [NAME...]

`tests/corpus/families.jsonl` has a line for each: how it is recorded, and the same model as a scenario says it. The recordings lie in
`tests/corpus/hulls/families`; those that are there are left as they are. `--lot quantized` does the same of a few with bitsandbytes' layers.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time

CORPUS = pathlib.Path(__file__).resolve().parents[2] / "corpus"
OWN = str(pathlib.Path(__file__).with_name("own.py"))
AUTO = {"causal-lm": "AutoModelForCausalLM", "masked-lm": "AutoModelForMaskedLM", "seq2seq-lm": "AutoModelForSeq2SeqLM",
        "image-classification": "AutoModelForImageClassification", "contrastive": "AutoModel", "speech-seq2seq": "AutoModelForSpeechSeq2Seq"}
# As the probe's worker builds them (WITH_IMAGES, WITHOUT_ATTENTION).
SEES = ("qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe")
EAGER = ("convnext", "resnet", "gpt_neo", "gptj", "bloom", "deberta-v2", "gpt_oss")


def recording(row):
    """Model, inputs, loss and axes, as `plimsoll trace` takes them."""
    model, task = row["model"], row["task"]
    if "family" in model:
        keys = {key: value for key, value in model.items() if key != "family"}
        named = "tests/tools/hulls/own.py:own(%r,%s)" % (model["family"], ",".join("%s=%r" % pair for pair in keys.items()))
        return named, row["inputs"], "model(**batch)[1]", row["axes"]
    config = dict(model["hf"])
    kind = config.pop("model_type")
    attention = "'eager'" if kind in EAGER else "'sdpa'"
    named = "transformers:%s.from_config(AutoConfig.for_model(%r,**%r),attn_implementation=%s)" % ("AutoModelForImageTextToText" if kind in SEES else AUTO[task], kind, config, attention)
    loss = "model(return_loss=True, **batch).loss" if task == "contrastive" else "model(**batch).loss"
    return named, row["inputs"], loss, row["axes"]


def main():
    parser = argparse.ArgumentParser(prog="families", description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True, help="a built plimsoll")
    parser.add_argument("--python", default=sys.executable, help="the Python that has the libraries")
    parser.add_argument("--lot", default="families", choices=["families", "quantized"], help="which of them")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    folder = CORPUS / "hulls" / options.lot
    folder.mkdir(exist_ok=True)
    failed = 0
    for row in map(json.loads, (CORPUS / (options.lot + ".jsonl")).read_text().splitlines()):
        path = folder / (row["name"] + ".hull")
        if path.exists() or options.names and row["name"] not in options.names:
            continue
        begun = time.monotonic()
        model, inputs, loss, axes = recording(row)
        asked = [options.program, "trace", model, "--loss", loss, "--precision", "bf16-amp", "--gpu", "h200", "--python", options.python, "-o", str(path)]
        asked += [word for given in inputs for word in ("--input", given)] + [word for given in axes for word in ("--axis", given)]
        asked += [word for given in row.get("also", []) for word in ("--also", given)] + ["--detach-loss"] * row.get("detach_loss", False)
        done = subprocess.run(asked, cwd=CORPUS.parents[1], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        failed += done.returncode != 0
        said = done.stdout.strip().splitlines()[-2:] if done.returncode else ["%d bytes" % path.stat().st_size]
        print("%-20s %s %.0f s" % (row["name"], " | ".join(said), time.monotonic() - begun), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
