//! One card on the screen.

use clap::builder::styling::AnsiColor;
use plimsoll_core::Bytes;
use plimsoll_core::estimate::Verdict;

use super::bar::{Depth, Scale, bar};
use super::chart::{chart, row_of};
use super::history::Mark;
use super::table::table;
use super::{Watched, share};
use crate::view::{Paint, fit, wrapped};

/// Columns of a row's label.
const LABEL: usize = 13;
/// Columns of a row's figure, right-aligned.
const FIGURE: usize = 5;
/// Columns between a row's figure and its chart.
const GAP: usize = 2;

/// How much of a card there is room for.
#[derive(Clone, Copy, Debug)]
pub struct Detail {
    /// Rows of the table of processes.
    pub processes: usize,
    /// Rows of the memory's chart.
    pub chart: usize,
    /// Whether blank lines stand between the parts.
    pub airy: bool,
}

/// The panel's lines, at most `columns` wide, without margin.
pub fn panel(watched: &Watched, columns: usize, detail: Detail, paint: Paint) -> Vec<String> {
    let card = &watched.card;
    let scale = Scale { capacity: card.capacity(), line: watched.line };
    let mut lines = vec![title(watched, columns, paint)];
    lines.extend(bar(watched.reading.used, scale, columns, paint));
    lines.extend(figures(watched, scale, columns, paint));
    let blank = |lines: &mut Vec<String>| lines.extend(detail.airy.then(String::new));
    blank(&mut lines);
    lines.extend(charts(watched, scale, columns, detail.chart, paint));
    let rows = table(&watched.reading.processes, columns, detail.processes, paint);
    if !rows.is_empty() {
        blank(&mut lines);
        lines.extend(rows);
    }
    lines
}

/// The card's name, and at the right its number and driver.
fn title(watched: &Watched, columns: usize, paint: Paint) -> String {
    let card = &watched.card;
    let number = format!("card {}", card.index);
    let driver = card.driver.as_ref().map(|driver| format!("driver {driver}, {number}"));
    let name = card.name.chars().count();
    let right = driver.filter(|text| name + 3 + text.chars().count() <= columns).unwrap_or(number);
    let room = columns.saturating_sub(right.chars().count() + 2);
    let name = fit(&card.name, room);
    let gap = columns.saturating_sub(name.chars().count() + right.chars().count());
    format!("{}{}{}", paint.strong(&name), " ".repeat(gap), paint.quiet(&right))
}

/// In use, how far from the line, and the highest so far; then the warning.
fn figures(watched: &Watched, scale: Scale, columns: usize, paint: Paint) -> Vec<String> {
    let Some(used) = watched.reading.used else {
        let text = "It cannot be read now: it sleeps or was lost, or its driver was unloaded.";
        return wrapped(text, columns).iter().map(|line| paint.verdict(Verdict::Tight, line)).collect();
    };
    let depth = scale.depth(used);
    let distance = Bytes::new(used.get().abs_diff(scale.line.get()));
    let (state, verdict) = match depth {
        Depth::Calm => (format!("{distance} to spare"), Verdict::Fits),
        Depth::Warning => (format!("{distance} to spare"), Verdict::Tight),
        Depth::Below => (format!("{distance} below the line"), Verdict::DoesNotFit),
    };
    let sizes = format!("{used} of {}", scale.capacity);
    let first = format!("{} of {}", paint.strong(&used.to_string()), scale.capacity);
    let peak =
        watched.history.peak().filter(|peak| *peak > used).map(|peak| format!("peak {peak}")).unwrap_or_default();
    let mut lines = Vec::new();
    let taken = sizes.chars().count() + 3 + state.chars().count();
    let state = paint.verdict(verdict, &state);
    if taken + 3 + peak.len() <= columns {
        let gap = " ".repeat(columns - taken - peak.len());
        lines.push(format!("{first}   {state}{gap}{}", paint.quiet(&peak)).trim_end().to_owned());
    } else {
        lines.extend([first, state]);
        lines.extend((!peak.is_empty()).then(|| paint.quiet(&peak)));
    }
    if depth != Depth::Calm && share(used, scale.capacity) >= super::bar::WARNING {
        let text = format!("{} % of the card is in use.", share(used, scale.capacity));
        lines.push(format!("{} {text}", paint.verdict(Verdict::Tight, "warning:")));
    }
    lines
}

/// Memory and utilisation over time, power and temperature. One mark is no history: then only figures.
fn charts(watched: &Watched, scale: Scale, columns: usize, rows: usize, paint: Paint) -> Vec<String> {
    let load = &watched.reading.load;
    let room = columns.saturating_sub(LABEL + FIGURE + GAP);
    let marks: Vec<Mark> = watched.history.last(room).copied().collect();
    let drawn = rows > 0 && watched.history.len() > 1;
    let mut lines = Vec::new();
    let percent = |n: u64| format!("{n} %");
    if drawn {
        let used: Vec<Option<u64>> = marks.iter().map(|mark| mark.used.map(Bytes::get)).collect();
        let chart = chart(&used, scale.capacity.get(), room, rows, !paint.coloured());
        let depths: Vec<Depth> = marks.iter().map(|m| scale.depth(m.used.unwrap_or_default())).collect();
        let line_row = row_of(scale.line.get(), scale.capacity.get(), rows);
        let figure = watched.reading.used.map(|used| percent(share(used, scale.capacity))).unwrap_or_default();
        for (number, row) in chart.iter().enumerate() {
            let (label, figure) = if number == 0 { ("memory", figure.as_str()) } else { ("", "") };
            let on_line = rows > 1 && number == line_row;
            lines.push(head(label, figure, paint) + &coloured(row, &depths, room, on_line, paint));
        }
    }
    if let Some(now) = load.utilization {
        let mut line = head("utilisation", &percent(u64::from(now)), paint);
        if drawn {
            let values: Vec<Option<u64>> = marks.iter().map(|mark| mark.utilization.map(u64::from)).collect();
            let row: String = chart(&values, 100, room, 1, !paint.coloured()).into_iter().flatten().collect();
            line.push_str(&" ".repeat(room.saturating_sub(row.chars().count())));
            line.push_str(&paint.tinted(AnsiColor::Cyan, &row));
        }
        lines.push(line.trim_end().to_owned());
    }
    let watts = |milliwatts: u64| format!("{} W", (milliwatts + 500) / 1000);
    let degree = if paint.coloured() { "\u{b0}C" } else { "C" };
    let power = load.power.map(|power| match load.power_limit {
        Some(limit) => format!("{} of {}", watts(power), watts(limit)),
        None => watts(power),
    });
    let temperature = load.temperature.map(|n| format!("{n} {degree}"));
    match (power, temperature) {
        (Some(power), Some(temperature)) => {
            lines.push(format!("{}{power}   {temperature}", label("power", paint)));
        }
        (Some(power), None) => lines.push(format!("{}{power}", label("power", paint))),
        (None, Some(temperature)) => lines.push(format!("{}{temperature}", label("temperature", paint))),
        (None, None) => {}
    }
    lines
}

/// The chart's cells in the colour of their depth, newest at the right edge; where the chart is empty, the load line.
fn coloured(row: &[char], depths: &[Depth], room: usize, on_line: bool, paint: Paint) -> String {
    let empty = if on_line && paint.coloured() { '\u{254c}' } else { ' ' };
    let mut out = paint.quiet(&empty.to_string().repeat(room.saturating_sub(row.len())));
    let cells: Vec<(char, Option<Depth>)> = row
        .iter()
        .zip(depths)
        .map(|(cell, depth)| if *cell == ' ' { (empty, None) } else { (*cell, Some(*depth)) })
        .collect();
    for run in cells.chunk_by(|a, b| a.1 == b.1) {
        let text: String = run.iter().map(|(cell, _)| cell).collect();
        match run.first().and_then(|(_, depth)| *depth) {
            Some(depth) => out.push_str(&depth.paint(&text, paint)),
            None => out.push_str(&paint.quiet(&text)),
        }
    }
    out
}

fn label(text: &str, paint: Paint) -> String {
    paint.quiet(&format!("{text:<LABEL$}"))
}

fn head(text: &str, figure: &str, paint: Paint) -> String {
    format!("{}{figure:>FIGURE$}{}", label(text, paint), " ".repeat(GAP))
}
