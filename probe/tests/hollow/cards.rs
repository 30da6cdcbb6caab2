//! Which card is taken, and who shares it.

use std::fs;

use serde_json::Value;

use super::MLP;
use super::dry::{Dry, PROGRAM, python};

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn the_card_that_is_meant_is_taken() {
    let small = [&MLP[..], &["--batch", "4"]].concat();
    let dry = Dry::on("index", &["--cards", "2"]);
    let Some(ran) = dry.probe("run", &[&small[..], &["--index", "5"]].concat()) else { return };
    ran.ends(3).says("there is no card 5: 2 can be seen");
    assert!(!ran.stderr.contains("Measuring"), "it is known before anything is started: {}", ran.stderr);
    for what in ["fit", "suite"] {
        let more = if what == "fit" { &small[..2] } else { &["--only", "mlp"] };
        dry.probe(what, &[more, &["--index", "5"]].concat()).unwrap().ends(3).says("there is no card 5");
    }
    // What the driver says of a process is told of a peak that stood between two readings: three steps whose kernels do nothing may not.
    let long = [&small[..], &["--steps", "300"]].concat();
    let ran = dry.probe("run", &[&long[..], &["--index", "1"]].concat()).unwrap();
    assert_eq!(ran.ends(0).record()["peak"]["process_source"], "nvml_process");
    let ran = Dry::on("visible", &["--cards", "2"]).with("CUDA_VISIBLE_DEVICES", "1").probe("run", &long).unwrap();
    assert_eq!(ran.ends(0).record()["peak"]["process_source"], "nvml_process");
    // Nothing is visible, and nobody asked for a card.
    let ran = Dry::on("hidden", &[]).with("CUDA_VISIBLE_DEVICES", "").probe("run", &small).unwrap();
    let record = ran.ends(0).says("measured on the processor: PyTorch").record();
    assert_eq!((&record["device"]["kind"], &record["device"]["hollow"]), (&"cpu".into(), &Value::Null));
}

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn a_card_that_only_pytorch_sees_is_used() {
    // As in containers that are given the driver and not what tells of cards.
    let script = format!(
        "rm \"${{LD_LIBRARY_PATH%%:*}}/libnvidia-ml.so.1\"; exec '{PROGRAM}' probe run --family mlp --batch 4 --python '{}' \
         --out \"$PLIMSOLL_DATA.json\"",
        python()
    );
    let dry = Dry::on("blind", &[]);
    let Some(ran) = dry.run(&["sh", "-c", &script]) else { return };
    ran.ends(0).says("only what PyTorch itself counts is measured").says("libnvidia-ml.so.1");
    let text = fs::read_to_string(dry.folder.join("data.json")).unwrap();
    let record: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(record["device"]["kind"], "cuda");
    assert!(record["peak"]["reserved"].as_u64().is_some_and(|reserved| reserved > 0));
}

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn processes_share_the_card_and_watch_sees_them() {
    let dry = Dry::on("shared", &["--memory", "4 GiB"]);
    let hold = "import subprocess, sys, torch\nx = torch.empty(3 << 30, dtype=torch.uint8, device='cuda')\n\
        sys.exit(subprocess.run(sys.argv[1:]).returncode)";
    let python = python();
    let held = [&*python, "-c", hold];
    let Some(ran) = dry.run(&[&held[..], &[PROGRAM, "watch", "--once", "--format", "json"]].concat()) else { return };
    let seen: Value = serde_json::from_str(&ran.ends(0).stdout).unwrap();
    let bytes = seen["cards"][0]["processes"][0]["memory"].as_u64().unwrap_or_else(|| panic!("{seen}"));
    assert!(bytes > 3 << 30 && bytes < 4 << 30, "{seen}");
    // Another process gets what is left, and no more.
    let take = "import torch\nx = torch.empty(2 << 30, dtype=torch.uint8, device='cuda')";
    let ran = dry.run(&[&held[..], &[&python, "-c", take]].concat()).unwrap();
    ran.says("OutOfMemoryError").says("total capacity of 4.00 GiB");
    // A measurement on a card that is taken is refused.
    let probe = [PROGRAM, "probe", "run", "--family", "mlp", "--batch", "4", "--python", &python];
    let ran = dry.run(&[&held[..], &probe].concat()).unwrap();
    ran.says("--busy warn").says("others hold 3.1");
}
