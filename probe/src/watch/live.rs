//! The view that moves, until one leaves it.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::terminal::{
    self, BeginSynchronizedUpdate, Clear, ClearType, DisableLineWrap, EnableLineWrap, EndSynchronizedUpdate,
    EnterAlternateScreen, LeaveAlternateScreen,
};
use crossterm::{execute, queue};

use super::frame::{Screen, frame};
use super::{Watch, Watched};
use crate::exit::{self, Failure};
use crate::view::Paint;

/// How often memory is looked at between two readings.
const GLANCE: Duration = Duration::from_millis(100);

/// A terminal that does not say how wide it is.
const COLUMNS: usize = 80;

/// Shows the cards until q, Escape, Ctrl-C or a signal, and leaves a line for each where the command was.
pub fn show(mut watch: Watch, every: Duration) -> Result<u8, Failure> {
    let stop = asked_to_stop();
    let paint = Paint::for_stdout();
    let taken = Taken::take()?;
    let shown = run(&mut watch, every, paint, &stop);
    drop(taken);
    shown?;
    let mut out = anstream::stdout().lock();
    for watched in &watch.watched {
        writeln!(out, "{}", summary(watched))?;
    }
    Ok(exit::OK)
}

fn run(watch: &mut Watch, every: Duration, paint: Paint, stop: &Receiver<()>) -> io::Result<()> {
    let mut next = Instant::now() + every;
    loop {
        draw(&watch.watched, every, paint)?;
        loop {
            let wait = next.saturating_duration_since(Instant::now());
            match key(wait.min(GLANCE)) {
                Key::Leave => return Ok(()),
                Key::Resized => draw(&watch.watched, every, paint)?,
                Key::None => {}
            }
            if stop.try_recv().is_ok() {
                return Ok(());
            }
            if Instant::now() >= next {
                break;
            }
            watch.glance();
        }
        watch.read();
        // After a pause of the machine: from now on, not a burst to catch up.
        next = (next + every).max(Instant::now());
    }
}

/// Writes the frame over the one before: what is longer there is cleared line by line, so that nothing flickers.
fn draw(watched: &[Watched], every: Duration, paint: Paint) -> io::Result<()> {
    let (columns, rows) = size();
    let text = frame(watched, &Screen { columns, rows: Some(rows), paint, every: Some(every) });
    let mut out = Vec::new();
    queue!(out, BeginSynchronizedUpdate, MoveTo(0, 0))?;
    for (number, line) in text.lines().enumerate() {
        if number > 0 {
            out.extend(b"\r\n");
        }
        out.extend(line.as_bytes());
        queue!(out, Clear(ClearType::UntilNewLine))?;
    }
    queue!(out, Clear(ClearType::FromCursorDown), EndSynchronizedUpdate)?;
    let mut stdout = io::stdout().lock();
    stdout.write_all(&out)?;
    stdout.flush()
}

/// What stays when the view is left.
fn summary(watched: &Watched) -> String {
    let card = &watched.card;
    let peak = watched.history.peak().map_or_else(|| "never read".to_owned(), |peak| format!("peak {peak}"));
    format!("card {}: {peak} of {}, load line {}", card.index, card.capacity(), watched.line)
}

enum Key {
    Leave,
    Resized,
    None,
}

/// Waits that long for a key. Without a keyboard it only waits: Ctrl-C still comes as a signal.
fn key(wait: Duration) -> Key {
    match event::poll(wait) {
        Ok(true) => {}
        Ok(false) => return Key::None,
        Err(_) => {
            thread::sleep(wait);
            return Key::None;
        }
    }
    match event::read() {
        Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => {
            let interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            let leave = interrupt || matches!(key.code, KeyCode::Char('q' | 'Q') | KeyCode::Esc);
            if leave { Key::Leave } else { Key::None }
        }
        Ok(Event::Resize(..)) => Key::Resized,
        _ => Key::None,
    }
}

/// Columns to write `--once` for.
pub fn columns() -> usize {
    if io::stdout().is_terminal() { size().0 } else { COLUMNS }
}

fn size() -> (usize, usize) {
    match terminal::size() {
        Ok((columns, rows)) if columns > 0 && rows > 0 => (usize::from(columns), usize::from(rows)),
        _ => (COLUMNS, 24),
    }
}

/// Tells of Ctrl-C and of a wish to terminate. Where neither can be caught, nothing ever comes and they end the process.
pub fn asked_to_stop() -> Receiver<()> {
    let (ask, asked) = channel();
    // Kept by the handler; should there be none, kept here, for a closed channel would read as a wish.
    let keep = ask.clone();
    let handler = move || {
        // Nobody listens any more: then it has been heard.
        let _ = ask.send(());
    };
    if ctrlc::set_handler(handler).is_err() {
        std::mem::forget(keep);
    }
    asked
}

/// The terminal while the view has it: another screen, no cursor, keys as they come. Dropped, it is as it was.
struct Taken;

impl Taken {
    fn take() -> io::Result<Self> {
        let taken = Self;
        // A terminal without a keyboard is still one to look at.
        let _ = terminal::enable_raw_mode();
        execute!(io::stdout(), EnterAlternateScreen, Hide, DisableLineWrap)?;
        Ok(taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let _ = execute!(io::stdout(), EnableLineWrap, Show, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}
