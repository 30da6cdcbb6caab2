//! Losses, GradScaler, and what is not finite.

use serde_json::{Value, json};

use super::{job, several};

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn the_scaler_reports_its_scale_and_the_steps_it_skipped() {
    let scenario = job::llama(json!({ "batch": 2, "seq": 16 }), json!({ "precision": "fp16-amp" }));
    let report = several::run(&job::job(&scenario), &[job::first_attempt(&scenario, 4), job::finish()]);
    report.finished();
    // GradScaler starts here, halves when it skips, and grows only after 2000 steps.
    let mut before = 65536.0;
    for step in report.all("step") {
        let scale = step["scale"].as_f64().unwrap();
        let skipped = step["skipped"].as_bool().unwrap();
        assert_eq!(scale, if skipped { before / 2.0 } else { before }, "{step}");
        before = scale;
    }
    // Every other precision has none.
    let report = several::train(&job::mlp(json!({ "batch": 4 }), json!({ "precision": "bf16-amp" })));
    assert!(report.all("step").iter().all(|step| step["scale"].is_null() && step["skipped"] == false));
}

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn a_loss_that_is_not_finite_ends_nothing() {
    // Adam's second moment underflows in float16, and with it its epsilon: the first step divides by zero.
    let scenario = job::mlp(json!({ "batch": 4 }), json!({ "precision": "fp16", "optimizer": "adamw" }));
    let commands = [job::first_attempt(&scenario, 3), job::first_attempt(&scenario, 2), job::finish()];
    let report = several::run(&job::job(&scenario), &commands);
    report.finished();
    let losses = report.losses();
    assert!(losses[0].is_some() && losses[1..].iter().all(Option::is_none), "{losses:?}");
    let notes = report.notes();
    assert!(notes[0].contains("the loss of step 2 is not finite"), "{notes:?}");
    assert!(notes.last().unwrap().contains("not one loss of this attempt was finite"), "{notes:?}");
    assert_eq!(notes.len(), 3, "{notes:?}");
}

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn the_loss_is_the_mean_over_all_samples() {
    // Ten classes and random weights: near ln 10 whatever the micro-batches, if each counts by its share.
    let scenario = job::mlp(json!({ "batch": 60 }), json!({ "precision": "fp32", "accumulation": 2 }));
    let attempt = |batch: u64, accumulation: u64| job::attempt(batch, accumulation, 1);
    let commands = [attempt(60, 2), attempt(30, 4), attempt(50, 3), attempt(119, 2), attempt(120, 1), job::finish()];
    let report = several::run(&job::job(&scenario), &commands);
    report.finished();
    assert!(report.all("step").iter().all(|step| step["samples"] == 120));
    for loss in report.losses() {
        assert!((loss.unwrap() - 10_f64.ln()).abs() < 0.15, "{loss:?}");
    }
    let micro_batches = |attempt: usize| {
        let inputs = |p: &&&Value| p["name"] == "input" && p["attempt"] == attempt;
        report.all("phase").iter().filter(inputs).count()
    };
    assert_eq!([0, 1, 2, 3, 4].map(micro_batches), [2, 4, 3, 2, 1]);
}
