//! `probe contact`: a card, its twin and the estimate.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::dry::{Dry, PROGRAM, Ran, files, python};

/// What `probe contact` left.
fn contact(ran: &Ran) -> Value {
    let text =
        fs::read_to_string(ran.folder.join("out/contact.json")).unwrap_or_else(|e| panic!("{e}: {}", ran.stderr));
    serde_json::from_str(&text).unwrap()
}

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn a_card_its_twin_and_the_estimate_are_laid_side_by_side() {
    // The outer rehearsal's card stands in for a real one. Checkpointing ends by an exception what it computes again.
    let dry = Dry::on("contact", &["--context", "321MiB"]);
    let entries = ["--only", "mlp-fp32-adamw", "--only", "gpt2-bf16-amp-checkpointing"];
    let Some(ran) = dry.probe("contact", &entries) else { return };
    ran.ends(0).says("This card is not there either").says("Of 2 entries 2 agree, 0 differ");
    ran.says("on the card and its twin the same in order").says("the twin's and the estimate's the same in order");
    let told = contact(&ran);
    assert_eq!((&told["hollow"], &told["device"]["hollow"]), (&true.into(), &true.into()));
    assert_eq!(told["card"]["found"]["multiprocessors"], told["card"]["catalog"]["multiprocessors"]);
    let steps = told["libraries"]["steps"].as_array().unwrap();
    assert!(
        steps.len() == 8 && steps.iter().all(|step| step["beside"] == 321 << 20 && step["error"].is_null()),
        "{steps:?}"
    );
    for entry in told["entries"].as_array().unwrap() {
        let result = &entry["result"];
        assert_eq!((&result["twin_agrees"], &result["estimate_agrees"]), (&true.into(), &true.into()), "{entry}");
        assert!(result["tensors"]["one"].as_u64().unwrap() > 200);
        // The twin was told what the context takes.
        assert_eq!(result["process"]["card"], result["process"]["twin"]);
        let folder = ran.folder.join("out").join(entry["name"].as_str().unwrap());
        let card: Value = serde_json::from_str(&fs::read_to_string(folder.join("card.json")).unwrap()).unwrap();
        assert_eq!(card["device"]["hollow"], true, "it can never be taken for a measurement");
        let inspected = Command::new(PROGRAM).arg("inspect").arg(folder.join("card.pickle.gz")).output().unwrap();
        assert!(inspected.status.success() && String::from_utf8_lossy(&inspected.stdout).contains("Highest point"));
    }
    assert!(files(&ran.folder.join("data")).is_empty(), "everything is in the one folder");
    // What was measured once is not written over.
    dry.probe("contact", &entries[..2]).unwrap().ends(3).says("holds what was measured before");
}

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn a_card_that_is_another_than_its_twin_is_found_out() {
    // On more multiprocessors a row's sum is staged otherwise.
    let dry = Dry::on("contact-other", &[]);
    let ask = ["--only", "mlp-fp16-amp-sgd-momentum", "--twin=--sms=4", "--format", "json"];
    let Some(ran) = dry.probe("contact", &ask) else { return };
    let told: Value = serde_json::from_str(&ran.ends(1).stdout).unwrap();
    assert_eq!(told, contact(&ran));
    let result = &told["entries"][0]["result"];
    assert_eq!((&result["twin_agrees"], &result["estimate_agrees"]), (&false.into(), &true.into()), "{result}");
    let parting = &result["tensors"];
    let bytes = |side: &str| parting[side]["bytes"].as_u64().unwrap();
    assert!(parting["equal"].as_u64().unwrap() > 10 && bytes("first_of_one") != bytes("first_of_other"), "{parting}");

    // A card that says of a padded mask that it hides nothing is no real one.
    let dry = Dry::on("contact-mask", &["--truth", "true"]);
    let ran = dry.probe("contact", &["--only", "forward-bert-bf16-amp-padded"]).unwrap();
    ran.ends(1).says("Of 1 entries 0 agree, 1 differ").says("Allocations: ");
    assert_eq!(contact(&ran)["entries"][0]["result"]["twin_agrees"], false);
}

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn a_card_that_places_segments_otherwise_is_told_from_one_that_asks_for_something_else() {
    let dry = Dry::on("contact-falls", &["--addresses", "falling", "--truth", "false"]);
    let Some(ran) = dry.probe("contact", &["--only", "bert-bf16-amp-padded"]) else { return };
    ran.ends(1)
        .says("bert-bf16-amp-padded: asks for the same, and LIES ELSEWHERE")
        .says("forward-bert-bf16-amp-padded: asks for the same, and LIES ELSEWHERE")
        .says("Of 2 entries 0 agree, 0 differ, 2 ask for the same and lie elsewhere");
    let told = contact(&ran);
    let result = &told["entries"][0]["result"];
    assert_eq!((&result["twin_agrees"], &result["asks_alike"]), (&false.into(), &true.into()), "{result}");
    assert_eq!(told["summary"]["lie_elsewhere"], 2);
}

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn an_entry_that_fails_is_passed_by_and_an_interrupt_keeps_what_was_measured() {
    // Of 64 tokens the card lets one be made.
    let dry = Dry::on("contact-fails", &[]);
    let Some(ran) = dry.probe("contact", &["--only", "generate-gpt2", "--only", "gat-fp32"]) else { return };
    ran.ends(1).says("Of 2 entries 1 agree, 0 differ, 1 failed").says("made 1 of 64 tokens");

    let dry = Dry::on("contact-stopped", &[]);
    let (out, python) = (dry.folder.join("out"), python());
    let ask = [PROGRAM, "probe", "contact", "--only", "mlp", "--python", &python, "--out", out.to_str().unwrap()];
    let mut child = dry.command(&ask).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut seen = String::new();
    while !seen.contains("2 of 2: mlp") {
        assert!(lines.read_line(&mut seen).unwrap() > 0, "{seen}");
    }
    kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), Signal::INT).unwrap();
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    let status = child.wait().unwrap();
    assert!(status.code() == Some(3) && rest.contains("exit status: 130"), "{status} {rest}");
    let told: Value = serde_json::from_str(&fs::read_to_string(out.join("contact.json")).unwrap()).unwrap();
    let ends: Vec<&str> = told["entries"].as_array().unwrap().iter().map(|e| e["status"].as_str().unwrap()).collect();
    assert_eq!(ends, ["met", "not_reached"], "{told}");

    // Nothing is visible: there is nothing to measure.
    let ran = Dry::on("contact-none", &[]).with("CUDA_VISIBLE_DEVICES", "").probe("contact", &[]).unwrap();
    ran.ends(3).says("PyTorch sees no card of NVIDIA's here").says("run it where the card is");
    assert!(!ran.folder.join("out").exists());
}
