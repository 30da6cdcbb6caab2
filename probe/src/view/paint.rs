//! Colour, where there is a terminal that wants it.

use anstream::{AutoStream, ColorChoice};
use clap::builder::styling::{AnsiColor, Style};
use plimsoll_core::estimate::Verdict;
use plimsoll_core::summary::Kind;

use super::stack;

/// Styles text, or leaves it alone when the output is no terminal or NO_COLOR is set.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    colour: bool,
}

impl Paint {
    /// For what goes to standard output.
    pub fn for_stdout() -> Self {
        Self { colour: AutoStream::choice(&std::io::stdout()) != ColorChoice::Never }
    }

    /// For what goes to standard error.
    pub fn for_stderr() -> Self {
        Self { colour: AutoStream::choice(&std::io::stderr()) != ColorChoice::Never }
    }

    /// With or without colour, whatever the output is.
    #[cfg(test)]
    pub const fn with_colour(colour: bool) -> Self {
        Self { colour }
    }

    fn style(self, style: Style, text: &str) -> String {
        if self.colour && !text.is_empty() { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    /// What the eye should find first.
    pub fn strong(self, text: &str) -> String {
        self.style(Style::new().bold(), text)
    }

    /// What explains and may be read over.
    pub fn quiet(self, text: &str) -> String {
        self.style(Style::new().dimmed(), text)
    }

    /// Below the line, or wrong: the one red.
    pub fn signal(self, text: &str) -> String {
        self.style(AnsiColor::Red.on_default().bold(), text)
    }

    /// In a colour of one's own; red is [`Paint::signal`]'s.
    pub fn tinted(self, colour: AnsiColor, text: &str) -> String {
        self.style(colour.on_default(), text)
    }

    /// Whether colour is wanted. Where it is not, neither are other than ASCII characters.
    pub const fn coloured(self) -> bool {
        self.colour
    }

    /// In the verdict's colour.
    pub fn verdict(self, verdict: Verdict, text: &str) -> String {
        let style = match verdict {
            Verdict::Fits => AnsiColor::Green.on_default().bold(),
            Verdict::Tight => AnsiColor::Yellow.on_default().bold(),
            Verdict::DoesNotFit => return self.signal(text),
        };
        self.style(style, text)
    }

    /// `cells` cells of a bar: blocks in the kind's colour, or its letter.
    pub fn cells(self, kind: Kind, cells: usize) -> String {
        match stack::colour(kind) {
            Some(colour) if self.colour => self.style(colour.on_default(), &"\u{2588}".repeat(cells)),
            None if self.colour => {
                let shade = if kind == Kind::Context { "\u{2593}" } else { "\u{2592}" };
                self.style(Style::new().dimmed(), &shade.repeat(cells))
            }
            _ => stack::letter(kind).to_string().repeat(cells),
        }
    }

    /// The free part of a bar.
    pub fn free(self, cells: usize) -> String {
        if self.colour { self.quiet(&"\u{2591}".repeat(cells)) } else { ".".repeat(cells) }
    }
}
