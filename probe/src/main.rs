//! The native binary `plimsoll`.
#![forbid(unsafe_code)]

mod cards;
mod code;
mod cudnn;
mod database;
mod estimate;
mod exit;
mod export;
mod fit;
mod footprint;
mod gpus;
mod import;
mod inspect;
mod interrupt;
mod ledger_file;
mod models;
mod plan;
mod policy;
mod probe;
mod records;
mod rehearse;
mod scenario;
mod scripts;
mod serve;
mod session;
mod signals;
mod token;
mod trace;
mod upload;
mod view;
mod watch;
mod worker;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use plimsoll_core::{is_hidden, nearest, shown};

const ABOUT: &str = "Says how much GPU memory a PyTorch training run takes, before it starts";

const EXAMPLES: &str = "\
Examples:
  plimsoll estimate --model llama-3.2-1b --gpu rtx-5070-ti-laptop --batch 4 --seq 1024
  plimsoll estimate run.toml --checkpointing full
  plimsoll fit --model qwen3-8b --gpu rtx-5070-ti --batch 4
  plimsoll plan --model llama-3.1-8b --gpu h100-sxm --gpus 8 --tokens 1M
  plimsoll code --model qwen3-8b --lora-rank 16 --as trainer
  plimsoll probe run --model gpt2 --batch 4
  plimsoll watch
  plimsoll rehearse --gpu rtx-4090 -- python train.py
  plimsoll trace mymodel:Net --input 'x=float32[B,64]' --loss 'model(x).mean()'
  plimsoll models qwen
  plimsoll gpus 5070
  plimsoll serve --open

`plimsoll estimate --help` tells how to describe a run.";

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, about = ABOUT, after_help = EXAMPLES, max_term_width = 80)]
#[command(subcommand_required = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// One variant and one file for each subcommand; its `run` answers with how the process ends.
#[derive(Debug, Subcommand)]
enum Command {
    Estimate(Box<estimate::Args>),
    Inspect(inspect::Args),
    Fit(Box<fit::Args>),
    Plan(Box<plan::Args>),
    Code(Box<code::Args>),
    Probe(probe::Args),
    Models(models::Args),
    Gpus(gpus::Args),
    Serve(serve::Args),
    Token(token::Args),
    Export(export::Args),
    Import(import::Args),
    Upload(upload::Args),
    Watch(watch::Args),
    Rehearse(Box<rehearse::Args>),
    Trace(Box<trace::Args>),
}

/// The command line. What is wrong with it repeats arguments, which may be names of other people's files: what would
/// command the terminal is written out.
fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|mut error| {
        suggest(&mut error);
        let text = error.render().to_string();
        if !error.use_stderr() || !text.chars().any(|c| is_hidden(c) && c != '\n') {
            error.exit();
        }
        // Nobody is left to tell when standard error is gone.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), shown(&text).as_bytes());
        std::process::exit(error.exit_code())
    })
}

/// Of the flags that a mistyped one may stand for, the one that is fewest slips away: letters that changed places are one.
fn suggest(error: &mut Error) {
    if error.kind() != ErrorKind::UnknownArgument {
        return;
    }
    let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidArg) else { return };
    let mut command = &Cli::command();
    // As the system has them: what is no text is no subcommand either.
    for word in std::env::args_os().skip(1) {
        let Some(inner) = command.find_subcommand(word) else { break };
        command = inner;
    }
    let flags: Vec<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
    if let Some(meant) = nearest(wrong.trim_start_matches('-'), &flags) {
        error.insert(ContextKind::SuggestedArg, ContextValue::String(format!("--{meant}")));
        // It repeats the flag that clap itself thought of.
        error.remove(ContextKind::Usage);
    }
}

fn main() -> ExitCode {
    let outcome = match parse().command {
        Command::Estimate(args) => estimate::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Fit(args) => fit::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Code(args) => code::run(&args),
        Command::Probe(args) => probe::run(&args),
        Command::Models(args) => models::run(&args),
        Command::Gpus(args) => gpus::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Upload(args) => upload::run(&args),
        Command::Watch(args) => watch::run(&args),
        Command::Rehearse(args) => rehearse::run(&args),
        Command::Trace(args) => trace::run(&args),
    };
    exit::code(outcome)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
