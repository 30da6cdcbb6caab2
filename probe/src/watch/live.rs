//! The view that moves, until one leaves it.

use std::io::{self, IsTerminal, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::frame::{Screen, frame};
use super::terminal::{Terminal, size};
use super::{Watch, Watched};
use crate::exit::{self, Failure};
use crate::signals;
use crate::view::Paint;

/// How often memory is looked at between two readings, and the terminal's size.
const GLANCE: Duration = Duration::from_millis(100);

/// Shows the cards until q, Escape, Ctrl-C or a signal, and leaves a line for each where the command was.
pub fn show(mut watch: Watch, every: Duration) -> Result<u8, Failure> {
    let (ask, stop) = asked_to_stop();
    let terminal = Terminal::take()?;
    listen(ask);
    let shown = run(&mut watch, every, &terminal, &stop);
    drop(terminal);
    shown?;
    let mut out = anstream::stdout().lock();
    for watched in &watch.watched {
        writeln!(out, "{}", summary(watched))?;
    }
    Ok(exit::OK)
}

fn run(watch: &mut Watch, every: Duration, terminal: &Terminal, stop: &Receiver<()>) -> io::Result<()> {
    let paint = Paint::for_stdout();
    let mut next = Instant::now() + every;
    loop {
        let (columns, rows) = size();
        let screen = Screen { columns, rows: Some(rows), paint, every: Some(every) };
        terminal.draw(&frame(&watch.watched, &screen))?;
        while Instant::now() < next && size() == (columns, rows) {
            let wait = next.saturating_duration_since(Instant::now()).min(GLANCE);
            if !matches!(stop.recv_timeout(wait), Err(RecvTimeoutError::Timeout)) {
                return Ok(());
            }
            watch.glance();
        }
        if Instant::now() >= next {
            watch.read();
            // After a pause of the machine: from now on, not a burst to catch up.
            next = (next + every).max(Instant::now());
        }
    }
}

/// What stays when the view is left.
fn summary(watched: &Watched) -> String {
    let card = &watched.card;
    let peak = watched.history.peak().map_or_else(|| "never read".to_owned(), |peak| format!("peak {peak}"));
    format!("card {}: {peak} of {}, load line {}", card.index, card.capacity(), watched.line)
}

/// Asks to stop when a key says so. Ends with the keyboard; the view goes on.
fn listen(ask: Sender<()>) {
    if !io::stdin().is_terminal() {
        return;
    }
    thread::spawn(move || {
        let mut keys = [0; 64];
        while let Ok(count @ 1..) = io::stdin().read(&mut keys) {
            let keys = keys.get(..count).unwrap_or_default();
            // Escape alone: arrows and the like begin with it too.
            if keys == b"\x1b" || keys.iter().any(|key| matches!(key, b'q' | b'Q')) {
                // Nobody listens any more: then it has been heard.
                let _ = ask.send(());
            }
        }
    });
}

/// Tells of Ctrl-C and of a wish to terminate; where neither can be caught, they end the process. Who holds the sender may
/// ask too.
pub fn asked_to_stop() -> (Sender<()>, Receiver<()>) {
    let (ask, asked) = channel();
    let signalled = ask.clone();
    let _ = signals::listen(move || {
        let _ = signalled.send(());
    });
    (ask, asked)
}
