//! Memory that runs out.

use super::stub::Stub;
use super::{attempts, kinds, message};

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
