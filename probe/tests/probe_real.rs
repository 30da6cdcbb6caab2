//! `plimsoll probe run` with the real worker and real PyTorch, on the CPU.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "the helpers of a test may fail it as its own lines may")]

#[path = "stub/mod.rs"]
#[allow(dead_code, reason = "the others ask for more of it")]
mod stub;

use std::time::Duration;

use serde_json::json;
use stub::Stub;

#[test]
#[ignore = "needs Python with PyTorch: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn the_real_worker_runs_the_loop() {
    let (pids, ran) = Stub::real().with(&["--format", "json"]).start().end();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let record = ran.record.unwrap();
    let attempt = &record["attempts"][0];
    assert_eq!(
        (&attempt["batch"], &attempt["outcome"], &attempt["steps"]),
        (&json!(64), &json!("finished"), &json!(3))
    );
    assert!(record["peak"]["process"].as_u64().unwrap() > 100 << 20, "PyTorch alone is more");
    let problems = serde_json::from_value::<plimsoll_core::Measurement>(record).unwrap().validate();
    assert!(problems.is_empty(), "{problems:?}");
    stub::assert_gone(&pids, "finished");
}

#[test]
#[ignore = "needs Python with PyTorch: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn no_real_worker_is_left_behind() {
    let mut running = Stub::real().with(&["--steps", "100000"]).start();
    running.wait_for_step();
    running.signal(rustix::process::Signal::INT);
    let (pids, ran) = running.end();
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    assert_eq!(ran.record.unwrap()["attempts"][0]["outcome"], "interrupted");
    stub::assert_gone(&pids, "interrupted");

    for moment in [200, 1500, 4000] {
        let running = Stub::real().with(&["--steps", "100000"]).start();
        std::thread::sleep(Duration::from_millis(moment));
        running.signal(rustix::process::Signal::KILL);
        stub::assert_gone(&running.end().0, &format!("killed after {moment} ms"));
    }
    let mut running = Stub::real().with(&["--steps", "100000"]).start();
    running.wait_for_step();
    running.signal(rustix::process::Signal::KILL);
    stub::assert_gone(&running.end().0, "killed within the loop");
}
