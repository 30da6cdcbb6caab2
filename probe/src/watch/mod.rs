//! `plimsoll watch`: the cards of this machine, how deep they sit and who is on them.

mod bar;
mod chart;
mod csv;
mod frame;
mod history;
mod json;
mod live;
mod panel;
mod table;
mod terminal;

#[cfg(test)]
mod tests;

use std::io::{IsTerminal, Write as _};
use std::time::Duration;

use plimsoll_core::scenario::parse_memory;
use plimsoll_core::{Bytes, Error, catalog, device};

use crate::cards::{self, Card, Cards, Reading};
use crate::estimate::Format;
use crate::exit::{self, Failure};
use crate::view::Paint;

use frame::Screen;
use history::History;

/// Watch the memory of this machine's cards
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only the card with this number [default: all]
    #[arg(long, value_name = "INDEX")]
    gpu: Option<u32>,

    /// The load line: "11 GiB" [default: the one `plimsoll estimate` draws for the card, or 92 % of what it has]
    #[arg(long, value_name = "SIZE", value_parser = parse_line)]
    load_line: Option<Bytes>,

    /// Time between two readings: 1, 0.5, 250ms
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_interval)]
    interval: Duration,

    /// Print how it is now and end
    #[arg(long)]
    once: bool,

    /// How to answer; json takes --once
    #[arg(long, value_enum, default_value_t = Format::Text, value_name = "FORMAT", conflicts_with = "csv")]
    format: Format,

    /// Print a line a card and reading, as comma-separated values, until Ctrl-C
    #[arg(long, conflicts_with = "once")]
    csv: bool,

    /// End after this many readings
    #[arg(long, value_name = "N", requires = "csv", value_parser = clap::value_parser!(u64).range(1..))]
    samples: Option<u64>,
}

/// One card that is watched.
struct Watched {
    card: Card,
    line: Bytes,
    reading: Reading,
    history: History,
}

/// The cards that are watched.
struct Watch {
    cards: Cards,
    watched: Vec<Watched>,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<u8, Failure> {
    let cards = cards::open();
    if args.format == Format::Json {
        if !args.once {
            return Err(wrong(
                "--format",
                "json is one answer",
                "add --once, or take --csv for one reading after another",
            ));
        }
        let note = cards.note().map(str::to_owned);
        let watch = Watch::new(cards, args)?;
        writeln!(anstream::stdout().lock(), "{}", json::answer(&watch.watched, note.as_deref()))?;
        return Ok(exit::OK);
    }
    if let Some(note) = cards.note() {
        // The note says itself what to do.
        return Err(Failure::Environment { problem: note.to_owned(), hint: String::new() });
    }
    let watch = Watch::new(cards, args)?;
    if args.csv {
        return csv::record(watch, args.interval, args.samples);
    }
    if args.once {
        let screen = Screen { columns: crate::view::columns(), rows: None, paint: Paint::for_stdout(), every: None };
        let text = frame::frame(&watch.watched, &screen);
        anstream::stdout().lock().write_all(text.as_bytes())?;
        return Ok(exit::OK);
    }
    if !std::io::stdout().is_terminal() {
        return Err(wrong(
            "watch",
            "standard output is no terminal, and the view moves",
            "take --once for how it is now, --csv for one reading after another",
        ));
    }
    live::show(watch, args.interval)
}

impl Watch {
    /// Reads each card once. An empty list of cards is none watched; a card asked for must be there.
    fn new(cards: Cards, args: &Args) -> Result<Self, Failure> {
        let wanted = |card: &&Card| args.gpu.is_none_or(|index| index == card.index);
        let list: Vec<Card> = cards.list().iter().filter(wanted).cloned().collect();
        if let (Some(index), true, Some(last)) = (args.gpu, list.is_empty(), cards.list().len().checked_sub(1)) {
            let hint = if last == 0 { "the only one is 0".to_owned() } else { format!("they are 0 to {last}") };
            return Err(wrong("--gpu", &format!("there is no card {index}"), &hint));
        }
        let watched = list.into_iter().map(|card| {
            let reading = cards.read(card.index).unwrap_or_default();
            let line = line(&card, args.load_line);
            let mut history = History::default();
            history.add(&reading);
            Watched { card, line, reading, history }
        });
        let watched = watched.collect();
        Ok(Self { cards, watched })
    }

    /// Reads every card anew.
    fn read(&mut self) {
        for watched in &mut self.watched {
            watched.reading = self.cards.read(watched.card.index).unwrap_or_default();
            watched.history.add(&watched.reading);
        }
    }

    /// Between two readings: only how much memory is in use, so that no peak is missed.
    fn glance(&mut self) {
        for watched in &mut self.watched {
            watched.history.glance(self.cards.used(watched.card.index));
        }
    }
}

/// The line that was asked for; else the estimate's for this card; else 92 % of what processes can have.
fn line(card: &Card, wanted: Option<Bytes>) -> Bytes {
    let capacity = card.capacity();
    let of_catalog = || card.gpu.and_then(catalog::gpu).map(|gpu| device::limits(gpu, None, None).load_line);
    wanted.or_else(of_catalog).unwrap_or_else(|| percent(capacity, 92)).min(capacity)
}

/// `share` hundredths, rounded down; no size overflows.
fn percent(bytes: Bytes, share: u64) -> Bytes {
    let n = bytes.get();
    Bytes::new(n / 100 * share + n % 100 * share / 100)
}

/// `part` of `whole` in hundredths, rounded down: 99.9 % are not yet all. More than all there is not, whatever a driver
/// counts.
fn share(part: Bytes, whole: Bytes) -> u64 {
    let hundredths = u128::from(part.get()) * 100 / u128::from(whole.get().max(1));
    u64::try_from(hundredths).unwrap_or(100).min(100)
}

fn wrong(key: &str, problem: &str, hint: &str) -> Failure {
    Error::new(key, problem, hint).into()
}

fn parse_line(text: &str) -> Result<Bytes, String> {
    match parse_memory(text) {
        Ok(Bytes::ZERO) => Err("a load line at nothing says nothing; write it like \"11 GiB\"".to_owned()),
        Ok(bytes) => Ok(bytes),
        Err(problem) => Err(format!("{problem}; write it like \"11 GiB\"")),
    }
}

/// Between 50 ms, below which the readings would weigh on what they read, and an hour.
fn parse_interval(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let (number, scale) = match text.strip_suffix("ms") {
        Some(number) => (number, 0.001),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let seconds: Option<f64> = number.trim().parse().ok();
    let seconds = seconds.map(|n| n * scale).filter(|n| (0.05..=3600.0).contains(n));
    let seconds = seconds.and_then(|n| Duration::try_from_secs_f64(n).ok());
    seconds.ok_or_else(|| "write seconds between 0.05 and 3600, like 0.5, or milliseconds, like 250ms".to_owned())
}
