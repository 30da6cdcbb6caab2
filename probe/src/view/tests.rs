//! What a person sees: in 80 columns, with rows that sum, with and without colour.

use plimsoll_core::Bytes;
use plimsoll_core::estimate::Verdict;
use plimsoll_core::summary::parts;

use super::{Paint, Report, report, sample};

type Sample = (plimsoll_core::Scenario, plimsoll_core::Estimate, Vec<plimsoll_core::estimate::Holding>);

fn written(sample: &Sample, colour: bool) -> String {
    let (scenario, estimate, holdings) = sample;
    report(&Report { scenario, estimate, holdings, explanation: None }, Paint::with_colour(colour))
}

/// Text as it stands on a screen: escape sequences take no room.
fn visible(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[test]
fn looks_like_this() {
    assert_eq!(written(&sample::too_deep(), false), include_str!("too_deep.txt"));
}

#[test]
fn eighty_columns_with_and_without_colour() {
    for sample in [sample::too_deep(), sample::fitting()] {
        for colour in [true, false] {
            let text = visible(&written(&sample, colour));
            for line in text.lines() {
                assert!(line.chars().count() <= 80, "{line:?}");
            }
        }
    }
}

#[test]
fn without_colour_it_is_plain_ascii() {
    for sample in [sample::too_deep(), sample::fitting()] {
        assert!(written(&sample, false).bytes().all(|b| b == b'\n' || (b' '..=b'~').contains(&b)));
        assert!(written(&sample, true).contains('\u{1b}'));
    }
}

#[test]
fn the_table_sums_to_the_peak_as_printed() {
    for (_, estimate, _) in [sample::too_deep(), sample::fitting()] {
        let total: Bytes = parts(&estimate).iter().map(|part| part.bytes).sum();
        assert_eq!(total, estimate.peak.process);
        let table = super::breakdown::breakdown(&estimate, &parts(&estimate), &[], Paint::with_colour(false));
        let hundredths = |line: &str| -> Option<u64> {
            let mut words = line.split_whitespace().rev().skip_while(|word| *word != "GiB").skip(1);
            words.next()?.replace('.', "").parse().ok()
        };
        let rows: Vec<&str> = table.lines().filter(|line| line.ends_with(" %")).collect();
        let (last, shares) = rows.split_last().unwrap();
        assert!(shares.len() > 5, "{table}");
        assert_eq!(shares.iter().filter_map(|row| hundredths(row)).sum::<u64>(), hundredths(last).unwrap(), "{table}");
    }
}

#[test]
fn verdicts_in_words() {
    let (scenario, mut estimate, holdings) = sample::fitting();
    assert!(
        written(&(scenario.clone(), estimate.clone(), holdings.clone()), false)
            .contains("FITS   peak 25.35 GiB, load line 74.00 GiB: 48.65 GiB to spare")
    );
    estimate.verdict = Verdict::Tight;
    estimate.headroom = -(1 << 29);
    let text = written(&(scenario, estimate, holdings), false);
    assert!(text.contains("TIGHT") && text.contains("over by 512.0 MiB, but it runs"), "{text}");
}

#[test]
fn an_estimate_of_nothing_does_not_break_it() {
    let (scenario, mut estimate, _) = sample::fitting();
    estimate.at_peak = Default::default();
    for bytes in [&mut estimate.peak.allocated, &mut estimate.peak.requested] {
        *bytes = Bytes::ZERO;
    }
    estimate.peak.reserved = Bytes::ZERO;
    estimate.peak.process = Bytes::ZERO;
    estimate.device.capacity = Bytes::ZERO;
    estimate.device.load_line = Bytes::ZERO;
    estimate.phases.clear();
    estimate.max_batch = None;
    let text = written(&(scenario, estimate, vec![]), false);
    assert!(text.contains("0.00 KiB"), "{text}");
}

#[test]
fn sizes_past_everything_do_not_break_it() {
    let (scenario, mut estimate, holdings) = sample::too_deep();
    estimate.at_peak.weights = Bytes::new(1 << 62);
    estimate.peak.process = estimate.at_peak.total() + Bytes::from_gib(1);
    estimate.headroom = i64::MIN;
    estimate.max_batch = Some(u64::MAX);
    estimate.parameters.total = u64::MAX;
    let text = written(&(scenario, estimate, holdings), false);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}
