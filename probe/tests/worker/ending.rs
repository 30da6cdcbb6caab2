//! How a worker ends, and that nothing that is printed gets between its events.

use std::time::Duration;

use serde_json::json;

use super::{job, process};

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn it_ends_at_once_when_nobody_listens_any_more() {
    // A step of many seconds.
    let model = json!({ "family": "mlp", "d_in": 2048, "hidden": 4096, "layers": 8 });
    let scenario = job::parts(model, json!({ "batch": 16384 }), json!({ "precision": "fp32", "optimizer": "sgd" }));
    let mut worker = process::Worker::start(None, &json!(job::job(&scenario)).to_string());
    worker.send(&job::first_attempt(&scenario, 1).to_string());
    worker.wait_for("phase", |phase| phase["name"] == "input");
    // It is in the midst of the forward now.
    std::thread::sleep(Duration::from_millis(300));
    let (time, code) = worker.hang_up();
    assert_eq!(code, Some(0));
    assert!(time < Duration::from_secs(2), "it took {time:?}");

    let worker = process::Worker::start(None, &json!(job::job(&scenario)).to_string());
    // While it imports.
    std::thread::sleep(Duration::from_millis(500));
    let (time, code) = worker.hang_up();
    assert_eq!(code, Some(0));
    assert!(time < Duration::from_secs(2), "it took {time:?}");
}

/// Once the worker has set its standard output aside: prints from Python, from below Python, and from a child.
const NOISY: &str = r#"
import os, sys, threading

dup2 = os.dup2

def noise():
    while True:
        print("{\"event\":\"bye\",\"at\":0}")
        print("no JSON at all", end="")
        os.write(1, b"\x00\xff from below\n")
        os.system("echo from a child; sleep 0.05")

def loud(*args, **kwargs):
    done = dup2(*args, **kwargs)
    if args[:2] == (2, 1):
        threading.Thread(target=noise, daemon=True).start()
    return done

os.dup2 = loud
"#;

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn stray_prints_do_not_get_between_events() {
    let modules = process::directory("noisy", &[("sitecustomize.py", NOISY)]);
    let scenario = job::mlp(json!({ "batch": 4 }), json!({}));
    let mut worker = process::Worker::start(Some(&modules), &json!(job::job(&scenario)).to_string());
    worker.send(&job::first_attempt(&scenario, 5).to_string());
    worker.send(&job::finish().to_string());
    let report = worker.report();
    report.finished();
    assert_eq!(report.all("step").len(), 5);
    for stray in ["no JSON at all", "from below", "from a child"] {
        assert!(report.stderr.contains(stray), "no {stray:?} in {}", report.stderr);
    }
}
