//! A committed file that is written, or checked.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// How many differing lines are shown of a stale file.
const SHOWN: usize = 12;

/// A file of the project and what it should say.
#[derive(Debug)]
pub struct Page {
    /// Its path below the root of the project.
    pub name: &'static str,
    /// What it should say.
    pub fresh: String,
}

impl Page {
    /// Writes it where it differs.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self) -> Result<()> {
        if self.committed() == self.fresh {
            println!("{} is up to date", self.name);
        } else {
            let path = self.path();
            fs::write(&path, &self.fresh).with_context(|| format!("cannot write {}", path.display()))?;
            println!("wrote {}", self.name);
        }
        Ok(())
    }

    /// Whether it says what it should; otherwise the difference is shown.
    pub fn check(&self) -> bool {
        let committed = self.committed();
        let fresh = committed == self.fresh;
        if fresh {
            println!("{} is up to date", self.name);
        } else {
            println!("{} and the code disagree:\n{}", self.name, difference(&committed, &self.fresh));
        }
        fresh
    }

    fn path(&self) -> PathBuf {
        root().join(self.name)
    }

    fn committed(&self) -> String {
        fs::read_to_string(self.path()).unwrap_or_default()
    }
}

/// The root of the project.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".."))
}

/// The first lines that differ, line by line.
fn difference(old: &str, new: &str) -> String {
    let (mut old, mut new) = (old.lines(), new.lines());
    let mut shown = String::new();
    let mut count = 0;
    for number in 1.. {
        let (was, is) = (old.next(), new.next());
        if was.is_none() && is.is_none() {
            break;
        }
        if was == is {
            continue;
        }
        count += 1;
        if count <= SHOWN {
            for (sign, line) in [('-', was), ('+', is)] {
                if let Some(line) = line {
                    shown.push_str(&format!("{number:>5} {sign} {line}\n"));
                }
            }
        }
    }
    if count > SHOWN {
        shown.push_str(&format!("      ... and {} more lines\n", count - SHOWN));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_shows_where_it_starts() {
        assert_eq!(difference("a\nb\nc\n", "a\nx\nc\n"), "    2 - b\n    2 + x\n");
        assert_eq!(difference("a\n", "a\nb\n"), "    2 + b\n");
        assert_eq!(difference("a\n", "a\n"), "");
        let long = "x\n".repeat(40);
        assert!(difference(&long, "").ends_with("      ... and 28 more lines\n"));
    }
}
