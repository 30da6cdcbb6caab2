//! `plimsoll probe run` against a stand-in for the worker that misbehaves in every way a worker can.
//!
//! The stand-in is a Python script of the standard library only, started through `--python`; no PyTorch is needed.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "the helpers of a test may fail it as its own lines may")]

#[path = "stub/mod.rs"]
mod stub;

use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;
use stub::{Ran, Stub};

/// The kinds of a record's events, in order.
fn kinds(record: &Value) -> Vec<&str> {
    record["events"].as_array().unwrap().iter().map(|e| e["kind"].as_str().unwrap()).collect()
}

/// `(batch, accumulation, outcome, steps)` of every attempt.
fn attempts(record: &Value) -> Vec<(u64, u64, &str, u64)> {
    let attempt = |a: &Value| {
        let number = |key: &str| a[key].as_u64().unwrap();
        (number("batch"), number("accumulation"), number("steps"), a["outcome"].as_str().unwrap().to_owned())
    };
    let all: Vec<_> = record["attempts"].as_array().unwrap().iter().map(attempt).collect();
    all.into_iter().map(|(b, a, s, o)| (b, a, &*String::leak(o), s)).collect()
}

fn message(record: &Value, kind: &str) -> String {
    let events = record["events"].as_array().unwrap();
    let found = events.iter().find(|e| e["kind"] == kind).unwrap_or_else(|| panic!("no {kind} in {events:?}"));
    found["message"].as_str().unwrap().to_owned()
}

#[test]
fn a_fine_run() {
    let Ran { code, record, stdout, stderr } = Stub::new("fine").json();
    assert_eq!(code, Some(0), "{stderr}");
    let record = record.unwrap();
    assert_eq!(serde_json::from_str::<Value>(&stdout).unwrap(), record, "standard output and the file say the same");
    assert_eq!(attempts(&record), [(8, 2, "finished", 3)]);
    assert_eq!(record["steps"].as_array().unwrap().len(), 3);
    // Load, and of the first and the last step: input, forward, backward twice, clip, optimizer, zero_grad.
    assert_eq!(record["phases"].as_array().unwrap().len(), 1 + 2 * 9);
    assert_eq!(record["speed"]["step_micros"], 2000);
    assert_eq!(record["speed"]["samples_per_second"], 8000.0);
    assert_eq!(record["parameters"]["total"], 1000);
    assert_eq!(record["scenario"]["model"]["family"], "mlp");
    assert_eq!(record["estimate"]["scenario"]["model"]["family"], "mlp");
    assert!(kinds(&record).is_empty(), "{record}");
    assert!(!stderr.contains('\u{1b}'), "no colours or cursor movement into a pipe: {stderr:?}");
    for part in ["Measuring on the processor", "importing PyTorch", "micro-batch 8 x 2, 3 steps", "step 3 of 3: 2.0 ms"]
    {
        assert!(stderr.contains(part), "no {part:?} in {stderr}");
    }
}

#[test]
fn a_record_reads_as_one() {
    for mode in ["fine", "oom", "oom-all", "nan", "sigkill", "crash", "load-oom", "missing-package", "garbage"] {
        let record = Stub::new(mode).json().record.unwrap();
        let text = record.to_string();
        let read = serde_json::from_value::<plimsoll_core::Measurement>(record);
        let problems = read.unwrap_or_else(|error| panic!("{mode}: {error}")).validate();
        assert!(problems.is_empty(), "{mode}: {problems:?}");
        for private in ["/tmp", "/home", "/root", env!("CARGO_MANIFEST_DIR")] {
            assert!(!text.contains(private), "{mode}: {private} in {text}");
        }
    }
}

#[test]
fn peaks_of_a_card_stand_beside_the_prediction() {
    let ran = Stub::new("fine").device("cuda").text();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for part in [
        "mlp on NVIDIA Stub 12GB",
        "MEASURED   3 steps of micro-batch 8, accumulated 2 times",
        "measured     predicted               difference",
        "allocated      76.0 MiB",
        "Allocated by phase",
        "step 1                       steady step",
        "Where the difference comes from",
        "tensors",
        "from load, step 1",
        "This card is not in the catalog",
        "Throughput    8,000 samples/s",
    ] {
        assert!(ran.stdout.contains(part), "no {part:?} in {}", ran.stdout);
    }
    assert!(ran.stdout.lines().all(|line| line.chars().count() <= 80), "{}", ran.stdout);
    assert!(!ran.stdout.contains('\u{1b}'));
}

#[test]
fn out_of_memory_halves_the_micro_batch() {
    let ran = Stub::new("oom").json();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let record = ran.record.unwrap();
    let outs = [(8, 2, "out_of_memory", 0), (4, 4, "out_of_memory", 0), (2, 8, "finished", 3)];
    assert_eq!(attempts(&record), outs);
    assert_eq!(kinds(&record), ["out_of_memory", "halved", "out_of_memory", "halved"]);
    assert!(message(&record, "halved").contains("16 samples"), "the effective batch stays");
    assert!(
        ran.stderr.contains("guard: out of memory with micro-batches of 8, in forward of step 1"),
        "{}",
        ran.stderr
    );
}

#[test]
fn out_of_memory_down_to_one_sample() {
    let ran = Stub::new("oom-all").json();
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let record = ran.record.unwrap();
    let sizes: Vec<(u64, u64)> = attempts(&record).iter().map(|a| (a.0, a.1)).collect();
    assert_eq!(sizes, [(8, 2), (4, 4), (2, 8), (1, 16)]);
    assert!(message(&record, "note").contains("not even one sample fits"));
}

#[test]
fn no_halving_when_it_is_not_wanted() {
    let ran = Stub::new("oom").with(&["--no-adapt"]).json();
    assert_eq!(ran.code, Some(1));
    assert_eq!(attempts(&ran.record.unwrap()), [(8, 2, "out_of_memory", 0)]);
}

#[test]
fn a_limit_is_told_from_a_full_card() {
    let ran = Stub::new("limit").with(&["--limit", "256MiB"]).json();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let record = ran.record.unwrap();
    assert_eq!(attempts(&record), [(8, 2, "limit", 0), (4, 4, "finished", 3)]);
    assert_eq!(record["allocator"]["limit"], 256 << 20);
    assert_eq!(kinds(&record)[..2], ["limit", "halved"]);
}

#[test]
fn nine_tenths_of_the_limit_are_warned_of_once_an_attempt() {
    // The stand-in reserves 96 MiB at most.
    let ran = Stub::new("fine").device("cuda").with(&["--limit", "100MiB"]).json();
    let record = ran.record.unwrap();
    assert_eq!(kinds(&record), ["note", "warning"]);
    assert!(record["peak"]["process"].is_null(), "the machine's memory is none of a card");
    assert!(message(&record, "note").contains("only what PyTorch itself counts is measured"));
    assert!(message(&record, "warning").contains("over 90 % of the limit, 100.0 MiB"));
}

#[test]
fn the_model_itself_does_not_fit() {
    let ran = Stub::new("load-oom").json();
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert_eq!(attempts(&ran.record.unwrap()), [(8, 2, "out_of_memory", 0)]);
    assert!(ran.stderr.contains("the weights alone do not fit"), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: take a smaller model"), "{}", ran.stderr);
}

#[test]
fn a_little_garbage_is_passed_over_and_told() {
    for (mode, told) in [("garbage", "it is not JSON"), ("huge", "a line of over 1048576 bytes")] {
        let ran = Stub::new(mode).json();
        assert_eq!(ran.code, Some(0), "{mode}: {}", ran.stderr);
        let record = ran.record.unwrap();
        assert_eq!(attempts(&record), [(8, 2, "finished", 3)]);
        assert!(message(&record, "note").contains(told), "{record}");
    }
}

#[test]
fn much_garbage_ends_the_worker() {
    let ran = Stub::new("flood").json();
    assert_eq!(ran.code, Some(3));
    let record = ran.record.unwrap();
    assert_eq!(attempts(&record), [(8, 2, "failed", 1)], "what was measured before stays");
    assert!(message(&record, "failed").contains("6 lines by now"));
    assert!(ran.stderr.contains("error: something writes to the worker's own channel"), "{}", ran.stderr);
}

#[test]
fn stray_prints_do_no_harm() {
    let ran = Stub::new("stray").json();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(kinds(&ran.record.unwrap()).is_empty());
}

#[test]
fn death_by_signal() {
    for (mode, words, hint) in [
        ("sigkill", "killed by SIGKILL (signal 9)", "out-of-memory killer"),
        ("segv", "ended by SIGSEGV (signal 11)", "standard error"),
    ] {
        let ran = Stub::new(mode).json();
        assert_eq!(ran.code, Some(3), "{mode}: {}", ran.stderr);
        let record = ran.record.unwrap();
        assert_eq!(attempts(&record), [(8, 2, "failed", 1)]);
        assert_eq!(record["steps"].as_array().unwrap().len(), 1, "the first step is kept");
        assert!(message(&record, "failed").contains(words), "{record}");
        assert!(ran.stderr.contains(hint), "{}", ran.stderr);
    }
    let ran = Stub::new("segv").json();
    assert!(ran.stderr.contains("| about to crash"), "the end of its standard error is shown: {}", ran.stderr);
}

#[test]
fn an_end_without_goodbye() {
    for (mode, words) in [("crash", "ended with code 1"), ("half-line", "without saying goodbye")] {
        let ran = Stub::new(mode).json();
        assert_eq!(ran.code, Some(3), "{mode}: {}", ran.stderr);
        assert!(message(&ran.record.unwrap(), "failed").contains(words), "{mode}: {}", ran.stderr);
        assert_eq!(ran.stderr.contains("RuntimeError: something broke in here"), mode == "crash", "{}", ran.stderr);
    }
    let ran = Stub::new("no-bye").json();
    assert_eq!(ran.code, Some(0), "everything was measured: {}", ran.stderr);
    let record = ran.record.unwrap();
    assert_eq!(attempts(&record), [(8, 2, "finished", 3)]);
    assert!(message(&record, "note").contains("without saying goodbye"));
}

#[test]
fn silence() {
    let start = Instant::now();
    // Long enough for Python to start on a busy machine.
    let ran = Stub::new("silence").with(&["--timeout", "5"]).json();
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(message(&ran.record.unwrap(), "failed").contains("said nothing for 5 s"));
    assert!(ran.stderr.contains("--timeout"), "{}", ran.stderr);

    let ran = Stub::new("silent-start").with(&["--timeout", "1"]).json();
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.record.is_none(), "nobody said who he is");
    assert!(start.elapsed() < Duration::from_secs(30));
}

/// Each would be waited for as long as an import may take, five minutes.
#[test]
fn a_worker_that_will_never_greet_is_not_waited_for() {
    for (mode, problem) in [
        ("leaver", "before it said who it is"),
        ("chatter", "lines without saying who it is"),
        ("zero", "does not speak the protocol: a line of over 1048576 bytes"),
        ("stderr", "over 268435456 bytes on standard error"),
    ] {
        let start = Instant::now();
        let (pids, ran) = Stub::new(mode).start().end();
        assert_eq!(ran.code, Some(3), "{mode}: {}", ran.stderr);
        assert!(ran.stderr.contains(problem), "{mode}: {}", ran.stderr);
        assert!(start.elapsed() < Duration::from_secs(150), "{mode}: {:?}", start.elapsed());
        // The one that left its group is nobody's.
        for pid in pids.iter().skip(1) {
            let pid = rustix::process::Pid::from_raw(i32::try_from(*pid).unwrap()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
    }
}

#[test]
fn a_slow_start_is_waited_for() {
    let ran = Stub::new("slow-hello").with(&["--timeout", "20"]).json();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

#[test]
fn losses_that_are_not_finite() {
    let ran = Stub::new("nan").json();
    assert_eq!(ran.code, Some(0), "memory does not mind: {}", ran.stderr);
    let record = ran.record.unwrap();
    assert_eq!(kinds(&record), ["numeric"; 3]);
    assert!(record["steps"][0]["loss"].is_null() && record["steps"][0]["skipped"] == true);
    let text = Stub::new("nan").text().stdout;
    assert!(text.contains("scale 21845") && text.contains("3 of 3 steps skipped"), "{text}");
}

#[test]
fn what_ends_it_before_there_is_a_record() {
    for (mode, parts) in [
        ("missing-torch", ["PyTorch is not installed", "hint: pip install torch"]),
        ("old-torch", ["PyTorch 1.13 is too old", "hint: install torch 2.2"]),
        ("protocol", ["speaks protocol 2, not 1", "--print-worker"]),
    ] {
        let ran = Stub::new(mode).json();
        assert_eq!(ran.code, Some(3), "{mode}: {}", ran.stderr);
        assert!(ran.record.is_none() && ran.stdout.is_empty(), "{mode}: {}", ran.stdout);
        for part in parts {
            assert!(ran.stderr.contains(part), "{mode}: no {part:?} in {}", ran.stderr);
        }
    }
}

#[test]
fn what_ends_it_after_the_greeting_is_in_the_record() {
    let ran = Stub::new("missing-package").json();
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(message(&ran.record.unwrap(), "failed").contains("transformers is not installed"));
    assert!(ran.stderr.contains("hint: pip install transformers"), "{}", ran.stderr);
}

#[test]
fn a_device_that_was_asked_for_must_be_there() {
    let ran = Stub::new("no-device").device("cuda").json();
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: use --device cpu"), "{}", ran.stderr);
}

#[test]
fn the_card_is_found_and_sampled() {
    let ran = Stub::new("fine").card(500).with(&["--steps", "6"]).json();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let record = ran.record.unwrap();
    let device = &record["device"];
    assert_eq!((&device["kind"], &device["gpu"]), (&Value::from("cuda"), &Value::from("rx-7900-xtx")));
    assert_eq!(device["used_before"], 500_u64 << 20);
    assert_eq!(record["peak"]["process_source"], "amdgpu_difference");
    assert_eq!(record["peak"]["process"], 364_u64 << 20, "300 MiB and 8 for each sample, without what others hold");
    assert_eq!(record["utilization"]["mean"], 40);
    assert_eq!(record["estimate"]["scenario"]["device"]["gpu"], "rx-7900-xtx");
    assert_eq!(record["estimate"]["scenario"]["device"]["memory"], "24060 MiB", "less what others hold");
    assert!(record["samples"].as_array().unwrap().len() >= 2);
    assert!(!record.to_string().contains("0000:03:00.0"), "what tells this card from others is not kept");
}

#[test]
fn an_idle_card_gets_larger_micro_batches() {
    let ran = Stub::new("fine").card(500).with(&["--steps", "6", "--target-utilization", "85"]).json();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let record = ran.record.unwrap();
    assert_eq!(attempts(&record), [(8, 2, "finished", 6), (16, 1, "finished", 6), (32, 1, "finished", 6)]);
    assert_eq!(kinds(&record), ["raised", "raised"]);
    assert!(!message(&record, "raised").contains("grows"), "two micro-batches become one");
    assert!(record["events"][1]["message"].as_str().unwrap().contains("grows from 16 to 32"));
    assert_eq!(record["peak"]["process"], (300 + 8 * 32) << 20, "of the last attempt");

    // There, nine tenths are left for nobody: 300 MiB and more of 400.
    let ran = Stub::new("fine").card(500).with(&["--limit", "400MiB", "--target-utilization", "85"]).json();
    let record = ran.record.unwrap();
    assert_eq!(attempts(&record).len(), 1);
    assert!(record.to_string().contains("too near to the end of the memory"), "{record}");
}

#[test]
fn a_busy_card() {
    let gib = |n: u64| n << 10;
    let ran = Stub::new("fine").card(gib(8)).json();
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("others hold 8.00 GiB of the card's 23.98 GiB (33 %)"), "{}", ran.stderr);
    assert!(ran.stderr.contains("--busy warn"), "{}", ran.stderr);
    assert!(ran.record.is_none());
    let record = Stub::new("fine").card(gib(8)).with(&["--busy", "warn"]).json().record.unwrap();
    assert_eq!(kinds(&record), ["warning"]);
    let record = Stub::new("fine").card(gib(8)).with(&["--busy", "ignore"]).json().record.unwrap();
    assert!(kinds(&record).is_empty());
    let record = Stub::new("fine").card(gib(2)).json().record.unwrap();
    assert_eq!(kinds(&record), ["warning"], "a twentieth is told of");
    let record = Stub::new("fine").card(gib(1)).json().record.unwrap();
    assert!(kinds(&record).is_empty());
}

#[test]
fn a_card_that_pytorch_does_not_see_is_left_alone_unless_asked_for() {
    let ran = Stub::new("no-device").card(500).json();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let record = ran.record.unwrap();
    assert_eq!(record["device"]["kind"], "cpu");
    assert!(message(&record, "note").contains("PyTorch sees no CUDA device"));
    // A number asks for a card.
    let ran = Stub::new("no-device").card(500).with(&["--index", "0"]).json();
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("PyTorch sees no CUDA device"), "{}", ran.stderr);
}

#[test]
fn a_card_that_nobody_has_is_refused_before_anything_is_started() {
    let ran = Stub::new("fine").card(500).with(&["--index", "5"]).json();
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("there is no card 5: 1 can be seen"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("Measuring"), "{}", ran.stderr);
}

#[test]
fn of_a_worker_that_failed_before_its_first_step_nothing_is_kept() {
    let running = Stub::new("missing-package").start();
    let kept = running.kept();
    let (_, ran) = running.end();
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(!kept.exists() && !ran.stderr.contains("Kept as"), "{}", ran.stderr);
}

#[test]
fn a_record_is_kept_on_the_machine() {
    let running = Stub::new("fine").start();
    let kept = running.kept();
    let (_, ran) = running.end();
    let files: Vec<_> = fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(serde_json::from_str::<Value>(&fs::read_to_string(&files[0]).unwrap()).unwrap(), ran.record.unwrap());
    assert!(ran.stderr.contains(&files[0].display().to_string()), "{}", ran.stderr);
}

#[test]
fn utilisation_that_nothing_tells_raises_nothing() {
    let ran = Stub::new("fine").with(&["--target-utilization", "85"]).json();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let record = ran.record.unwrap();
    assert_eq!(attempts(&record).len(), 1);
    assert!(message(&record, "note").contains("nothing tells how much the device is used"));
}

#[test]
fn a_family_without_an_estimate_is_measured_all_the_same() {
    let scenario = r#"{"model": {"hf": {"model_type": "perceiver"}, "task": "masked-lm"}, "input": {"batch": 8},
        "training": {"accumulation": 2}}"#;
    let ran = Stub::new("fine").scenario(scenario).text();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("MEASURED"), "{}", ran.stdout);
    assert!(ran.stdout.contains("No prediction: "), "{}", ran.stdout);
    let record = Stub::new("fine").scenario(scenario).json().record.unwrap();
    assert!(record["estimate"].is_null());
}

/// A small decoder that answers.
const ANSWERS: &str = r#"{"model": {"hf": {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 300}},
    "input": {"batch": 8, "seq": 32, "max_new_tokens": 11}, "training": {"mode": "inference", "precision": "bf16"}}"#;

#[test]
fn a_generation_is_measured_and_told_in_its_own_words() {
    let place = ["--busy", "ignore", "--planner", "http://127.0.0.1:7070/"];
    let ran = Stub::new("fine").scenario(ANSWERS).device("cuda").with(&place).text();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let record = ran.record.unwrap();
    let names: Vec<&str> = record["phases"].as_array().unwrap().iter().filter_map(|p| p["name"].as_str()).collect();
    assert_eq!(names, ["load", "input", "prefill", "decode", "input", "prefill", "decode"]);
    assert_eq!(attempts(&record), [(8, 1, "finished", 3)]);
    assert!(record["steps"].as_array().unwrap().iter().all(|step| step["loss"].is_null()));
    assert!(kinds(&record).iter().all(|kind| *kind != "numeric"), "a generation has no loss: {record}");
    // 8 answers of 11 tokens in 2 ms.
    assert_eq!(record["speed"]["tokens_per_second"], 44_000.0);
    let problems = serde_json::from_value::<plimsoll_core::Measurement>(record).unwrap().validate();
    assert!(problems.is_empty(), "{problems:?}");
    for part in [
        "inference, batch 8 x 32 tokens, 11 new tokens, bf16, sdpa attention",
        "3 generations of batch 8",
        "generation 1",
        "last generation",
        "prefill",
        "decode",
        "Generation    2.0 ms (generation 1: 5.0 ms)",
        "Token         100 us each after the first",
        "44,000 new tokens/s",
        "Parameters    1,000\n",
    ] {
        assert!(ran.stdout.contains(part), "no {part:?} in {}", ran.stdout);
    }
    for word in ["step", "trained", "micro-batch", "optimizer", "Loss", "backward"] {
        assert!(!ran.stdout.contains(word), "{word:?} in {}", ran.stdout);
    }
    assert!(
        ran.stderr.contains("batch 8, 3 generations") && ran.stderr.contains("generation 3 of 3"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("mode=inference") && ran.stderr.contains("new_tokens=11"), "{}", ran.stderr);
}

#[test]
fn a_forward_is_measured() {
    let bert = r#"{"model": {"hf": {"model_type": "bert"}, "task": "masked-lm"}, "input": {"batch": 8, "seq": 32},
        "training": {"mode": "inference", "precision": "bf16"}}"#;
    let ran = Stub::new("fine").scenario(bert).text();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let record = ran.record.unwrap();
    let names: Vec<&str> = record["phases"].as_array().unwrap().iter().filter_map(|p| p["name"].as_str()).collect();
    assert_eq!(names, ["load", "input", "forward", "input", "forward"]);
    assert!(ran.stdout.contains("3 forward passes of batch 8"), "{}", ran.stdout);
}

/// There is no step to fill: half the batch is half the answers.
#[test]
fn where_memory_runs_out_fewer_are_answered() {
    let ran = Stub::new("oom").scenario(ANSWERS).json();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let record = ran.record.unwrap();
    assert_eq!(attempts(&record), [(8, 1, "out_of_memory", 0), (4, 1, "out_of_memory", 0), (2, 1, "finished", 3)]);
    assert_eq!(message(&record, "halved"), "batch halved to 4");
    assert!(
        message(&record, "out_of_memory").starts_with("out of memory with a batch of 8, in prefill of generation 1:")
    );
    let record = serde_json::from_value::<plimsoll_core::Measurement>(record).unwrap();
    assert_eq!(record.validate(), []);
    assert_eq!(record.as_run().unwrap().input.batch, 2, "the planner's link is of what ran");
}

/// With the engine's own words, before Python is started.
#[test]
fn what_the_engine_does_not_generate_is_refused() {
    let with = |model: Value, more: &[(&str, Value)]| {
        let mut scenario = serde_json::json!({ "model": model, "training": { "mode": "inference" } });
        for (key, value) in more {
            scenario["training"][key] = value.clone();
        }
        scenario
    };
    let hf = |model_type: &str| serde_json::json!({ "hf": { "model_type": model_type } });
    let mut refused = 0;
    for scenario in [
        with(hf("falcon"), &[]),
        with(hf("t5"), &[]),
        with(hf("llama"), &[("lora", serde_json::json!({ "rank": 8 }))]),
        with(hf("llama"), &[("checkpointing", "full".into())]),
        with(serde_json::json!({ "catalog": "gpt2" }), &[("accumulation", 2.into())]),
    ] {
        // Whatever it is that the engine refuses today.
        let read = plimsoll_core::Scenario::from_value(&scenario);
        let Err(error) = read.and_then(|scenario| plimsoll_core::estimate::Run::new(&scenario).map(drop)) else {
            continue;
        };
        refused += 1;
        let (pids, ran) = Stub::new("fine").scenario(&scenario.to_string()).start().end();
        assert_eq!(ran.code, Some(2), "{scenario}: {}", ran.stderr);
        assert!(pids.is_empty() && ran.record.is_none(), "{scenario}");
        assert!(ran.stderr.contains(&error.problem) && ran.stderr.contains(&error.hint), "{error}: {}", ran.stderr);
    }
    assert!(refused >= 2);
}

#[test]
fn wrong_usage() {
    for (args, part) in [
        (&["--limit", "much"][..], "is not a size"),
        (&["--steps", "0"], "0 is not in 1..="),
        (&["--target-utilization", "101"], "101 is not in 1..=100"),
        (&["--device", "tpu"], "invalid value 'tpu'"),
        (&["--precision", "fp8"], "invalid value 'fp8'"),
        (&["--batch", "0"], "0 is too small"),
    ] {
        let ran = Stub::new("fine").with(args).json();
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(part), "{args:?}: {}", ran.stderr);
    }
    let ran = Stub::new("fine").out("no/such/folder/record.json").json();
    assert_eq!(ran.code, Some(3), "before anything is measured: {}", ran.stderr);
    assert!(!ran.stderr.contains("importing"), "{}", ran.stderr);
}

#[test]
fn no_python_there() {
    let ran = Stub::new("fine").python("/no/such/python").json();
    assert_eq!(ran.code, Some(3));
    assert!(ran.stderr.contains("cannot start /no/such/python"), "{}", ran.stderr);
    let ran = Stub::new("fine").python("/dev/null").json();
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
}

#[test]
fn the_script_can_be_printed() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(["probe", "--print-worker"]).output();
    let output = output.unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap().contains("import"));
}

#[test]
fn ctrl_c_keeps_what_was_measured() {
    use rustix::process::Signal;
    // HUP is what a terminal sends that is closed.
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut running = Stub::new("slow@1").start();
        running.wait_for_step();
        running.signal(signal);
        let (pids, ran) = running.end();
        assert_eq!(ran.code, Some(130), "{}", ran.stderr);
        let record = ran.record.unwrap();
        let (batch, accumulation, outcome, steps) = attempts(&record)[0];
        assert_eq!((batch, accumulation, outcome), (8, 2, "interrupted"));
        assert!(steps >= 1 && record["steps"].as_array().unwrap().len() as u64 == steps);
        assert_eq!(kinds(&record), ["interrupted"]);
        stub::assert_gone(&pids, "stopped");
    }
}

#[test]
fn under_nohup_a_closed_terminal_does_not_end_it_and_ctrl_c_still_does() {
    let mut running = Stub::new("slow@1").ignoring("SIGHUP").start();
    running.wait_for_step();
    running.signal(rustix::process::Signal::HUP);
    running.go();
    let (_, ran) = running.end();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let mut running = Stub::new("slow@1").ignoring("SIGHUP").start();
    running.wait_for_step();
    running.signal(rustix::process::Signal::INT);
    let (pids, ran) = running.end();
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    assert_eq!(kinds(&ran.record.unwrap()), ["interrupted"]);
    stub::assert_gone(&pids, "stopped");
}

#[test]
fn ctrl_c_twice_leaves_at_once_and_leaves_nobody() {
    let mut running = Stub::new("child@1").start();
    running.wait_for_step();
    running.signal(rustix::process::Signal::INT);
    running.signal(rustix::process::Signal::INT);
    let (pids, ran) = running.end();
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    assert_eq!(pids.len(), 2, "the worker and its child");
    stub::assert_gone(&pids, "stopped twice");
}

#[test]
fn what_the_worker_started_ends_with_it() {
    let mut running = Stub::new("child@1").start();
    running.wait_for_step();
    running.signal(rustix::process::Signal::INT);
    let (pids, _) = running.end();
    assert_eq!(pids.len(), 2);
    stub::assert_gone(&pids, "interrupted");
    let (pids, ran) = Stub::new("child").start().end();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    stub::assert_gone(&pids, "finished");
}

#[test]
fn killing_the_probe_leaves_no_worker_and_no_half_record() {
    for round in 0..12_u32 {
        let running = Stub::new("slow").with(&["--steps", "8"]).start();
        // A run takes some 700 ms; a moment in it that differs from round to round and from test to test.
        let jitter = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos() % 50;
        std::thread::sleep(Duration::from_millis(u64::from(round * 65 + jitter)));
        running.signal(rustix::process::Signal::KILL);
        let out = running.out().to_owned();
        let (pids, _) = running.end();
        stub::assert_gone(&pids, &format!("round {round}"));
        if let Ok(text) = fs::read_to_string(&out) {
            let record: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("round {round}: {e}: {text}"));
            assert_eq!(attempts(&record), [(8, 2, "finished", 8)], "round {round}");
        }
    }
}

#[test]
fn a_terminal_sees_it_live() {
    let screen = stub::on_a_terminal(&Stub::new("slow").with(&["--limit", "200MiB", "--steps", "20"]));
    for part in [" of 20, forward 2", "micro-batch 8 x 2", " left", "MEASURED"] {
        assert!(screen.contains(part), "no {part:?} in {screen}");
    }
    assert!(screen.contains("\u{1b}["), "it moves the cursor");
    // The memory bar: the stand-in's own memory against the limit, with the load line.
    assert!(screen.contains(" of 200.0 MiB") && screen.contains("|...]"), "{screen}");
}
