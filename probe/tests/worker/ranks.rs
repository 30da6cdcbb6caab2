//! Several processes: torchrun, the real wrappers of PyTorch over gloo, and one record of all ranks.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_core::estimate::Run;
use plimsoll_core::measurement::{self, EventKind, Outcome};
use plimsoll_core::{Measurement, Scenario};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};

use super::process;

/// `plimsoll probe run` of a scenario on the processor, with a folder of its own.
struct Probe {
    folder: PathBuf,
    command: Command,
}

impl Probe {
    fn new(name: &str, scenario: &Value) -> Self {
        let folder = process::directory(&format!("ranks-{name}"), &[("scenario.json", &scenario.to_string())]);
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(["probe", "run"]).arg(folder.join("scenario.json")).args(["--device", "cpu"]);
        command.arg("--out").arg(folder.join("record.json"));
        command.env("PLIMSOLL_DATA", folder.join("data")).env("OMP_NUM_THREADS", "1").env_remove("PYTHONPATH");
        Self { folder, command }
    }

    fn with(mut self, args: &[&str]) -> Self {
        self.command.args(args);
        self
    }

    /// Modules that Python finds before all others.
    fn modules(mut self, files: &[(&str, &str)]) -> Self {
        let place = self.folder.join("modules");
        for (name, text) in files {
            let path = place.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        self.command.env("PYTHONPATH", place);
        self
    }

    /// With processes that have imported PyTorch.
    fn run(self) -> Ran {
        self.run_with(process::ready_program())
    }

    fn run_with(mut self, python: PathBuf) -> Ran {
        self.command.arg("--python").arg(python);
        let Output { status, stderr, stdout } = self.command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ran { code: status.code(), stdout: text(stdout), stderr: text(stderr), folder: self.folder }
    }

    /// Started, and waited for until the first step was told of.
    fn start(mut self) -> (Child, BufReader<std::process::ChildStderr>, PathBuf) {
        self.command.arg("--python").arg(process::program());
        let mut child = self.command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("step 1 of") {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0, "it ended before the first step");
        }
        (child, lines, self.folder)
    }
}

struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
    folder: PathBuf,
}

impl Ran {
    fn record(&self) -> Measurement {
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        record(&self.folder).unwrap_or_else(|| panic!("no record: {}", self.stderr))
    }

    fn says(&self, part: &str) -> &Self {
        let all = format!("{}{}", self.stdout, self.stderr);
        assert!(all.contains(part), "no {part:?}: {all}");
        self
    }
}

fn record(folder: &Path) -> Option<Measurement> {
    let record = Measurement::from_json(&fs::read_to_string(folder.join("record.json")).ok()?).unwrap();
    let problems = record.validate();
    assert!(problems.is_empty(), "{problems:?}");
    Some(record)
}

/// A small llama whose layers do not divide evenly by four everywhere.
fn llama(parallel: Value, training: Value) -> Value {
    let config = json!({
        "model_type": "llama", "hidden_size": 72, "intermediate_size": 130, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 18, "vocab_size": 257,
        "max_position_embeddings": 64,
    });
    let model = json!({ "hf": config, "task": "causal-lm" });
    json!({ "model": model, "input": { "batch": 2, "seq": 16 }, "training": training, "parallel": parallel })
}

/// Runs a scenario, and lays what every rank exchanged beside the estimate.
fn agrees(name: &str, scenario: &Value) -> Measurement {
    let ran = Probe::new(name, scenario).run();
    assert_eq!(ran.code, Some(0), "{name}: {}", ran.stderr);
    let record = ran.record();
    let asked = Scenario::from_value(scenario).unwrap();
    assert_eq!(record.ranks.len() as u64, asked.parallel.gpus, "{name}");
    let estimated = measurement::exchanged(&asked, &Run::new(&asked).unwrap()).unwrap();
    for rank in &record.ranks {
        assert_eq!(rank.outcome, Some(Outcome::Finished), "{name}");
        assert_eq!(rank.buffers, estimated, "{name}, rank {}", rank.rank);
        assert_eq!(rank.phases.len(), record.phases.len(), "{name}: every rank runs the same loop");
        assert!(rank.peak.process.is_some_and(|size| Some(size) <= record.peak.process), "{name}");
    }
    let parameters = Run::new(&asked).unwrap().estimate().parameters;
    assert_eq!(record.parameters, Some(parameters), "{name}");
    record
}

#[test]
#[ignore = "needs a Python with torch and transformers: cargo xtask test"]
fn the_reducers_buckets_are_those_of_the_estimate() {
    let fp32 = || json!({ "precision": "fp32" });
    for (name, gpus, ddp, training) in [
        ("ddp", 2, json!({}), json!({})),
        ("ddp-4", 4, json!({ "bucket_cap_mb": 1 }), fp32()),
        ("ddp-view", 2, json!({ "gradient_as_bucket_view": true }), json!({ "accumulation": 2 })),
        ("ddp-unused", 2, json!({ "find_unused_parameters": true }), fp32()),
        ("ddp-lora", 2, json!({}), json!({ "lora": { "rank": 4 }, "precision": "bf16" })),
    ] {
        let parallel = json!({ "gpus": gpus, "strategy": "ddp", "ddp": ddp });
        let record = agrees(name, &llama(parallel, training));
        assert!(record.ranks.iter().all(|rank| rank.buffers.iter().all(|buffer| buffer.kind.as_str() == "bucket")));
    }
    // Several buckets: 8.4 MB of gradients, by the first one's 1 MiB and by 2 MiB.
    let model = json!({ "family": "mlp", "d_in": 512, "hidden": 1024, "layers": 4, "d_out": 10 });
    let wide = |ddp: Value| {
        let parallel = json!({ "gpus": 2, "strategy": "ddp", "ddp": ddp });
        json!({ "model": model, "input": { "batch": 4 }, "training": { "precision": "fp32" }, "parallel": parallel })
    };
    assert!(agrees("ddp-mlp", &wide(json!({}))).ranks[0].buffers.len() > 1);
    assert!(agrees("ddp-mlp-2", &wide(json!({ "bucket_cap_mb": 2 }))).ranks[0].buffers.len() > 1);
}

#[test]
#[ignore = "needs a Python with torch and transformers: cargo xtask test"]
fn what_fsdp2_gathers_and_reduces_is_that_of_the_estimate() {
    let policy = json!({ "param_dtype": "bf16", "reduce_dtype": "fp32" });
    let fp32 = || json!({ "precision": "fp32" });
    for (name, gpus, replicate, fsdp, training) in [
        ("fsdp2", 2, 1, json!({}), json!({})),
        ("fsdp2-4", 4, 1, policy.clone(), fp32()),
        ("hsdp", 4, 2, policy.clone(), fp32()),
        ("fsdp2-root", 2, 1, json!({ "wrap": "root" }), json!({ "precision": "bf16" })),
        ("fsdp2-titan", 2, 1, json!({ "wrap": "torchtitan" }), fp32()),
        ("fsdp2-whole", 2, 1, json!({ "reshard_after_forward": false }), fp32()),
        ("fsdp2-cpu", 2, 1, json!({ "load": "cpu" }), json!({ "checkpointing": "full" })),
        (
            "fsdp2-sync",
            2,
            1,
            json!({ "sync_every_micro_batch": false, "param_dtype": "bf16", "reduce_dtype": "fp32" }),
            json!({ "precision": "fp32", "accumulation": 3 }),
        ),
    ] {
        let parallel = json!({ "gpus": gpus, "strategy": "fsdp2", "replicate": replicate, "fsdp": fsdp });
        agrees(name, &llama(parallel, training));
    }
}

#[test]
#[ignore = "needs a Python with torch and transformers: cargo xtask test"]
fn the_report_tells_every_rank() {
    let ran = Probe::new("report", &llama(json!({ "gpus": 2, "strategy": "fsdp2" }), json!({}))).run();
    for part in [
        "a llama model in 2 processes on ",
        "By rank",
        "rank 0",
        "rank 1",
        "Exchanged in the last step",
        "gathered",
        "(as estimated)",
    ] {
        ran.says(part);
    }
    assert!(ran.stdout.lines().all(|line| line.chars().count() <= 80), "{}", ran.stdout);
}

#[test]
#[ignore = "needs a Python with torch and transformers: cargo xtask test"]
fn deepspeed_runs_its_own_loop_or_is_said_to_be_missing() {
    let scenario = llama(json!({ "gpus": 2, "strategy": "zero-2" }), json!({ "precision": "bf16", "accumulation": 2 }));
    let ran = Probe::new("zero", &scenario).run();
    if ran.code == Some(3) {
        let missing = "this Python has no deepspeed, which the strategy zero-2 needs";
        let unbuilt = "DeepSpeed builds a part of itself here";
        assert!([missing, unbuilt].iter().any(|part| ran.stderr.contains(part)), "{}", ran.stderr);
        return;
    }
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let record = ran.record();
    assert!(record.ranks.iter().all(|rank| rank.outcome == Some(Outcome::Finished)));
    let names: Vec<&str> = record.ranks[1].phases.iter().map(|phase| phase.name.as_str()).collect();
    assert_eq!(names[..8], ["load", "input", "forward", "backward", "input", "forward", "backward", "optimizer"]);
}

/// One of the processes runs out of memory in the second step.
const SHORT: &str = "
import importlib.abc, importlib.util, os, sys
if os.environ.get('RANK') == '1':
    class Watch:
        def find_spec(self, name, path=None, target=None):
            if name != 'torch.optim.adamw':
                return None
            sys.meta_path.remove(self)
            spec = importlib.util.find_spec(name)
            run = spec.loader.exec_module
            def exec_module(module):
                run(module)
                step, calls = module.AdamW.step, []
                def short(self, *args, **kwargs):
                    calls.append(1)
                    if len(calls) == 2:
                        raise RuntimeError('DefaultCPUAllocator: not enough memory: you tried to allocate 64 bytes')
                    return step(self, *args, **kwargs)
                module.AdamW.step = short
            spec.loader.exec_module = exec_module
            return spec
    sys.meta_path.insert(0, Watch())
";

#[test]
#[ignore = "needs a Python with torch and transformers: cargo xtask test"]
fn one_rank_without_memory_ends_all_and_what_was_measured_is_kept() {
    let scenario = llama(json!({ "gpus": 2 }), json!({}));
    let ran = Probe::new("short", &scenario).modules(&[("sitecustomize.py", SHORT)]).run_with(process::program());
    let record = ran.record();
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert_eq!(record.attempts[0].outcome, Outcome::OutOfMemory);
    let outcomes: Vec<Option<Outcome>> = record.ranks.iter().map(|rank| rank.outcome).collect();
    assert_eq!(outcomes, [None, Some(Outcome::OutOfMemory)]);
    assert!(record.ranks.iter().all(|rank| !rank.phases.is_empty()), "the first step was measured on both");
    let guard = record.events.iter().find(|event| event.kind == EventKind::OutOfMemory).unwrap();
    assert!(guard.message.contains("on rank 1, in optimizer of step 2"), "{}", guard.message);
    ran.says("DID NOT FIT").says("was ended before it was through").says("the micro-batch is not halved");
}

/// The processes below another, and their commands.
fn below(of: u32) -> Vec<(u32, String)> {
    let all: Vec<(u32, u32)> = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()?;
            Some((pid, parent))
        })
        .collect();
    let mut found = vec![of];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(all.iter().filter(|(_, its)| *its == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    let command = |pid: u32| {
        let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        (pid, String::from_utf8_lossy(&text).replace('\0', " "))
    };
    found.into_iter().skip(1).map(command).collect()
}

fn gone(pids: &[u32], what: &str) {
    let until = Instant::now() + Duration::from_secs(10);
    let lives = |pid: &&u32| test_kill_process(Pid::from_raw(i32::try_from(**pid).unwrap()).unwrap()).is_ok();
    while let Some(pid) = pids.iter().find(lives) {
        assert!(Instant::now() < until, "{what}: process {pid} is still there");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[cfg(target_os = "linux")]
#[ignore = "needs a Python with torch and transformers: cargo xtask test"]
fn a_rank_that_dies_is_named_and_none_is_left_behind() {
    let scenario = llama(json!({ "gpus": 2 }), json!({}));
    let (mut child, mut lines, folder) = Probe::new("killed", &scenario).with(&["--steps", "100000"]).start();
    let all = below(child.id());
    let pids: Vec<u32> = all.iter().map(|(pid, _)| *pid).collect();
    let ranks: Vec<u32> = all
        .iter()
        .filter(|(pid, command)| {
            command.contains("--rank")
                && fs::read(format!("/proc/{pid}/environ"))
                    .is_ok_and(|of| String::from_utf8_lossy(&of).split('\0').any(|variable| variable == "LOCAL_RANK=1"))
        })
        .map(|(pid, _)| *pid)
        .collect();
    assert_eq!(ranks.len(), 1, "{all:?}");
    kill_process(Pid::from_raw(i32::try_from(ranks[0]).unwrap()).unwrap(), Signal::KILL).unwrap();
    let mut text = String::new();
    lines.read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3), "{text}");
    assert!(text.contains("rank 1: the process was ended by SIGKILL (signal 9), after "), "{text}");
    assert!(text.contains("out-of-memory killer"), "{text}");
    let record = record(&folder).unwrap();
    assert_eq!(record.attempts[0].outcome, Outcome::Failed);
    assert!(record.ranks.iter().all(|rank| !rank.phases.is_empty()));
    gone(&pids, "after a rank died");
}

#[test]
#[cfg(target_os = "linux")]
#[ignore = "needs a Python with torch and transformers: cargo xtask test"]
fn ctrl_c_ends_every_process() {
    let scenario = llama(json!({ "gpus": 2, "strategy": "fsdp2" }), json!({}));
    for (signal, code) in [(Signal::INT, Some(130)), (Signal::KILL, None)] {
        let (mut child, mut lines, folder) = Probe::new("stopped", &scenario).with(&["--steps", "100000"]).start();
        let pids: Vec<u32> = below(child.id()).into_iter().map(|(pid, _)| pid).collect();
        assert!(pids.len() >= 4, "the leader, torchrun, two ranks: {pids:?}");
        kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), signal).unwrap();
        let mut text = String::new();
        lines.read_to_string(&mut text).unwrap();
        assert_eq!(child.wait().unwrap().code(), code, "{text}");
        gone(&pids, "stopped");
        if code.is_some() {
            assert_eq!(record(&folder).unwrap().attempts[0].outcome, Outcome::Interrupted);
        }
    }
}

#[test]
#[ignore = "needs a Python with torch and transformers: cargo xtask test"]
fn a_torch_without_torchrun_is_said_to_be_one() {
    let scenario = llama(json!({ "gpus": 2 }), json!({}));
    let none = Probe::new("no-run", &scenario).modules(&[("torch/__init__.py", "")]).run_with(process::program());
    assert_eq!(none.code, Some(3));
    none.says("this PyTorch has no torchrun");
    let files = [
        ("torch/__init__.py", ""),
        ("torch/distributed/__init__.py", ""),
        ("torch/distributed/run.py", "raise ImportError('torch.distributed is not available')"),
    ];
    let broken = Probe::new("broken-run", &scenario).modules(&files).run_with(process::program());
    assert_eq!(broken.code, Some(3));
    broken.says("torchrun ended with code 1 before every rank had begun").says("torch.distributed is not available");
}

#[test]
#[ignore = "needs a Python with torch and transformers: cargo xtask test"]
fn what_is_not_measured_is_refused_by_name() {
    for (parallel, part) in [
        (json!({ "gpus": 2, "strategy": "megatron" }), "megatron is not measured yet"),
        (json!({ "gpus": 2, "tensor": 2, "strategy": "fsdp2" }), "it is not measured yet"),
        (json!({ "gpus": 16 }), "these cards stand in 2"),
        (json!({ "gpus": 2, "strategy": "fsdp1" }), "FullyShardedDataParallel needs a card"),
    ] {
        let ran = Probe::new("refused", &llama(parallel, json!({}))).run();
        assert_ne!(ran.code, Some(0));
        ran.says(part);
    }
}
