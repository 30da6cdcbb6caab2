//! The project's own commands: `cargo xtask serve | test | attack | accuracy | schema | reference | bench`.
//!
//! This program builds and runs others and links none of them: it has to be there at once.
#![forbid(unsafe_code)]

mod attack;
mod bench;
mod browser;
mod compile;
mod database;
#[cfg(test)]
mod licences;
mod planner;
mod python;
mod scoreboard;
mod serve;
mod shell;
mod test;
mod tools;
mod workspace;

use std::process::ExitCode;

use lexopt::prelude::*;

const USAGE: &str = "\
The project's own commands.

Usage: cargo xtask COMMAND

Commands:
  serve [--listen ADDRESS:PORT] [--open]
                        Build the planner and plimsoll, for a look at them, and serve the planner.
                        `cargo install --path probe --locked` installs them as they are given away.
  test [--without-browser]
                        Everything: formatting, lints, tests native, in wasm and with PyTorch,
                        the accuracy scoreboard, the journeys in a real browser.
  attack [--inputs N]   Try for minutes what was tried against the program and its server before:
                        crowds, kills under load, and N hostile inputs (2,000,000).
  accuracy [--check]    Write docs/accuracy.md from the reference rows and the records in
                        data/measurements; with --check, fail when the committed one differs.
  schema [--check]      Write docs/measurement.schema.json from the record's types; with --check,
                        fail when the committed one differs.
  reference [--check]   Write docs/models.md and docs/gpus.md from the catalog, docs/scenario.md from the
                        levers, and docs/worked-examples.md; with --check, fail when the committed
                        ones differ.
  bench [engine | load | browser]
                        Measure and write docs/performance.md; with `engine`, without the planner and the
                        server, for which little has to be built; with `load`, only its part about the
                        server under load, which takes some minutes and needs PostgreSQL; with `browser`,
                        only how long a person waits in a real one, and what the planner is made of.
";

/// The exit code for a command line that makes no sense.
const USAGE_ERROR: u8 = 2;

enum Command {
    Help,
    Serve(serve::Options),
    Test(test::Options),
    Attack(attack::Options),
    Scoreboard { what: &'static str, check: bool },
    Bench(bench::Part),
}

fn main() -> ExitCode {
    let command = match parse(lexopt::Parser::from_env()) {
        Ok(command) => command,
        Err(error) => {
            eprintln!("xtask: {error}\n\n{USAGE}");
            return ExitCode::from(USAGE_ERROR);
        }
    };
    let done = match command {
        Command::Help => {
            print!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        Command::Serve(options) => serve::run(&options),
        Command::Test(options) => test::run(&options),
        Command::Attack(options) => attack::run(&options),
        Command::Scoreboard { what, check } => scoreboard::run(what, check),
        Command::Bench(part) => bench::run(part),
    };
    done.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}

fn parse(mut parser: lexopt::Parser) -> Result<Command, lexopt::Error> {
    let mut command = match parser.next()? {
        None | Some(Long("help") | Short('h')) => return Ok(Command::Help),
        Some(Value(name)) => {
            let name = name.string()?;
            let scoreboard = scoreboard::COMMANDS.into_iter().find(|what| *what == name);
            match (name.as_str(), scoreboard) {
                (_, Some(what)) => Command::Scoreboard { what, check: false },
                ("serve", _) => Command::Serve(serve::Options::default()),
                ("test", _) => Command::Test(test::Options::default()),
                ("attack", _) => Command::Attack(attack::Options::default()),
                ("bench", _) => Command::Bench(bench::Part::Product),
                ("help", _) => return Ok(Command::Help),
                (other, _) => return Err(format!("there is no command `{other}`").into()),
            }
        }
        Some(other) => return Err(other.unexpected()),
    };
    while let Some(argument) = parser.next()? {
        match (&mut command, argument) {
            (_, Long("help") | Short('h')) => return Ok(Command::Help),
            (Command::Serve(options), Long("listen")) => options.listen = Some(parser.value()?.string()?),
            (Command::Serve(options), Long("open")) => options.open = true,
            (Command::Attack(options), Long("inputs")) => options.inputs = Some(parser.value()?.string()?),
            (Command::Test(options), Long("without-browser")) => options.without_browser = true,
            // What `test` starts beside itself.
            (Command::Test(options), Long("aside")) => {
                let name = parser.value()?.string()?;
                let group = test::Group::named(&name);
                options.aside = Some(group.ok_or_else(|| format!("no stages are called {name}"))?);
            }
            (Command::Bench(part), Value(what)) if what == "load" => *part = bench::Part::Load,
            (Command::Bench(part), Value(what)) if what == "engine" => *part = bench::Part::Engine,
            (Command::Bench(part), Value(what)) if what == "browser" => *part = bench::Part::Browser,
            (Command::Scoreboard { check, .. }, Long("check")) => *check = true,
            (_, other) => return Err(other.unexpected()),
        }
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Command, lexopt::Error> {
        parse(lexopt::Parser::from_args(line.split_whitespace()))
    }

    #[test]
    fn commands_take_their_own_flags_and_no_others() {
        let Ok(Command::Serve(options)) = parse_line("serve --listen=127.0.0.1:0 --open") else { panic!() };
        assert_eq!((options.listen.as_deref(), options.open), (Some("127.0.0.1:0"), true));
        for what in ["accuracy", "schema", "reference"] {
            let Ok(Command::Scoreboard { what: read, check }) = parse_line(&format!("{what} --check")) else {
                panic!()
            };
            assert_eq!((read, check), (what, true));
        }
        assert!(matches!(parse_line("test --without-browser"), Ok(Command::Test(o)) if o.without_browser));
        assert!(matches!(parse_line("attack"), Ok(Command::Attack(o)) if o.inputs.is_none()));
        assert!(matches!(parse_line("attack --inputs 7"), Ok(Command::Attack(o)) if o.inputs.as_deref() == Some("7")));
        assert!(matches!(parse_line("bench"), Ok(Command::Bench(bench::Part::Product))));
        assert!(matches!(parse_line("bench load"), Ok(Command::Bench(bench::Part::Load))));
        assert!(matches!(parse_line("bench engine"), Ok(Command::Bench(bench::Part::Engine))));
        assert!(matches!(parse_line("bench browser"), Ok(Command::Bench(bench::Part::Browser))));
        assert!(matches!(parse_line(""), Ok(Command::Help)));
        for line in ["serve --check", "test --open", "tset", "--check", "bench now", "serve --listen"] {
            assert!(parse_line(line).is_err(), "{line}");
        }
    }
}
