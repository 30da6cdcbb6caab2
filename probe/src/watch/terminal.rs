//! The terminal while the view has it.

use std::io::{self, Write};

use terminal_size::{Height, Width, terminal_size};

/// A terminal that does not say how large it is.
const USUAL: (usize, usize) = (80, 24);

/// Another screen, no cursor, and lines that are cut rather than wrapped (the private modes of xterm).
const TAKE: &str = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l";
/// All of it as it was.
const GIVE_BACK: &str = "\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l";

/// What follows is shown at once, by terminals that know how.
const BEGIN: &str = "\u{1b}[?2026h\u{1b}[1;1H";
const END: &str = "\u{1b}[J\u{1b}[?2026l";

/// Columns and rows of standard output's terminal.
pub fn size() -> (usize, usize) {
    match terminal_size() {
        Some((Width(columns @ 1..), Height(rows @ 1..))) => (usize::from(columns), usize::from(rows)),
        _ => USUAL,
    }
}

/// Taken until dropped, also by a panic.
pub struct Terminal {
    _keys: Keys,
}

impl Terminal {
    /// Takes it.
    pub fn take() -> io::Result<Self> {
        // On Windows this makes the console understand the sequences.
        let _ = anstream::stdout();
        let terminal = Self { _keys: Keys::take() };
        write(TAKE)?;
        Ok(terminal)
    }

    /// Writes a frame over the one before. What was longer there is cleared line by line, so that nothing flickers.
    pub fn draw(&self, frame: &str) -> io::Result<()> {
        let lines: Vec<String> = frame.lines().map(|line| format!("{line}\u{1b}[K")).collect();
        write(&format!("{BEGIN}{}{END}", lines.join("\r\n")))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Nobody is left to see it when the terminal is gone.
        let _ = write(GIVE_BACK);
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(unix)]
use unix::Keys;

#[cfg(unix)]
mod unix {
    use std::io;

    use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

    /// Keys that come as they are pressed and do not show. Ctrl-C stays a signal: it works without a keyboard's help.
    pub struct Keys {
        before: Option<Termios>,
    }

    impl Keys {
        /// Without a terminal at standard input there are no keys.
        pub fn take() -> Self {
            let before = tcgetattr(io::stdin()).ok();
            if let Some(mut modes) = before.clone() {
                modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
                // Stopped by Ctrl-Z it would leave a shell without a cursor.
                #[cfg(target_os = "linux")]
                {
                    modes.special_codes[rustix::termios::SpecialCodeIndex::VSUSP] = 0;
                }
                let _ = tcsetattr(io::stdin(), OptionalActions::Now, &modes);
            }
            Self { before }
        }
    }

    impl Drop for Keys {
        fn drop(&mut self) {
            if let Some(before) = &self.before {
                // What was pressed meanwhile was meant for the view.
                let _ = tcsetattr(io::stdin(), OptionalActions::Flush, before);
            }
        }
    }
}

/// Elsewhere keys come line by line, as they do.
#[cfg(not(unix))]
struct Keys;

#[cfg(not(unix))]
impl Keys {
    fn take() -> Self {
        Self
    }
}
