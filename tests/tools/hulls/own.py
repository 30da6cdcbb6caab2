"""The probe's own small families, for `plimsoll trace`."""

import pathlib
import sys

import torch

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "trace"))
from scripts import load


def own(name, **keys):
    """A model of one of `FAMILIES` in the probe's worker, whose forward answers the loss as well."""
    worker = load("worker")
    worker.torch = torch
    classes = worker.own_families(0.0)
    if name not in worker.TORCHVISION:
        return classes[name](**{**worker.FAMILIES[name], **keys})
    import torchvision

    return classes["torchvision"](torchvision.models.get_model(keys["variant"], weights=None, num_classes=keys["num_classes"]))
