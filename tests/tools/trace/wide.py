"""Scenarios for `hollow.py`, everything drawn at once: model, sizes, input, recipe, adapters, card.

    python tests/tools/trace/wide.py --seed N [--rows N] [--mode train|inference] [--torch V --transformers V] [--only TYPE...]
        [--without TYPE...] [--set KEY=VALUE...] > LOT.jsonl

Models are those of `settings.py`, made wider by lot and with one or two of the changes that stand there, and now and then one of
the catalog. The same seed draws the same rows. What the engine refuses `hollow.py` says and leaves out; what it should have
refused ends there in PyTorch's own error. Nothing is drawn of which a hollow card answers otherwise than a real one: padded masks of
models that look at them, jitter.
"""

import argparse
import json
import pathlib
import random
import sys
import tomllib

from configs import CONVOLUTIONS, DECODER, EAGER, MASKLESS, TASKS, merged
from settings import SETTINGS

ROOT = pathlib.Path(__file__).resolve().parents[3]
CARDS = """rtx-3060 rtx-3090 rtx-4060 rtx-4090 rtx-5070-ti rtx-5070-ti-laptop rtx-5090 t4 a10 a100-40gb a100-80gb l4 l40s h100-sxm
    h200 b200 rtx-2080-ti""".split()
PRECISIONS = ["fp32", "fp16-amp", "bf16-amp", "bf16-amp", "fp16", "bf16", "bf16"]
OPTIMIZERS = """sgd sgd-momentum adam adamw adamw adamw adamw adafactor adafactor-torch adagrad rmsprop rmsprop-momentum
    rmsprop-centered-momentum nadam adamax adamw-8bit paged-adamw-8bit lion muon""".split()
# Widths that grow together.
WIDTHS = """hidden_size intermediate_size n_embd n_inner dim hidden_dim d_model d_ff ffn_dim encoder_ffn_dim decoder_ffn_dim
    moe_intermediate_size shared_expert_intermediate_size intermediate_size_mlp ffn_hidden_size word_embed_proj_dim projection_dim
    embedding_size out_hidden_size embed_dim hidden_sizes q_lora_rank kv_lora_rank hidden_size_per_layer_input""".split()
PER_HEAD = "head_dim d_kv qk_rope_head_dim qk_nope_head_dim v_head_dim global_head_dim linear_key_head_dim linear_value_head_dim rotary_dim".split()
HEADS = """num_attention_heads num_key_value_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads num_kv_heads
    linear_num_key_heads linear_num_value_heads num_global_key_value_heads""".split()
POSITIONS = "max_position_embeddings n_positions max_target_positions".split()
# Sections of heads, tables of factors, windows of images: what would have to grow in step.
IN_STEP = ("qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text")


def wider(config, width, heads, vocabulary):
    """Every size of a configuration, nested ones too, so many times as wide, with so many times the heads."""
    per_head = width // heads
    made = {}
    for key, value in config.items():
        if isinstance(value, dict) and key.endswith("_config"):
            made[key] = wider(value, width, heads, vocabulary)
        elif value is None or isinstance(value, bool):
            made[key] = value
        elif key in WIDTHS:
            made[key] = [one * width for one in value] if isinstance(value, list) else value * width
        elif key in PER_HEAD:
            made[key] = value * per_head
        elif key in HEADS:
            made[key] = [one * heads for one in value] if isinstance(value, list) else value * heads
        elif key == "vocab_size" or key == "vocab_size_per_layer_input":
            made[key] = vocabulary
        elif key in POSITIONS:
            made[key] = 2050 if value == 66 else 2048
        else:
            made[key] = value
    return made


def model_of(draw, kinds):
    """A model, its type, its task, and how many tokens it takes at most."""
    kind = draw.choice(kinds)
    small, changed = SETTINGS[kind]
    config = dict(small)
    for changes in draw.sample(changed, draw.choice([0, 0, 1, 1, 2])):
        if not {"dtype", "torch_dtype", "id2label", "output_attentions", "router_jitter_noise", "layerdrop"} & set(changes):
            config = merged(config, changes)
    width = draw.choice([1, 2, 4, 8, 12, 16])
    heads = draw.choice([n for n in (1, 2, 3, 4, 8) if width % n == 0])
    if kind in IN_STEP:
        heads = width
    config = wider(config, width, heads, draw.choice([500, 2000, 2003, 32000, 50257]))
    for layers in ("num_hidden_layers", "n_layer", "n_layers", "num_layers"):
        if layers in config and "layer_types" not in config and "mlp_layer_types" not in config and draw.random() < 0.3:
            config[layers] += draw.choice([1, 2, 5])
            break
    task = draw.choice(TASKS.get(kind, DECODER))
    return {"hf": {"model_type": kind, **config}, "task": task}, kind, task


def catalog(kinds):
    """Models of the catalog of these types and up to 1.6 billion parameters, with their type."""
    found = []
    for path in sorted((ROOT / "data" / "models").glob("*.toml")):
        with open(path, "rb") as file:
            for row in tomllib.load(file)["model"]:
                kind = json.loads(row["config"])["model_type"]
                if kind in kinds and row["parameters"] < 1_600_000_000:
                    found.append((row["id"], kind))
    return found


def input_of(draw, kind, task, mode):
    """Batch, sequence, mask."""
    given = {"batch": draw.choice([1, 2, 3, 4, 5, 7, 8, 12, 16])}
    if kind not in ("vit", "dinov2", "swin", "resnet", "convnext") and kind not in ("whisper", "clip"):
        given["seq"] = draw.choice([17, 33, 64, 100, 128, 200, 257, 333, 512, 512, 768, 1024])
        if task == "seq2seq-lm" and mode == "train" and draw.random() < 0.5:
            given["target_seq"] = draw.choice([16, 31, 64, 100, 128])
    if kind not in MASKLESS:
        given["attention_mask"] = draw.choice(["none", "none", "ones"])
    if mode == "inference" and task in ("causal-lm", "seq2seq-lm", "speech-seq2seq"):
        given["max_new_tokens"] = draw.choice([1, 5, 16, 33, 60])
    return given


def lora_of(draw):
    said = {"rank": draw.choice([4, 8, 16, 64])}
    if draw.random() < 0.4:
        said["dropout"] = draw.choice([0.05, 0.1])
    if draw.random() < 0.15:
        said["dora"] = True
    if draw.random() < 0.15:
        said["autocast_adapter_dtype"] = False
    return said


def recipe_of(draw, kind, task, mode):
    """The recipe."""
    precision = draw.choice(PRECISIONS)
    said = {"precision": precision}
    if kind in EAGER or kind not in CONVOLUTIONS and draw.random() < 0.25:
        said["attention"] = "eager"
    if mode == "inference":
        if draw.random() < 0.15:
            said["quantization"] = draw.choice(["int8", "nf4", "nf4-double"])
        return {"mode": "inference", **said}
    said["optimizer"] = draw.choice(OPTIMIZERS)
    torchs = said["optimizer"] not in ("adamw-8bit", "paged-adamw-8bit", "adafactor", "lion")
    if torchs and draw.random() < 0.35:
        said["optimizer_impl"] = draw.choice(["foreach", "fused", "for-loop"])
    said["accumulation"] = draw.choice([1, 1, 1, 2, 3])
    said["checkpointing"] = draw.choice(["none", "none", "full", "full", "selective"])
    said["clip_grad_norm"] = draw.random() < 0.5
    if draw.random() < 0.2:
        said["zero_grad"] = draw.choice(["set-to-none", "zero"])
    if draw.random() < 0.2:
        said["zero_grad_at"] = draw.choice(["before-forward", "before-backward"])
    if draw.random() < 0.15:
        said["keep_outputs"] = True
    if draw.random() < 0.08:
        said["ema"] = True
    if draw.random() < 0.08:
        said["label_smoothing"] = 0.1
    if draw.random() < 0.1 and task == "causal-lm":
        said["trainer"] = "transformers"
    if draw.random() < 0.1 and task == "causal-lm":
        said["loss_impl"] = draw.choice(["chunked", "fused-linear"])
    if draw.random() < 0.2 and said["optimizer"] in ("adam", "adamw"):
        said["amsgrad"] = True
    if draw.random() < 0.06:
        said["optimizer_in_backward"] = True
        said.pop("clip_grad_norm")
    if draw.random() < 0.06:
        said["activation_offloading"] = draw.choice(["save-on-cpu", "offload-activations"])
    if draw.random() < 0.25:
        said["lora"] = lora_of(draw)
        if draw.random() < 0.4:
            said["quantization"] = draw.choice(["int8", "nf4", "nf4-double"])
            if draw.random() < 0.3:
                said["prepare_kbit"] = False
        elif precision in ("bf16-amp", "fp16-amp") and draw.random() < 0.5:
            said["base_dtype"] = {"bf16-amp": "bfloat16", "fp16-amp": "float16"}[precision]
    return said


def cards(torch):
    """Those that the release has kernels for: Blackwell's came with 2.7."""
    older = torch is not None and [int(number) for number in torch.split(".")[:2]] < [2, 7]
    return [card for card in CARDS if not older or not card.startswith(("rtx-50", "b200"))]


def row_of(draw, number, options, kinds, published):
    if published and draw.random() < 0.12:
        name, kind = draw.choice(published)
        task = draw.choice(TASKS.get(kind, DECODER))
        model = {"catalog": name, "task": task}
    else:
        model, kind, task = model_of(draw, kinds)
    asked, recipe = input_of(draw, kind, task, options.mode), recipe_of(draw, kind, task, options.mode)
    recipe |= dict(said.split("=", 1) for said in options.set)
    scenario = {
        "model": model, "input": asked, "training": recipe,
        "device": {"gpu": draw.choice(cards(options.torch))},
    }
    if options.torch:
        scenario["software"] = {"torch": options.torch, "transformers": options.transformers}
    return {"id": "%s%03d" % (options.prefix, number), "name": "%s, everything drawn by lot" % model.get("catalog", kind), "scenario": scenario}


def main():
    parser = argparse.ArgumentParser(prog="wide", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--mode", choices=["train", "inference"], default="train")
    parser.add_argument("--torch", help="the versions the rows are of; else the engine's own")
    parser.add_argument("--transformers", default="5.17")
    parser.add_argument("--only", nargs="*", default=[], metavar="TYPE")
    parser.add_argument("--without", nargs="*", default=[], metavar="TYPE")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="of every recipe, whatever was drawn")
    parser.add_argument("--prefix", default="w")
    options = parser.parse_args()
    kinds = [kind for kind in SETTINGS if kind not in options.without and (not options.only or kind in options.only)]
    draw = random.Random(options.seed)
    published = catalog(kinds)
    for number in range(options.rows):
        print(json.dumps(row_of(draw, number, options, kinds, published)))


if __name__ == "__main__":
    sys.exit(main())
