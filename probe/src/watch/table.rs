//! Who is on a card.

use crate::cards::ProcessUse;
use crate::view::{Paint, fit};

/// A heading and at most `most` rows, the largest first; the last says how many are left out.
pub fn table(processes: &[ProcessUse], columns: usize, most: usize, paint: Paint) -> Vec<String> {
    if most == 0 {
        return Vec::new();
    }
    if processes.is_empty() {
        return vec![paint.quiet(&fit("No process on it can be seen from here.", columns))];
    }
    let mut lines = vec![paint.quiet(&fit(&row("PID", "MEMORY", "PROCESS"), columns))];
    let shown = if processes.len() > most { most - 1 } else { most };
    for process in processes.iter().take(shown) {
        let memory = process.memory.map_or_else(|| "hidden".to_owned(), |memory| memory.to_string());
        let text = row(&process.pid.to_string(), &memory, "");
        let room = columns.saturating_sub(text.chars().count());
        lines.push(format!("{text}{}", name(process, room)));
    }
    let left = processes.len().saturating_sub(shown);
    if left > 0 {
        lines.push(paint.quiet(&row("", "", &format!("and {left} more"))));
    }
    lines
}

/// Where there is no room for program and script, the script says more.
fn name(process: &ProcessUse, room: usize) -> String {
    let name = process.name.as_deref().unwrap_or("?");
    match name.split_once(' ') {
        Some((_, script)) if name.chars().count() > room => fit(script, room),
        _ => fit(name, room),
    }
}

fn row(pid: &str, memory: &str, name: &str) -> String {
    format!("{pid:>8}  {memory:>10}   {name}")
}
