//! The native binary `plimsoll`.

use std::process::ExitCode;

use clap::Parser;

mod serve;

/// Says how much GPU memory a PyTorch training run takes, before it starts.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version)]
enum Command {
    /// Host the planner on this machine.
    Serve(serve::ServeArgs),
}

fn main() -> ExitCode {
    match Command::parse() {
        Command::Serve(args) => serve::run(&args),
    }
}
