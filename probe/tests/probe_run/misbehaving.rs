//! A worker that says what it should not, says nothing, or is gone.

use std::time::{Duration, Instant};

use super::stub::Stub;
use super::{attempts, kinds, message};

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
