//! What is asked of the scoreboard.

use std::process::ExitCode;

use anyhow::Result;
use lexopt::prelude::*;

use crate::{accuracy, reference, schema};

const USAGE: &str = "\
Usage: scoreboard accuracy|schema|reference [--check]
";

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Accuracy,
    Schema,
    Reference,
}

/// Does what the arguments say.
pub fn main() -> ExitCode {
    let (command, check) = match parse(lexopt::Parser::from_env()) {
        Ok(asked) => asked,
        Err(error) => {
            eprintln!("scoreboard: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    run(command, check).unwrap_or_else(|error| {
        eprintln!("scoreboard: {error:#}");
        ExitCode::FAILURE
    })
}

fn parse(mut parser: lexopt::Parser) -> Result<(Command, bool), lexopt::Error> {
    let (mut command, mut check) = (None, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("check") => check = true,
            Value(name) if command.is_none() => {
                command = Some(match name.string()?.as_str() {
                    "accuracy" => Command::Accuracy,
                    "schema" => Command::Schema,
                    "reference" => Command::Reference,
                    other => return Err(format!("there is no `{other}`").into()),
                });
            }
            other => return Err(other.unexpected()),
        }
    }
    Ok((command.ok_or("say what is to be written")?, check))
}

/// Writes the command's pages; with `check` writes nothing and fails when a committed one differs.
fn run(command: Command, check: bool) -> Result<ExitCode> {
    let pages = match command {
        Command::Accuracy => accuracy::pages()?,
        Command::Schema => vec![schema::page()],
        Command::Reference => reference::pages()?,
    };
    let mut stale = false;
    for page in &pages {
        if check {
            stale |= !page.check();
        } else {
            page.write()?;
        }
    }
    if stale {
        let name = match command {
            Command::Accuracy => "accuracy",
            Command::Schema => "schema",
            Command::Reference => "reference",
        };
        println!("run `cargo xtask {name}`, look at the difference, and commit it if it is meant");
        return Ok(ExitCode::FAILURE);
    }
    if command == Command::Accuracy {
        accuracy::summary(&pages);
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<(Command, bool), lexopt::Error> {
        parse(lexopt::Parser::from_args(line.split_whitespace()))
    }

    #[test]
    fn one_thing_at_a_time() {
        assert_eq!(read("accuracy").unwrap(), (Command::Accuracy, false));
        assert_eq!(read("--check schema").unwrap(), (Command::Schema, true));
        for line in ["", "--check", "accuracy schema", "score", "accuracy --chek"] {
            assert!(read(line).is_err(), "{line}");
        }
    }
}
