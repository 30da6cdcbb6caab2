//! One card on the screen.

use clap::builder::styling::AnsiColor;
use plimsoll_core::Bytes;
use plimsoll_core::estimate::Verdict;

use super::bar::{Depth, Scale, WARNING, bar};
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
    // A warning takes the blank line's place: nothing below it moves when it comes and goes.
    match warning(watched, scale, paint) {
        Some(warning) => lines.push(warning),
        None => blank(&mut lines),
    }
    if detail.chart > 0 && watched.history.len() > 1 {
        lines.extend(memory(watched, scale, columns, detail.chart, paint));
        if detail.chart > 1 {
            blank(&mut lines);
        }
    }
    lines.extend(load(watched, columns, detail.chart > 0, paint));
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

/// In use, how far from the line, and the highest so far.
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
        Depth::Below => (format!("over by {distance}"), Verdict::DoesNotFit),
    };
    let whole = scale.capacity.to_string();
    let peak = watched.history.peak().filter(|peak| *peak > used).map(|peak| format!("peak {peak}"));
    let mut parts = vec![
        (format!("{used} of {whole}"), format!("{} of {whole}", paint.strong(&used.to_string()))),
        (state.clone(), paint.verdict(verdict, &state)),
    ];
    parts.extend(peak.map(|peak| (peak.clone(), paint.quiet(&peak))));
    flowing(&parts, columns)
}

/// Parts, each plain and painted, one after another in as few lines as they need. Where one line is enough, a third part
/// stands at its right end.
fn flowing(parts: &[(String, String)], columns: usize) -> Vec<String> {
    const BETWEEN: usize = 3;
    let width = |text: &str| text.chars().count();
    let all = parts.iter().map(|(plain, _)| width(plain)).sum::<usize>() + BETWEEN * parts.len().saturating_sub(1);
    let spare = columns.saturating_sub(all);
    let mut lines: Vec<(usize, String)> = Vec::new();
    for (number, (plain, painted)) in parts.iter().enumerate() {
        let gap = if number == 2 && all <= columns { BETWEEN + spare } else { BETWEEN };
        match lines.last_mut() {
            Some((taken, line)) if *taken + gap + width(plain) <= columns => {
                *taken += gap + width(plain);
                line.push_str(&" ".repeat(gap));
                line.push_str(painted);
            }
            _ => lines.push((width(plain), painted.clone())),
        }
    }
    lines.into_iter().map(|(_, line)| line).collect()
}

/// From 90 % of the card on, whatever the load line.
fn warning(watched: &Watched, scale: Scale, paint: Paint) -> Option<String> {
    let share = share(watched.reading.used?, scale.capacity);
    let text = format!("{share} % of the card is in use");
    (share >= WARNING).then(|| format!("{} {text}", paint.verdict(Verdict::Tight, "warning:")))
}

/// Memory over time.
fn memory(watched: &Watched, scale: Scale, columns: usize, rows: usize, paint: Paint) -> Vec<String> {
    let room = columns.saturating_sub(LABEL + FIGURE + GAP);
    let marks: Vec<Mark> = watched.history.last(room).copied().collect();
    let used: Vec<Option<u64>> = marks.iter().map(|mark| mark.used.map(Bytes::get)).collect();
    let chart = chart(&used, scale.capacity.get(), room, rows, !paint.coloured());
    let line_row = row_of(scale.line.get(), scale.capacity.get(), rows);
    let now = watched.reading.used.map(|used| percent(share(used, scale.capacity))).unwrap_or_default();
    let mut surface: Vec<Option<Depth>> = marks.iter().map(|mark| mark.used.map(|used| scale.depth(used))).collect();
    let mut lines = Vec::new();
    for (number, row) in chart.iter().enumerate() {
        let (label, figure) = if number == 0 { ("memory", now.as_str()) } else { ("", "") };
        let cells = coloured(row, &surface, room, rows > 1 && number == line_row, paint);
        lines.push(format!("{}{cells}", head(label, figure, paint)).trim_end().to_owned());
        for (surface, cell) in surface.iter_mut().zip(row) {
            *surface = surface.filter(|_| *cell == ' ');
        }
    }
    lines
}

/// Utilisation, over time where there is a history, power and temperature.
fn load(watched: &Watched, columns: usize, drawn: bool, paint: Paint) -> Vec<String> {
    let load = &watched.reading.load;
    let mut lines = Vec::new();
    if let Some(now) = load.utilization {
        let room = columns.saturating_sub(LABEL + FIGURE + GAP);
        let mut line = head("utilisation", &percent(u64::from(now)), paint);
        if drawn && watched.history.len() > 1 {
            let values: Vec<Option<u64>> =
                watched.history.last(room).map(|mark| mark.utilization.map(u64::from)).collect();
            let row: String = chart(&values, 100, room, 1, !paint.coloured()).into_iter().flatten().collect();
            line.push_str(&" ".repeat(room.saturating_sub(row.chars().count())));
            line.push_str(&paint.tinted(AnsiColor::Cyan, &row));
        }
        lines.push(line.trim_end().to_owned());
    }
    let watts = |milliwatts: u64| format!("{} W", (milliwatts + 500) / 1000);
    let degree = if paint.coloured() { "\u{b0}C" } else { "C" };
    let power = load.power.map(|power| {
        let limit = load.power_limit.map(|limit| format!(" of {}", watts(limit))).unwrap_or_default();
        format!("{:>FIGURE$}{limit}", watts(power))
    });
    let temperature = load.temperature.map(|n| format!("{n} {degree}"));
    lines.extend(match (power, temperature) {
        (Some(power), Some(temperature)) => Some(format!("{}{power}   {temperature}", label("power", paint))),
        (Some(power), None) => Some(format!("{}{power}", label("power", paint))),
        (None, Some(temperature)) => Some(format!("{}{temperature:>FIGURE$}", label("temperature", paint))),
        (None, None) => None,
    });
    lines
}

fn percent(n: u64) -> String {
    format!("{n} %")
}

/// A row of the chart, newest at the right edge. The surface, where nothing stands above a cell, has the colour of its
/// depth, what lies under it is calm; where the row is empty, the load line runs through.
fn coloured(row: &[char], surface: &[Option<Depth>], room: usize, on_line: bool, paint: Paint) -> String {
    let empty = if on_line && paint.coloured() { '\u{254c}' } else { ' ' };
    let mut out = paint.quiet(&empty.to_string().repeat(room.saturating_sub(row.len())));
    let cell = |(cell, surface): (&char, &Option<Depth>)| match cell {
        ' ' => (empty, None),
        _ => (*cell, Some(surface.unwrap_or(Depth::Calm))),
    };
    let cells: Vec<(char, Option<Depth>)> = row.iter().zip(surface).map(cell).collect();
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
