"""The first rank of several, on a hollow card: the real wrappers of PyTorch and DeepSpeed with the fake process group.

    plimsoll rehearse --gpu h200 -- python tests/tools/trace/fleet.py ROWS.jsonl [ID...] > traced.jsonl

A line a row: its phases with the highest and the last sum of live storages, each rounded to 512 bytes, and what was reserved at
their end, out of PyTorch's memory history. EVENTS=FOLDER/ in the environment writes every birth and death too, with the Python it came from. DeepSpeed 0.19.8 is
needed for its strategies alone. Truth values that the hollow card cannot know are answered here: no gradient overflows. Rows whose
mask is padded want `rehearse --truth false`, or it is found to hide nothing.
"""

import contextlib
import functools
import json
import os
import pathlib
import sys
import tempfile
import traceback

import torch

from scripts import load

worker = load("worker")
worker.torch = torch

# What a scenario has where it says nothing.
TRAINING = {
    "mode": "train", "precision": "bf16-amp", "optimizer": "adamw", "optimizer_impl": "foreach", "accumulation": 1,
    "checkpointing": "none", "attention": "sdpa", "clip_grad_norm": True, "zero_grad": "set-to-none",
    "zero_grad_at": "after-step", "keep_outputs": False, "optimizer_steps": 2,
}
PARALLEL = {"gpus": 1, "strategy": "ddp", "replicate": 1, "ddp": {}, "fsdp": {}, "zero": {}}
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "none": None, None: None}
# An allocation of so many bytes says that a phase begins; no tensor of a small model has this size.
MARK = 100_003
# Whether DeepSpeed is given a model in the dtype that it computes in: it casts whatever it is given.
AS_COMPUTED = False
BLOCK = 512


def filled(scenario):
    scenario = json.loads(json.dumps(scenario))
    scenario["training"] = {**TRAINING, **scenario.get("training", {})}
    if scenario["training"].get("lora"):
        scenario["training"]["lora"].setdefault("dropout", 0.0)
    given = scenario.setdefault("input", {})
    given.setdefault("batch", 1)
    given.setdefault("attention_mask", "none")
    scenario["parallel"] = {**PARALLEL, **scenario.get("parallel", {})}
    scenario["model"].setdefault("task", "causal-lm")
    return scenario


class Silent:
    def emit(self, *_, **__):
        pass

    note = progress = emit


class Card:
    kind, name, limit, marks = "cuda", "cuda:0", None, False

    def synchronize(self):
        pass

    reset_peaks = check = synchronize

    def figures(self):
        return None, None, None, None, None

    def process(self):
        return None


class Marks:
    """Phases, in the order in which they began."""

    def __init__(self):
        self.names = []

    def begin(self, name, step=None, micro_batch=None):
        self.names.append((name, step, micro_batch))
        mark = torch.empty(MARK, dtype=torch.uint8, device="cuda")
        del mark


MARKS = Marks()
COUNTED = {"total": 0, "trainable": 0}


def made(scenario, config, packages, where):
    """The model, and the dtype of its inputs."""
    training = scenario["training"]
    dtype = worker.loaded_dtype(training)
    # As `from_pretrained` leaves it: quantized on the card one weight after the other, whatever spreads it afterwards.
    quantized = worker.quantized(training)
    with torch.device("cpu" if quantized else where):
        if config is None:
            torch.set_default_dtype(dtype)
            try:
                model = worker.build_family(scenario, packages)
            finally:
                torch.set_default_dtype(torch.float32)
        else:
            with worker.without_large_randomness() if quantized else contextlib.nullcontext():
                model = worker.build_hugging_face(scenario, config, dtype, packages["transformers"])
        if quantized:
            model = worker.quantize(model, training, packages, Card())
            dtype = torch.float32 if worker.prepared(training) else dtype
        if training.get("lora") is not None:
            model = worker.add_adapters(model, scenario, packages["peft"])
        if training.get("kernels", "default") == "liger":
            worker.apply_liger(model, training, Card())
    if training["checkpointing"] != "none":
        worker.enable_checkpointing(model, training)
    model.train()
    if quantized:
        model.to("cuda")
        # Loading is counted from here: by what it left, not by the way there.
        torch.cuda.empty_cache()
        MARKS.begin("load")
    COUNTED["total"] = sum(worker.numbers_in(p) for p in model.parameters())
    COUNTED["trainable"] = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return model, dtype


def build(scenario, config, packages, device):
    parallel = scenario["parallel"]
    strategy, keys = parallel["strategy"], parallel["fsdp"]
    where = keys.get("load", "meta") if strategy == "fsdp2" else "cpu" if strategy == "fsdp1" else "meta"
    whole = strategy == "ddp" or parallel["gpus"] == 1
    # Parameters that are shared come apart where a model leaves the meta device whole.
    if where == "meta" and (whole and getattr(config, "tie_word_embeddings", False) or worker.quantized(scenario["training"])):
        where = "cpu" if whole else "cuda"
    model, dtype = made(scenario, config, packages, where)
    if whole:
        if where == "meta":
            model.to_empty(device="cuda")
        else:
            model.to("cuda")
        return (model if parallel["gpus"] == 1 else with_ddp(model, parallel)), dtype
    return {"fsdp1": with_fsdp1, "fsdp2": with_fsdp2}[strategy](model, parallel, where), dtype


def with_ddp(model, parallel):
    options = {key: value for key, value in parallel["ddp"].items() if key != "no_sync"}
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0], **options)

    def reduced(_, bucket):
        # The fake group's future holds nothing.
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    model.register_comm_hook(None, reduced)
    return model


def mesh(parallel):
    from torch.distributed.device_mesh import init_device_mesh

    copies, gpus = parallel["replicate"], parallel["gpus"]
    if copies == 1:
        return init_device_mesh("cuda", (gpus,))
    return init_device_mesh("cuda", (copies, gpus // copies), mesh_dim_names=("replicate", "shard"))


def with_fsdp2(model, parallel, where):
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

    keys = parallel["fsdp"]
    policy = MixedPrecisionPolicy(param_dtype=DTYPES[keys.get("param_dtype")], reduce_dtype=DTYPES[keys.get("reduce_dtype")])
    options = {"mp_policy": policy, "mesh": mesh(parallel)}
    if keys.get("cpu_offload"):
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=keys.get("pin_memory", True))
    reshard = {True: True, "true": True, False: False, "false": False}.get(keys.get("reshard_after_forward"))
    if reshard is not None:
        options["reshard_after_forward"] = reshard
    wrap = keys.get("wrap", "layer")
    if wrap == "torchtitan":
        fully_shard(model.model.embed_tokens, **options)
    if wrap != "root":
        for block in worker.blocks(model):
            fully_shard(block, **options)
    if wrap == "torchtitan":
        fully_shard([model.model.norm, model.lm_head], **{"reshard_after_forward": False, **options})
    fully_shard(model, **options)
    if where == "meta":
        to_empty(model, "cpu" if keys.get("cpu_offload") else "cuda")
        if keys.get("cpu_offload"):
            for module in model.modules():
                for name, buffer in list(module._buffers.items()):
                    if buffer is not None:
                        module._buffers[name] = torch.empty_like(buffer, device="cuda")
    if not keys.get("reshard_after_backward", True):
        model.set_reshard_after_backward(False)
    return model


def to_empty(model, device):
    """`Module.to_empty`, that leaves shared what is shared."""
    made, places = {}, {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                places.setdefault(id(parameter), []).append((module, name))

    def empty(tensor):
        if id(tensor) not in made:
            made[id(tensor)] = tensor, torch.empty_like(tensor, device=device)
        return made[id(tensor)][1]

    model._apply(empty)
    for (first, name), *others in places.values():
        for module, other in others:
            module._parameters[other] = first._parameters[name]


def with_fsdp1(model, parallel, where, blocks=worker.blocks):
    from torch.distributed.fsdp import BackwardPrefetch, CPUOffload, FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy

    keys = parallel["fsdp"]
    wrapped = {id(block) for block in blocks(model)} if keys.get("wrap", "layer") != "root" else set()
    if keys.get("wrap") == "peft":
        # `fsdp_auto_wrap_policy` of peft: every leaf that is trained besides.
        def trained(module):
            leaf = not list(module.named_children()) and getattr(module, "weight", None) is not None
            return leaf and module.weight.requires_grad

        wrapped |= {id(module) for module in model.modules() if trained(module)}
    precision = None
    if keys.get("param_dtype") or keys.get("reduce_dtype"):
        precision = MixedPrecision(param_dtype=DTYPES[keys.get("param_dtype")], reduce_dtype=DTYPES[keys.get("reduce_dtype")])
    ahead = {"pre": BackwardPrefetch.BACKWARD_PRE, "post": BackwardPrefetch.BACKWARD_POST, "none": None}
    return FullyShardedDataParallel(
        model, auto_wrap_policy=functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda module: id(module) in wrapped),
        mixed_precision=precision, use_orig_params=keys.get("use_orig_params", False), device_id=0,
        sharding_strategy=ShardingStrategy[keys.get("sharding_strategy", "full-shard").upper().replace("-", "_")],
        cpu_offload=CPUOffload(offload_params=True) if keys.get("cpu_offload") else None,
        backward_prefetch=ahead[keys.get("backward_prefetch", "pre")],
    )


def with_scaler(scenario):
    """FSDP1 has a scaler of its own, which hears of the overflows of all ranks."""
    if scenario["parallel"]["strategy"] == "fsdp1":
        from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

        ShardedGradScaler._maybe_opt_step = torch.amp.GradScaler._maybe_opt_step
        worker.make_scaler = lambda kind, scale=None: ShardedGradScaler(kind)


worker.build = build
torch.amp.GradScaler._maybe_opt_step = lambda self, optimizer, state, *args, **kwargs: optimizer.step(*args, **kwargs)


class Loop(worker.Run):
    """The probe's own loop, with what a strategy changes of it."""

    @contextlib.contextmanager
    def phase(self, name, step=None, micro_batch=None):
        MARKS.begin(name, step, micro_batch)
        yield

    def micro_batch(self, step, number, samples, divide):
        parallel = self.scenario["parallel"]
        strategy, last = parallel["strategy"], number == self.training["accumulation"]
        every = parallel["fsdp"].get("sync_every_micro_batch", True)
        if strategy == "fsdp2" and not every:
            self.model.set_requires_gradient_sync(last)
        quiet = strategy == "fsdp1" and not every or strategy == "ddp" and parallel["gpus"] > 1 and parallel["ddp"].get("no_sync", True)
        with self.model.no_sync() if quiet and not last else contextlib.nullcontext():
            return super().micro_batch(step, number, samples, divide)

    def update(self, step):
        if self.scenario["parallel"]["strategy"] != "fsdp1":
            return super().update(step)
        plain = torch.nn.utils.clip_grad_norm_

        def clip(parameters, most):
            torch.nn.utils.clip_grad_norm_ = plain
            return self.model.clip_grad_norm_(most)

        torch.nn.utils.clip_grad_norm_ = clip
        try:
            return super().update(step)
        finally:
            torch.nn.utils.clip_grad_norm_ = plain


def with_deepspeed(scenario, config, packages):
    """DeepSpeed's own loop. What its names hold at the end lives on."""
    os.environ.update(DS_ACCELERATOR="cuda", DS_SKIP_CUDA_CHECK="1", LOCAL_RANK="0", RANK="0")
    os.environ["WORLD_SIZE"] = str(scenario["parallel"]["gpus"])
    import deepspeed

    worker.without_overflows()
    # It prints what it was given, and the host would ask the card for the numbers of what lies there.
    torch._tensor_str._str = lambda *_, **__: "tensor(...)"
    training, samples = scenario["training"], scenario["input"]["batch"]
    MARKS.begin("load")
    # The engine casts a model itself, but what a quantized one computes in is said when it is loaded.
    loaded = training if worker.quantized(training) or AS_COMPUTED else {**training, "precision": "fp32"}
    model, _ = made({**scenario, "training": loaded}, config, packages, "cpu")
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = worker.make_optimizers(training, model, trained, packages, Card(), Silent())[0]
    engine = deepspeed.initialize(model=model, optimizer=optimizer, config=worker.zero_config(scenario), dist_init_required=False)[0]
    make = worker.make_inputs(scenario, config, DTYPES.get(training["precision"], torch.float32), Card())
    for step in range(1, training["optimizer_steps"] + 1):
        for number in range(1, training["accumulation"] + 1):
            MARKS.begin("input", step, number)
            batch = make(samples)
            MARKS.begin("forward", step, number)
            output = engine(**batch)
            loss = output[1] if isinstance(output, tuple) else output.loss
            outputs = output if training["keep_outputs"] else None
            del output
            MARKS.begin("backward", step, number)
            engine.backward(loss)
            # As the probe's own loop has it.
            if training.get("lora") is not None:
                loss = loss.detach()
            if number < training["accumulation"]:
                engine.step()
        MARKS.begin("optimizer", step)
        engine.step()
    return engine, batch, loss, outputs


def set_allocator(said):
    """`[allocator]`, as `PYTORCH_CUDA_ALLOC_CONF` and `CUBLAS_WORKSPACE_CONFIG` have it."""
    if said.get("cublas_workspace", "default") != "default":
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = said["cublas_workspace"]
    keys = ("expandable_segments", "max_split_size_mb", "roundup_power2_divisions", "garbage_collection_threshold")
    settings = ",".join("%s:%s" % (key, said[key]) for key in keys if said.get(key))
    if settings:
        torch.cuda.memory._set_allocator_settings(settings)
    if said.get("per_process_memory_fraction"):
        torch.cuda.set_per_process_memory_fraction(said["per_process_memory_fraction"])


def run(scenario, events):
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    scenario = filled(scenario)
    parallel = scenario["parallel"]
    torch.cuda.init()
    set_allocator(scenario.get("allocator", {}))
    # Stacks swallow the exception that ends a recomputation within a function of DeepSpeed's: DEPTH=0 leaves them out.
    context = "all" if events and os.environ.get("DEPTH") != "0" else None
    torch.cuda.memory._record_memory_history(enabled="all", context=context, stacks="python", max_entries=10**7)
    if parallel["gpus"] > 1:
        dist.init_process_group("fake", rank=0, world_size=parallel["gpus"], store=FakeStore())
    config = scenario["model"].get("hf")
    packages = worker.import_for(scenario, config)
    if config is not None:
        config = worker.read_config(scenario, dict(config), packages["transformers"])
    if parallel["strategy"].startswith("zero"):
        held = with_deepspeed(scenario, config, packages)
    else:
        with_scaler(scenario)
        held = Loop({"scenario": scenario}, config, packages, Card(), Silent())
        for step in range(1, scenario["training"]["optimizer_steps"] + 1):
            held.one_step(step, [scenario["input"]["batch"]] * scenario["training"]["accumulation"])
    MARKS.begin("end")
    torch.cuda.synchronize()
    phases, peak, seen = read(torch.cuda.memory._snapshot()["device_traces"][0])
    if events:
        with open(events, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(event) + "\n" for event in seen)
    answer = {
        "peak_requested": peak, "parameters": COUNTED, "phases": phases, "events": len(seen),
        "max_allocated": torch.cuda.max_memory_allocated(), "max_reserved": torch.cuda.max_memory_reserved(),
    }
    del held
    return answer


def frames(entry):
    named = ["%s:%s:%d" % (pathlib.Path(f["filename"]).name, f["name"], f["line"]) for f in entry.get("frames", [])]
    return named[: int(os.environ.get("DEPTH", "6"))]


def read(history):
    """Phases, the peak, and every birth and death with its stream."""
    names, phases, seen, alive = iter(MARKS.names), [], [], {}
    now = peak = reserved = 0
    mark = None
    for entry in history:
        address, action = entry["addr"], entry["action"]
        if action == "alloc" and entry["size"] == MARK:
            if phases:
                phases[-1].update(end_requested=now, reserved=reserved)
            name, step, micro_batch = next(names)
            phases.append({"name": name, "step": step, "micro_batch": micro_batch, "peak_requested": now})
            mark = address
        elif action == "alloc":
            alive[address] = -(-entry["size"] // BLOCK) * BLOCK
            now += alive[address]
            peak = max(peak, now)
            if phases:
                phases[-1]["peak_requested"] = max(phases[-1]["peak_requested"], now)
            seen.append(["a", address, entry["size"], phases[-1]["name"] if phases else "", entry["stream"], now, frames(entry)])
        elif action in ("segment_alloc", "segment_free", "segment_map", "segment_unmap"):
            reserved += entry["size"] if action in ("segment_alloc", "segment_map") else -entry["size"]
        elif action == "free_requested" and address == mark:
            mark = None
        elif action == "free_requested":
            size = alive.pop(address, 0)
            now -= size
            seen.append(["f", address, size, phases[-1]["name"] if phases else "", entry["stream"], now, frames(entry)])
    if len(phases) > 1 and phases[1]["name"] == "load":
        del phases[0]
        peak = max(phase["peak_requested"] for phase in phases)
    return phases[:-1], peak, seen


def child(row, path):
    """In a process of its own, which ends without Python's tidying up."""
    try:
        events = os.environ.get("EVENTS")
        answer = run(row["scenario"], events and events + row["id"] + ".jsonl")
    except BaseException as error:
        traceback.print_exc()
        answer = {"error": "%s: %s" % (type(error).__name__, error)}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(answer, file)
    os._exit(0)


def main():
    # What libraries print goes where errors go.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # Before the processes part, so that each finds it loaded.
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
