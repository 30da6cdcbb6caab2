#!/usr/bin/env python3
"""The worker of `plimsoll probe`: trains one model the way a training script does, or has it answer, and tells what it took.

It reads a job and then commands as JSON lines from standard input, and writes events as JSON lines to what was its
standard output. Whatever else prints lands on standard error. With `--libraries` it trains nothing and tells what the CUDA
context and libraries take. Python 3.9 and PyTorch 2.2 or newer; transformers for
Hugging Face models, peft for LoRA, bitsandbytes for quantized weights and 8-bit AdamW, torchvision for ResNet, ConvNeXt and
Swin, lion-pytorch for Lion, liger-kernel for its kernels and its loss, deepspeed for ZeRO.

A job for several cards it gives to torchrun, which starts this script once a rank (`--rank`): see `Leader`.

The model and the loop are those that `plimsoll estimate` executes without a GPU. Which Python name holds a tensor for
how long decides the peak, so the loop at `Run.micro_batch` is written out with care: every `del` in it is there for a
reason, and every name that outlives a line does so in an ordinary training script too. Inference is at `Inference`.
"""

import contextlib
import copy
import ctypes
import faulthandler
import functools
import gc
import importlib.util
import json
import math
import os
import platform
import queue
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

STARTED = time.monotonic()
PROTOCOL = 1
