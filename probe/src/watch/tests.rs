//! What a person sees: on wide and narrow screens, with and without colour.

use std::time::Duration;

use plimsoll_core::Bytes;

use super::frame::{Screen, frame};
use super::history::History;
use super::{Watched, line, parse_interval, parse_line, share};
use crate::cards::scripted::{Script, Scripted, cards};
use crate::cards::{Card, Cards, Load, ProcessUse, Reader, Reading, Roots};
use crate::view::Paint;

const MIB: u64 = 1 << 20;

fn gib(n: f64) -> Bytes {
    Bytes::new((n * f64::from(1u32 << 30)) as u64)
}

/// The card of this project's examples.
pub fn rtx() -> Card {
    Card {
        name: "NVIDIA GeForce RTX 5070 Ti Laptop GPU".to_owned(),
        gpu: Some("rtx-5070-ti-laptop"),
        uuid: Some("GPU-b1c5e1c2-d8a0-4d0d-b6ca-0e3a2f1b4c5d".to_owned()),
        pci: Some("00000000:01:00.0".to_owned()),
        total: Bytes::new(12_227 * MIB),
        reserved: Some(Bytes::new(269 * MIB)),
        driver: Some("575.51.03".to_owned()),
        capability: Some("12.0".to_owned()),
        ..Card::default()
    }
}

fn process(pid: u32, name: Option<&str>, memory: Option<Bytes>) -> ProcessUse {
    ProcessUse { pid, name: name.map(str::to_owned), memory }
}

fn reading(used: f64) -> Reading {
    Reading {
        used: Some(gib(used)),
        reserved: None,
        load: Load { utilization: Some(97), power: Some(92_000), power_limit: Some(115_000), temperature: Some(71) },
        processes: vec![
            process(12_345, Some("python3 train.py"), Some(gib(used - 0.5))),
            process(1_200, Some("Xorg"), Some(Bytes::new(312 * MIB))),
        ],
    }
}

/// `card` with so many GiB in use, read once.
pub fn watched(card: Card, used: f64) -> Watched {
    with_past(card, &[used])
}

/// `card` with so many GiB in use at one reading after another.
fn with_past(card: Card, past: &[f64]) -> Watched {
    let mut history = History::default();
    let mut last = Reading::default();
    for (number, used) in past.iter().enumerate() {
        last = reading(*used);
        last.load.utilization = u8::try_from(97 - number * 7 % 60).ok();
        history.add(&last);
    }
    if past.len() == 1 {
        last.load.utilization = Some(97);
    }
    Watched { line: line(&card, None), card, reading: last, history }
}

/// A run that climbs, goes below the line for a moment and settles.
fn climbing() -> Watched {
    let climb = (0..30).map(|n| 0.6 + 0.3 * f64::from(n));
    let past: Vec<f64> = climb.chain([11.2, 11.4, 10.7]).chain([9.42; 9]).collect();
    with_past(rtx(), &past)
}

fn screen(columns: usize, colour: bool) -> Screen {
    Screen { columns, rows: None, paint: Paint::with_colour(colour), every: None }
}

fn moving(columns: usize, rows: usize, colour: bool) -> Screen {
    Screen { rows: Some(rows), every: Some(Duration::from_millis(500)), ..screen(columns, colour) }
}

/// Text as it stands on a screen: escape sequences take no room.
fn visible(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

fn samples() -> Vec<Watched> {
    let mut unreadable = watched(rtx(), 3.0);
    unreadable.reading = Reading::default();
    let mut crowded = watched(rtx(), 11.0);
    crowded.reading.processes = (0..12).map(|n| process(n, None, None)).collect();
    let mut odd = watched(rtx(), 1.0);
    odd.card.name = "\u{201e}K\u{e4}rtchen\u{201c} ".repeat(20);
    odd.card.driver = Some("9".repeat(50));
    vec![
        watched(rtx(), 9.42),
        watched(rtx(), 10.6),
        watched(rtx(), 11.5),
        climbing(),
        unreadable,
        crowded,
        odd,
        with_past(Card::default(), &[0.0, 5.0, 1e12]),
    ]
}

#[test]
fn once_it_looks_like_this() {
    assert_eq!(frame(&[watched(rtx(), 9.42)], &screen(80, false)), include_str!("once.txt"));
    assert_eq!(frame(&[watched(rtx(), 11.5)], &screen(40, false)), include_str!("narrow.txt"));
}

#[test]
fn moving_it_looks_like_this() {
    assert_eq!(visible(&frame(&[climbing()], &moving(80, 30, true))), include_str!("moving.txt"));
    assert_eq!(frame(&[climbing()], &moving(40, 24, false)), include_str!("moving_narrow.txt"));
}

#[test]
fn no_line_is_wider_than_the_screen() {
    for columns in 40..140 {
        for colour in [true, false] {
            for sample in samples() {
                for screen in [screen(columns, colour), moving(columns, 40, colour)] {
                    let text = visible(&frame(std::slice::from_ref(&sample), &screen));
                    for line in text.lines() {
                        assert!(line.chars().count() <= columns, "{columns}: {line:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn no_frame_is_higher_than_the_screen() {
    for rows in 1..60 {
        let text = frame(&samples(), &moving(80, rows, true));
        assert!(text.lines().count() <= rows);
        let one = frame(&[climbing()], &moving(80, rows, false));
        assert!(one.lines().count() <= rows);
        // What matters most is the last to go.
        assert!(rows < 10 || one.contains("9.42 GiB of 11.68 GiB"), "{rows}: {one}");
    }
}

#[test]
fn without_colour_it_is_plain_ascii() {
    for sample in [watched(rtx(), 9.42), climbing()] {
        for screen in [screen(80, false), moving(80, 40, false)] {
            let text = frame(std::slice::from_ref(&sample), &screen);
            assert!(text.bytes().all(|b| b == b'\n' || (b' '..=b'~').contains(&b)), "{text}");
        }
    }
    assert!(frame(&[climbing()], &moving(80, 40, true)).contains('\u{2296}'));
}

#[test]
fn red_is_for_below_the_line() {
    let red = "\u{1b}[31m";
    for (used, below) in [(0.5, false), (10.9, false), (11.0, false), (11.1, true), (11.6, true)] {
        let text = frame(&[watched(rtx(), used)], &screen(80, true));
        assert_eq!(text.contains(red), below, "{used}: {text:?}");
        assert_eq!(visible(&text).contains("over by"), below, "{used}");
    }
    // The moment below the line stays in the history.
    assert!(frame(&[climbing()], &moving(80, 30, true)).contains(red));
}

#[test]
fn it_warns_from_nine_tenths_on() {
    // 10.510 GiB are nine tenths of 11.678 GiB.
    for (used, warned) in [(10.5, false), (10.52, true), (11.5, true)] {
        let text = frame(&[watched(rtx(), used)], &screen(80, false));
        assert_eq!(text.contains("warning: 9"), warned, "{text}");
    }
    // Below the line of one's own, but not near the end of the card.
    let mut own = watched(rtx(), 6.0);
    own.line = gib(5.0);
    let text = frame(&[own], &screen(80, false));
    assert!(text.contains("over by 1.00 GiB") && !text.contains("warning"), "{text}");
}

#[test]
fn a_warning_moves_nothing_below_it() {
    let height = |used| frame(&[with_past(rtx(), &[1.0, 11.0, used])], &moving(80, 30, false)).lines().count();
    assert_eq!(height(3.0), height(10.9));
}

#[test]
fn several_cards_and_many_processes() {
    let mut second = climbing();
    second.card.index = 1;
    let text = frame(&[climbing(), second], &moving(80, 24, false));
    assert!(text.contains("card 0") && text.contains("card 1"), "{text}");
    let mut crowded = watched(rtx(), 9.0);
    crowded.reading.processes = (1..=11).map(|pid| process(pid, None, None)).collect();
    let text = frame(&[crowded], &screen(80, false));
    assert!(text.contains("and 4 more") && text.contains("hidden"), "{text}");
}

#[test]
fn lines_of_cards() {
    assert_eq!(line(&rtx(), None), Bytes::from_gib(11));
    assert_eq!(line(&rtx(), Some(Bytes::from_gib(9))), Bytes::from_gib(9));
    // Nobody can load a card deeper than it is.
    assert_eq!(line(&rtx(), Some(Bytes::from_gib(90))), rtx().capacity());
    let unknown = Card { total: Bytes::new(1000), gpu: None, ..Card::default() };
    assert_eq!(line(&unknown, None), Bytes::new(920));
    assert_eq!(line(&Card { total: Bytes::new(u64::MAX), ..unknown }, None).get() / (1 << 60), 14);
    assert_eq!((share(Bytes::new(999), Bytes::new(1000)), share(Bytes::new(1), Bytes::ZERO)), (99, 100));
}

#[test]
fn what_can_be_asked() {
    for (text, millis) in [("1", 1000), ("0.5", 500), ("250ms", 250), ("2s", 2000), (" 50 ms", 50)] {
        assert_eq!(parse_interval(text), Ok(Duration::from_millis(millis)), "{text}");
    }
    for text in ["", "0", "-1", "0.01", "NaN", "inf", "1e9", "a", "1m"] {
        assert!(parse_interval(text).unwrap_err().contains("like 0.5"), "{text}");
    }
    assert_eq!(parse_line("11 GiB"), Ok(Bytes::from_gib(11)));
    for text in ["", "0", "eleven", "-1 GiB"] {
        assert!(parse_line(text).is_err(), "{text}");
    }
}

#[test]
fn the_answer_for_programs_has_no_identity() {
    let answer = super::json::answer(&[watched(rtx(), 9.42)], None);
    let text = answer.to_string();
    for secret in ["b1c5e1c2", "01:00.0", "uuid", "pci"] {
        assert!(!text.contains(secret), "{text}");
    }
    assert_eq!(answer["cards"][0]["gpu"], "rtx-5070-ti-laptop");
    assert_eq!(answer["cards"][0]["load_line"], 11u64 << 30);
    assert_eq!(answer["cards"][0]["processes"][0]["name"], "python3 train.py");
}

/// From the source to the screen, as the program does it.
#[test]
fn a_card_that_changes_while_it_is_watched() {
    let card = Scripted::new(Reader::Nvml, Script { used: Some(gib(1.0)), ..Script::default() });
    let list: Cards = cards(vec![(rtx(), card.clone())], Roots::from_env());
    assert_eq!(list.list()[0].gpu, Some("rtx-5070-ti-laptop"));
    assert_eq!(list.find(None, Some("0000:01:00.0")).map(|card| card.index), Some(0));
    assert_eq!(list.find(Some("b1c5e1c2-d8a0-4d0d-b6ca-0e3a2f1b4c5d"), None).map(|card| card.index), Some(0));
    assert_eq!(list.find(Some("00000000-0000-0000-0000-000000000000"), Some("0000:02:00.0")), None);
    assert_eq!(list.find(None, None), None);
    assert_eq!(list.read(1), None);

    let watched = list.list().iter().map(|card| Watched {
        line: line(card, None),
        card: card.clone(),
        reading: list.read(card.index).unwrap(),
        history: History::default(),
    });
    let watched = watched.collect();
    let mut watch = super::Watch { cards: list, watched };
    card.set(|script| script.used = Some(gib(11.3)));
    watch.glance();
    card.set(|script| script.used = Some(gib(2.0)));
    card.set(|script| script.processes = vec![process(7, None, Some(gib(1.5))), process(8, None, Some(gib(1.75)))]);
    watch.read();
    let text = frame(&watch.watched, &screen(80, false));
    assert!(text.contains("2.00 GiB of 11.68 GiB") && text.contains("peak 11.30 GiB"), "{text}");
    let rows: Vec<&str> = text.lines().filter(|line| line.contains(" GiB   ?") || line.contains("5 GiB")).collect();
    assert!(rows.first().is_some_and(|row| row.contains("1.75 GiB")), "the largest first: {text}");
    card.set(|script| script.used = None);
    watch.read();
    assert!(frame(&watch.watched, &screen(80, false)).contains("cannot be read now"));
}
