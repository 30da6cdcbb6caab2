//! One line a card and reading, for spreadsheets and plots.

use std::io::{self, Write};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{Watch, Watched, live};
use crate::exit::{self, Failure};

/// Unix time in seconds; sizes in bytes, utilisation in percent, power in milliwatts, temperature in degrees Celsius. What a
/// card does not tell is left empty.
const HEADER: &str = "time,card,name,used,capacity,load_line,utilization,power,power_limit,temperature";

/// Prints until Ctrl-C, or until there were `samples` readings. Every line is out as soon as it is written.
pub fn record(mut watch: Watch, every: Duration, samples: Option<u64>) -> Result<u8, Failure> {
    let stop = live::asked_to_stop();
    let mut out = io::stdout().lock();
    writeln!(out, "{HEADER}")?;
    let mut next = Instant::now();
    let mut left = samples;
    loop {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        for watched in &watch.watched {
            writeln!(out, "{}", line(time, watched))?;
            out.flush()?;
        }
        left = left.map(|left| left.saturating_sub(1));
        next = (next + every).max(Instant::now());
        if left == Some(0) || !matches!(stop.recv_timeout(next - Instant::now()), Err(RecvTimeoutError::Timeout)) {
            return Ok(exit::OK);
        }
        watch.read();
    }
}

/// `milliseconds` since 1970.
fn line(milliseconds: u128, watched: &Watched) -> String {
    let (card, reading) = (&watched.card, &watched.reading);
    let load = &reading.load;
    let text = |figure: Option<u64>| figure.map(|n| n.to_string()).unwrap_or_default();
    [
        format!("{}.{:03}", milliseconds / 1000, milliseconds % 1000),
        card.index.to_string(),
        quoted(&card.name),
        text(reading.used.map(|used| used.get())),
        card.capacity().get().to_string(),
        watched.line.get().to_string(),
        text(load.utilization.map(u64::from)),
        text(load.power),
        text(load.power_limit),
        text(load.temperature.map(u64::from)),
    ]
    .join(",")
}

/// In quotes where it would break the line apart.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{rtx, watched};
    use super::*;

    #[test]
    fn a_line_has_the_columns_of_the_header() {
        let card = watched(rtx(), 9.42);
        let text = line(1_763_675_935_042, &card);
        let name = "NVIDIA GeForce RTX 5070 Ti Laptop GPU";
        let sizes = format!("10114647982,{},11811160064", card.card.capacity().get());
        assert_eq!(text, format!("1763675935.042,0,{name},{sizes},97,92000,115000,71"));
        assert_eq!(text.split(',').count(), HEADER.split(',').count());
    }

    #[test]
    fn what_is_not_told_is_empty() {
        let mut card = watched(rtx(), 1.0);
        card.reading = crate::cards::Reading::default();
        card.card.name = "a \"card\", so to say".to_owned();
        let text = line(5, &card);
        assert!(text.starts_with("0.005,0,\"a \"\"card\"\", so to say\",,"), "{text}");
        assert!(text.ends_with(",,,,"), "{text}");
    }
}
