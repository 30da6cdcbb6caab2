//! `probe run` on one card.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use plimsoll_core::Measurement;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::dry::{Dry, PROGRAM, files, outcomes, python};
use super::{GPT2, MLP};

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn a_run_is_what_was_estimated_and_stays_apart_from_what_was_measured() {
    let dry = Dry::on("run", &[]);
    let Some(ran) = dry.probe("run", &GPT2) else { return };
    ran.ends(0).says("DistilGPT2 on a hollow NVIDIA GeForce RTX 3060").says("there was no such card");
    let record = ran.record();
    for figure in ["allocated", "reserved"] {
        assert_eq!(record["peak"][figure], record["estimate"]["peak"][figure], "{figure} in {}", ran.stdout);
    }
    // The driver's count of the worker, read from another process: PyTorch's memory and the context.
    assert_eq!(record["peak"]["process_source"], "nvml_process");
    assert_eq!(record["peak"]["process"], record["estimate"]["peak"]["process"]);
    assert_eq!(record["device"]["hollow"], true);
    assert_eq!(record["device"]["gpu"], "rtx-3060");

    // It is good in all but one thing, and that one keeps it from every place where measurements are.
    let read: Measurement = serde_json::from_value(record).unwrap();
    let problems: Vec<String> = read.validate().into_iter().map(|problem| problem.key).collect();
    assert_eq!(problems, ["device.hollow"]);
    let kept = files(&ran.folder.join("data"));
    assert!(kept.len() == 1 && kept[0].starts_with(ran.folder.join("data/rehearsals/measurements")), "{kept:?}");
    let mut upload = Command::new(PROGRAM);
    upload.args(["upload", "--yes", "--to", "http://127.0.0.1:9"]).arg(&kept[0]);
    let upload = upload.env("PLIMSOLL_DATA", ran.folder.join("data")).output().unwrap();
    assert_eq!(upload.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&upload.stderr).contains("there was no such card"), "{upload:?}");
}

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn what_is_predicted_is_of_as_many_steps_as_are_run() {
    // The third step of this one takes a segment more.
    let ask = ["--model", "t5-small", "--batch", "9", "--optimizer", "sgd-momentum", "--precision", "bf16-amp"];
    let dry = Dry::on("steps", &["--memory", "12 GiB"]);
    let mut peaks = Vec::new();
    for (steps, said) in
        [(&["--steps", "2"][..], Value::Null), (&[], 3.into()), (&["--optimizer-steps", "4"], 4.into())]
    {
        let Some(ran) = dry.probe("run", &[&ask[..], steps].concat()) else { return };
        let record = ran.ends(0).record();
        assert_eq!(record["scenario"]["training"]["optimizer_steps"], said, "{steps:?}");
        assert_eq!(record["steps"].as_array().unwrap().len() as u64, said.as_u64().unwrap_or(2));
        peaks.push(record["peak"]["reserved"].as_u64().unwrap());
        assert_eq!(record["estimate"]["peak"]["reserved"], record["peak"]["reserved"], "{steps:?}");
    }
    assert!(peaks[0] < peaks[1], "{peaks:?}");
}

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn the_micro_batch_is_halved_where_the_card_or_the_limit_ends() {
    let dry = Dry::on("halving", &["--memory", "2 GiB"]);
    let Some(ran) = dry.probe("run", &[&MLP[..], &["--batch", "65536", "--precision", "fp32"]].concat()) else {
        return;
    };
    let record = ran.ends(0).record();
    let tried = outcomes(&record);
    assert_eq!(tried[0], (65536, 1, "out_of_memory".to_owned()));
    assert_eq!(tried.last().unwrap().2, "finished", "{tried:?}");
    assert!(tried.iter().all(|(batch, accumulation, _)| batch * accumulation == 65536), "{tried:?}");
    let peak = record["peak"]["process"].as_u64().unwrap();
    assert!(peak <= 2 << 30 && peak > 1 << 30, "{peak}");

    let ran = dry
        .probe("run", &[&MLP[..], &["--batch", "16384", "--precision", "fp32", "--limit", "1GiB"]].concat())
        .unwrap();
    let record = ran.ends(0).says("the context takes").record();
    assert_eq!(outcomes(&record)[0].2, "limit");
    assert!(record["peak"]["process"].as_u64().unwrap() <= 1 << 30);

    // A context takes more than this.
    let ran = dry.probe("run", &[&MLP[..], &["--batch", "4", "--limit", "64MiB"]].concat()).unwrap();
    ran.ends(1).says("below what the context alone takes");
    // And weights more than that, at whatever batch.
    let ran =
        dry.probe("run", &["--model", "gpt2-medium", "--seq", "64", "--batch", "8", "--limit", "512MiB"]).unwrap();
    ran.ends(1).says("the limit is too low for the model's weights");
}

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn tokens_are_generated_to_their_number_and_no_further() {
    let ask = [&GPT2[..], &["--mode", "inference", "--max-new-tokens", "8"]].concat();
    let Some(ran) = Dry::on("tokens", &["--stop-after", "8"]).probe("run", &ask) else { return };
    let record = ran.ends(0).record();
    assert_eq!(record["peak"]["allocated"], record["estimate"]["peak"]["allocated"]);
    assert_eq!(record["phases"].as_array().unwrap().iter().filter(|phase| phase["name"] == "decode").count(), 2);
    // The card that answers whether all have ended says no for ever.
    let ran = Dry::on("tokens-on", &["--stop-after", "1000"]).probe("run", &ask).unwrap();
    ran.ends(3).says("goes on after the 8 tokens that were asked for");
    assert!(files(&ran.folder.join("data")).is_empty(), "of a worker that failed at once nothing is kept");
}

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn a_model_is_built_as_its_defaults_say() {
    // DeBERTa has no attention but its own; its kernels are written while it runs.
    let dry = Dry::on("deberta", &[]);
    let Some(ran) = dry.probe("run", &["--model", "deberta-v3-small", "--batch", "1", "--seq", "64"]) else { return };
    let record = ran.ends(0).record();
    assert_eq!(record["peak"]["allocated"], record["estimate"]["peak"]["allocated"], "{}", ran.stdout);
    // What cannot run is known before anything is started.
    let ran = dry.probe("run", &[&GPT2[..], &["--mode", "inference", "--compile", "true"]].concat()).unwrap();
    ran.ends(2).says("training.compile");
    assert!(!ran.stderr.contains("Measuring"), "{}", ran.stderr);
    assert_eq!(files(&ran.folder.join("data")).len(), 1, "nothing is kept of it");
}

/// PyTorch compiles for the card that is not there; the estimate is of the run without, and says where such runs end up.
#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn a_compiled_run_lies_where_the_estimate_says() {
    let dry = Dry::on("compiled", &[]);
    let small = ["--family", "nanogpt", "--set", "n_layer=2", "--batch", "8", "--seq", "512", "--compile", "true"];
    let Some(ran) = dry.probe("run", &small) else { return };
    let record = ran.ends(0).says("the run without torch.compile").record();
    let (measured, estimate) = (&record["peak"], &record["estimate"]);
    assert!(measured["allocated"].as_u64() < estimate["peak"]["allocated"].as_u64(), "{}", ran.stdout);
    let [low, high] = ["process_low", "process_high"].map(|end| estimate["compiled"][end].as_u64().unwrap());
    assert!((low..=high).contains(&measured["process"].as_u64().unwrap()), "{}", ran.stdout);
    let read: Measurement = serde_json::from_value(record.clone()).unwrap();
    assert_eq!(read.point().unwrap().estimated, None, "it is laid beside no other run's estimate");
}

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn an_interrupt_ends_all_and_keeps_what_was_measured() {
    let dry = Dry::on("interrupt", &[]);
    let (out, python) = (dry.folder.join("out"), python());
    let ask = [
        PROGRAM,
        "probe",
        "run",
        "--family",
        "mlp",
        "--batch",
        "4",
        "--steps",
        "100000",
        "--python",
        &python,
        "--out",
        out.to_str().unwrap(),
    ];
    let mut child = dry.command(&ask).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut seen = String::new();
    while !seen.contains("step ") {
        if lines.read_line(&mut seen).unwrap() == 0 || seen.contains("is not built for CUDA") {
            eprintln!("SKIPPED: {}", seen.trim());
            child.wait().unwrap();
            return;
        }
    }
    kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), Signal::INT).unwrap();
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    let status = child.wait().unwrap();
    assert!(status.code() == Some(3) && rest.contains("exit status: 130"), "{status} {rest}");
    let record: Value = serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
    assert_eq!(outcomes(&record), [(4, 1, "interrupted".to_owned())]);
}
