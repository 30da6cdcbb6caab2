//! A record as text: one line for each phase, step and sample, so that a person can read through it before it is sent.

use std::io::{self, Write};

use plimsoll_core::Measurement;
use serde::Serialize as _;
use serde_json::ser::{Formatter, Serializer};

/// The record as JSON in plain ASCII, ending in a line feed. It is what a file holds, what is shown, hashed and sent. Equal
/// records give equal texts.
pub fn text(measurement: &Measurement) -> String {
    let mut out = Vec::new();
    // A record has no keys or numbers that JSON lacks, and a vector takes all that is written.
    let _ = measurement.serialize(&mut Serializer::with_formatter(&mut out, Lines::default()));
    out.push(b'\n');
    // The formatter writes ASCII only.
    String::from_utf8_lossy(&out).into_owned()
}

/// Breaks lines in the outer tables and lists only.
#[derive(Default)]
struct Lines {
    /// How many tables and lists are open.
    depth: usize,
    /// Whether the innermost one holds something.
    filled: bool,
}

impl Lines {
    fn open(&mut self) {
        self.depth += 1;
        self.filled = false;
    }

    fn close<W: ?Sized + Write>(&mut self, writer: &mut W, broken: usize) -> io::Result<()> {
        self.depth -= 1;
        if self.filled && self.depth < broken {
            indent(writer, self.depth)?;
        }
        self.filled = true;
        Ok(())
    }

    fn item<W: ?Sized + Write>(&self, writer: &mut W, first: bool, broken: usize) -> io::Result<()> {
        if !first {
            writer.write_all(b",")?;
        }
        match self.depth <= broken {
            true => indent(writer, self.depth),
            false if first => Ok(()),
            false => writer.write_all(b" "),
        }
    }
}

/// Tables this deep have a line for each key.
const TABLES: usize = 2;
/// Lists this deep have a line for each item.
const LISTS: usize = 3;

fn indent<W: ?Sized + Write>(writer: &mut W, depth: usize) -> io::Result<()> {
    write!(writer, "\n{:width$}", "", width = 2 * depth)
}

impl Formatter for Lines {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open();
        writer.write_all(b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, LISTS)?;
        writer.write_all(b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.item(writer, first, LISTS)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.filled = true;
        Ok(())
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open();
        writer.write_all(b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, TABLES)?;
        writer.write_all(b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.item(writer, first, TABLES)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.filled = true;
        Ok(())
    }

    /// Everything beyond ASCII is escaped: what a terminal shows is then what is sent, whatever a driver calls itself.
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        for c in fragment.chars() {
            if c.is_ascii() && c != '\u{7f}' {
                writer.write_all(&[c as u8])?;
            } else {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(writer, "\\u{unit:04x}")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::sample;

    #[test]
    fn it_is_the_record_and_nothing_but_ascii() {
        let mut record = sample::record();
        record.device.name = "Gr\u{e4}fin \u{202e}\u{1f6a2}\u{7f}\u{9b}31m \"x\"\n".to_owned();
        let text = text(&record);
        assert!(text.bytes().all(|byte| byte == b'\n' || (b' '..0x7f).contains(&byte)));
        assert_eq!(serde_json::from_str::<Measurement>(&text).unwrap(), record);
    }

    #[test]
    fn the_file_the_other_tests_read_is_such_a_text() {
        assert_eq!(text(&sample::record()), include_str!("../../tests/upload/record.json"));
    }

    #[test]
    fn a_line_for_each_phase() {
        let record = sample::record();
        let text = text(&record);
        assert_eq!(text.lines().filter(|line| line.starts_with("    {\"attempt\": 0, \"name\"")).count(), 3);
        assert!(text.starts_with("{\n  \"schema\": 1,\n"), "{text}");
        assert!(text.contains("\n  \"events\": [],\n"), "{text}");
        assert!(text.ends_with("\n}\n"), "{text}");
    }
}
