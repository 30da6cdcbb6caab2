//! `probe fit`, `ladder` and `suite`: many runs.

use serde_json::Value;

use super::MLP;
use super::dry::{Dry, files};

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn the_largest_batch_is_found_where_the_estimate_says() {
    // Two steps: a third finds what is free cut into pieces, and runs with a seventh less.
    let dry = Dry::on("fit", &["--memory", "3 GiB"]);
    let Some(ran) =
        dry.probe("fit", &[&MLP[..], &["--precision", "fp32", "--steps", "2", "--format", "json"]].concat())
    else {
        return;
    };
    let fit: Value = serde_json::from_str(&ran.ends(0).stdout).unwrap();
    assert_eq!(fit["largest"], fit["predicted"], "{fit}");
    assert!(fit["trials"].as_array().unwrap().len() <= 4, "{fit}");
    assert!(files(&ran.folder.join("data")).is_empty(), "records lie where they were asked for");
}

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn rungs_and_entries_are_gone_through() {
    let dry = Dry::on("ladder", &[]);
    let args = [&MLP[..], &["--batch", "4096", "--format", "json"]].concat();
    let Some(ran) = dry.probe("ladder", &args) else { return };
    let ladder: Value = serde_json::from_str(&ran.ends(0).stdout).unwrap();
    let rungs = ladder["rungs"].as_array().unwrap();
    let finished = rungs.iter().filter(|rung| rung["figures"]["outcome"] == "finished").count();
    assert!(finished >= 4, "{ladder}");

    let dry = Dry::on("suite", &["--memory", "6 GiB"]);
    let ran = dry.probe("suite", &["--only", "mlp-fp32-adamw", "--format", "json"]).unwrap();
    let suite: Value = serde_json::from_str(&ran.ends(0).stdout).unwrap();
    let row = &suite["entries"][0];
    assert_eq!(row["status"], "measured", "{suite}");
    for figure in ["allocated", "reserved"] {
        assert_eq!(row["figures"]["measured"][figure], row["figures"]["predicted"][figure], "{figure} of {suite}");
    }
    let again = dry.probe("suite", &["--only", "mlp-fp32-adamw", "--format", "json"]).unwrap();
    let suite: Value = serde_json::from_str(&again.ends(0).stdout).unwrap();
    assert_eq!(suite["entries"][0]["status"], "measured before");
    // Of as many steps, that is.
    let more = dry.probe("suite", &["--only", "mlp-fp32-adamw", "--steps", "4", "--format", "json"]).unwrap();
    let suite: Value = serde_json::from_str(&more.ends(0).stdout).unwrap();
    assert_eq!(suite["entries"][0]["status"], "measured");
}
