"""Records what a training step of a model allocates, without a card: the script behind `plimsoll trace`.

The model's own forward and backward run once for each size on PyTorch's fake tensors, which have storages like any
other, only nothing in them. What autograd saves is handed to it as a handle that does not hold the tensor
(`torch.autograd.graph.saved_tensors_hooks`): a storage then goes when Python lets go of it, and what autograd keeps is
written down apart. The program `plimsoll` turns several such recordings into one file whose sizes are expressions.

What is written, one list for an instruction:

    ["a", s]        storage s comes             ["d", s]        Python lets go of it
    ["s", h, s]     autograd keeps it as h      ["r", h]        ... and lets go of it
    ["u", k, h]     backward takes it out as k  ["x", k]        ... and lets go of that
    ["t"]           what is called next is given something that takes a gradient
    ["m", n]        module n is called          ["e"]           ... and returns
    ["c"]           a checkpointed stretch      ["f"]           ... and ends
    ["g", s]        s is given to the module that was just called, or the stretch that just began
    ["b", bias]     a matrix product runs; 1 where it adds a bias as it goes
    ["n", i]        backward comes to what the forward made behind its i-th call or return
    ["i", p]        parameter p has its gradient
    ["p", name]     a phase begins: load, then four times input, forward and backward, "zero" before the last two

It needs nothing but torch, runs nobody's kernels, and sends nothing anywhere: one job is read from the first argument,
and the answer is written as lines of JSON to the descriptor that the job names.
"""

import bisect
import contextlib
import gc
import importlib
import importlib.util
import json
import logging
import math
import operator
import os
import re
import sys
import time
import traceback
import warnings
import weakref

PROTOCOL = 1
