//! What a person sees of a run.

use super::stub::{self, Stub};

#[test]
fn peaks_of_a_card_stand_beside_the_prediction() {
    let ran = Stub::new("fine").device("cuda").text();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for part in [
        "mlp on NVIDIA Stub 12GB",
        "MEASURED   3 steps of micro-batch 8, accumulated 2 times",
        "measured     predicted               difference",
        "allocated      76.0 MiB",
        "Allocated by phase",
        "step 1                       steady step",
        "Where the difference comes from",
        "tensors",
        "from load, step 1",
        "This card is not in the catalog",
        "Throughput    8,000 samples/s",
    ] {
        assert!(ran.stdout.contains(part), "no {part:?} in {}", ran.stdout);
    }
    assert!(ran.stdout.lines().all(|line| line.chars().count() <= 80), "{}", ran.stdout);
    assert!(!ran.stdout.contains('\u{1b}'));
}

#[test]
fn a_terminal_sees_it_live() {
    let screen = stub::on_a_terminal(&Stub::new("slow").with(&["--limit", "200MiB", "--steps", "20"]));
    for part in [" of 20, forward 2", "micro-batch 8 x 2", " left", "MEASURED"] {
        assert!(screen.contains(part), "no {part:?} in {screen}");
    }
    assert!(screen.contains("\u{1b}["), "it moves the cursor");
    // The memory bar: the stand-in's own memory against the limit, with the load line.
    assert!(screen.contains(" of 200.0 MiB") && screen.contains("|...]"), "{screen}");
}
