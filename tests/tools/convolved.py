"""How much more networks of convolutions reserve with what cuDNN plans for them than without: what `MORE` in
`core/estimate/src/convolutions.rs` was read off.

    python tests/tools/convolved.py --program target/release/plimsoll --python PYTHON [--count 400]

Draws networks, batches, sizes, precisions, optimizers and cards by lot, and asks the program for each with and without `--ask-cudnn`,
which looks for the largest batch as well: some seconds a network.
"""

import argparse
import json
import random
import subprocess

SEED = 2811281
NETWORKS = [
    ("resnet", ["resnet18", "resnet34", "resnet50", "resnet101", "resnext50_32x4d", "wide_resnet50_2"]), ("mnasnet", [None]),
    ("mobilenetv2", [None]), ("mobilenetv3", ["mobilenet_v3_small", "mobilenet_v3_large"]),
    ("vgg", ["vgg11", "vgg13", "vgg16", "vgg19"]), ("regnet", ["regnet_x_400mf", "regnet_y_400mf"]),
    ("densenet", ["densenet121", "densenet169"]), ("efficientnet", ["efficientnet_b0", "efficientnet_b3"]),
    ("inception", [None]), ("convnext", ["convnext_tiny", "convnext_base"]),
]
BATCHES = [1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 200, 256]
SIDES = [64, 96, 128, 160, 192, 224, 256, 320]
PRECISIONS = ["fp32", "fp32", "bf16-amp", "fp16-amp", "bf16"]
OPTIMIZERS = ["sgd-momentum", "adamw", "adam"]
CARDS = ["rtx-5070-ti", "rtx-4060", "rtx-3060", "rtx-4090", "rtx-3090", "rtx-5090", "a100-80gb", "t4", "l4"]


def drawn(count):
    lot = random.Random(SEED)
    for _ in range(count):
        family, variants = lot.choice(NETWORKS)
        variant = lot.choice(variants)
        given = {"batch": lot.choice(BATCHES)}
        if family != "inception":
            given["image"] = lot.choice(SIDES)
        training = {"precision": lot.choice(PRECISIONS), "optimizer": lot.choice(OPTIMIZERS)}
        model = {"family": family, **({"variant": variant} if variant else {})}
        yield {"model": model, "input": given, "training": training, "device": {"gpu": lot.choice(CARDS)}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="target/release/plimsoll")
    parser.add_argument("--python", required=True)
    parser.add_argument("--count", type=int, default=400)
    options = parser.parse_args()
    more = []
    for scenario in drawn(options.count):
        def reserved(*flags):
            command = [options.program, "estimate", "-", "--format", "json", *flags]
            done = subprocess.run(command, input=json.dumps(scenario), capture_output=True, text=True)
            return json.loads(done.stdout)["peak"]["reserved"]

        share = reserved("--ask-cudnn", "--python", options.python) / reserved() - 1
        more.append(share)
        print("%+8.3f %%  %s" % (100 * share, json.dumps(scenario)), flush=True)
    more.sort()
    print("of %d: from %+.1f to %+.1f %%, median %+.1f %%" % (len(more), 100 * more[0], 100 * more[-1], 100 * more[len(more) // 2]))


if __name__ == "__main__":
    main()
