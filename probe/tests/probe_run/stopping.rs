//! A run that is stopped: what was measured is kept, and nobody is left behind.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::stub::{self, Stub};
use super::{attempts, kinds};

#[test]
fn ctrl_c_keeps_what_was_measured() {
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
    running.signal(Signal::HUP);
    running.go();
    let (_, ran) = running.end();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let mut running = Stub::new("slow@1").ignoring("SIGHUP").start();
    running.wait_for_step();
    running.signal(Signal::INT);
    let (pids, ran) = running.end();
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    assert_eq!(kinds(&ran.record.unwrap()), ["interrupted"]);
    stub::assert_gone(&pids, "stopped");
}

#[test]
fn ctrl_c_twice_leaves_at_once_and_leaves_nobody() {
    let mut running = Stub::new("child@1").start();
    running.wait_for_step();
    running.signal(Signal::INT);
    running.signal(Signal::INT);
    let (pids, ran) = running.end();
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    assert_eq!(pids.len(), 2, "the worker and its child");
    stub::assert_gone(&pids, "stopped twice");
}

#[test]
fn what_the_worker_started_ends_with_it() {
    let mut running = Stub::new("child@1").start();
    running.wait_for_step();
    running.signal(Signal::INT);
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
        running.signal(Signal::KILL);
        let out = running.out().to_owned();
        let (pids, _) = running.end();
        stub::assert_gone(&pids, &format!("round {round}"));
        if let Ok(text) = fs::read_to_string(&out) {
            let record: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("round {round}: {e}: {text}"));
            assert_eq!(attempts(&record), [(8, 2, "finished", 8)], "round {round}");
        }
    }
}
