//! Reading a child's output in threads: lines with a longest length, and the end of what it wrote to standard error.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

use plimsoll_core::is_hidden;

use super::protocol::Parsed;

/// The longest line that is read; the largest real one, an error with its traceback, has some KiB.
const LONGEST_LINE: u64 = 1 << 20;
/// How much more of a line is passed over before it is taken to have no end.
const ENDLESS: u64 = 64 << 20;
/// Lines that may wait to be handled before the worker has to wait.
const WAITING: usize = 1024;
/// How much of standard error is kept for reports.
const TAIL: usize = 64 << 10;

/// One line of the protocol's descriptor.
#[derive(Debug)]
pub enum Line {
    /// An event.
    Event(Parsed),
    /// Something else: what is wrong with it, and its beginning.
    Garbage(String),
    /// More than anything of use could be. Nothing is read after it.
    Endless(String),
}

/// Reads lines until the end.
pub fn lines(output: impl Read + Send + 'static) -> Receiver<Line> {
    let (sender, receiver) = sync_channel(WAITING);
    thread::spawn(move || {
        // A read that fails is the end: there is nobody left to read from.
        let _ = forward(&mut BufReader::new(output), &sender);
    });
    receiver
}

fn forward(reader: &mut impl BufRead, sender: &SyncSender<Line>) -> io::Result<()> {
    loop {
        let mut bytes = Vec::new();
        if reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut bytes)? == 0 {
            return Ok(());
        }
        let is_whole = bytes.last() == Some(&b'\n');
        let too_long = !is_whole && bytes.len() as u64 == LONGEST_LINE;
        let line = if too_long {
            let what = format!("a line of over {LONGEST_LINE} bytes: {}", excerpt(&bytes));
            let mut rest = reader.by_ref().take(ENDLESS);
            if rest.skip_until(b'\n')? as u64 == ENDLESS {
                // Whoever listened is gone, which is as good.
                let _ = sender.send(Line::Endless(what));
                return Ok(());
            }
            Line::Garbage(what)
        } else if bytes.trim_ascii().is_empty() {
            continue;
        } else {
            match Parsed::read(&bytes) {
                Ok(parsed) => Line::Event(parsed),
                Err(problem) => Line::Garbage(format!("{problem}: {}", excerpt(&bytes))),
            }
        };
        if sender.send(line).is_err() {
            return Ok(());
        }
    }
}

/// The beginning of a line, fit to be shown.
fn excerpt(bytes: &[u8]) -> String {
    const SHOWN: usize = 60;
    let text = String::from_utf8_lossy(bytes.get(..4 * SHOWN).unwrap_or(bytes)).into_owned();
    let clean: String = text.trim().chars().map(|c| if is_hidden(c) { '?' } else { c }).take(SHOWN).collect();
    let more = if bytes.len() > clean.len() + 2 { " ..." } else { "" };
    format!("{clean:?}{more}")
}

/// The last of what was written to standard error.
#[derive(Clone, Debug, Default)]
pub struct Tail {
    last: Arc<Mutex<VecDeque<u8>>>,
    /// How many bytes there were in all.
    total: Arc<AtomicU64>,
}

impl Tail {
    /// Reads until the end, in a thread. The handle says when it is there.
    pub fn of(mut output: impl Read + Send + 'static) -> (Self, thread::JoinHandle<()>) {
        let tail = Self::default();
        let kept = tail.clone();
        let thread = thread::spawn(move || {
            let mut buffer = [0; 8192];
            while let Ok(read @ 1..) = output.read(&mut buffer) {
                kept.total.fetch_add(read as u64, Ordering::Relaxed);
                let Ok(mut bytes) = kept.last.lock() else { return };
                bytes.extend(buffer.get(..read).unwrap_or_default());
                let over = bytes.len().saturating_sub(TAIL);
                bytes.drain(..over);
            }
        });
        (tail, thread)
    }

    /// How many bytes were written so far.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// As text, without control characters that would move a terminal's cursor.
    pub fn text(&self) -> String {
        let bytes: Vec<u8> = self.last.lock().map(|bytes| bytes.iter().copied().collect()).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        text.chars().filter(|c| !is_hidden(*c) || *c == '\n' || *c == '\t').collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &'static [u8]) -> Vec<Line> {
        lines(input).into_iter().collect()
    }

    #[test]
    fn events_and_garbage_in_order() {
        let all =
            read(b"{\"event\":\"note\",\"at\":1,\"message\":\"a\"}\n\nhello\x1b[2J\n{\"event\":\"bye\",\"at\":2}");
        assert_eq!(all.len(), 3);
        assert!(matches!(&all[0], Line::Event(_)));
        assert!(matches!(&all[1], Line::Garbage(why) if why == "it is not JSON: \"hello?[2J\""), "{:?}", all[1]);
        assert!(matches!(&all[2], Line::Event(_)), "the last line needs no end");
    }

    #[test]
    fn a_line_too_long_is_passed_over() {
        let mut input = vec![b'x'; 3 << 20];
        input.extend_from_slice(b"\n{\"event\":\"bye\",\"at\":2}\n");
        let all = read(Vec::leak(input));
        assert_eq!(all.len(), 2);
        assert!(matches!(&all[0], Line::Garbage(why) if why.starts_with("a line of over 1048576 bytes")));
        assert!(matches!(&all[1], Line::Event(_)));
    }

    #[test]
    fn a_line_without_end_ends_the_reading() {
        let all: Vec<Line> = lines(io::repeat(0)).into_iter().collect();
        assert!(matches!(all.as_slice(), [Line::Endless(why)] if why.starts_with("a line of over 1048576 bytes")));
    }

    #[test]
    fn only_the_end_of_standard_error_is_kept() {
        let mut input = vec![b'a'; 100_000];
        input.extend_from_slice(b"\x1b[31mthe end\n");
        let (tail, thread) = Tail::of(io::Cursor::new(input));
        thread.join().unwrap();
        let text = tail.text();
        assert!(text.ends_with("a[31mthe end\n"));
        assert!(text.len() <= TAIL);
    }
}
