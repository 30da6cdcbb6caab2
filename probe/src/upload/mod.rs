//! `plimsoll upload`: sends records to a server, after showing exactly what goes; each record goes to a server once.

mod address;
mod answer;
mod ledger;
mod retry;
mod send;
mod summary;
mod token;

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_core::{Bytes, Error};

use crate::exit::{self, Failure};
use crate::records;
use crate::view::Paint;

use address::Address;
use answer::Accepted;
use ledger::Ledger;
use send::Sender;

const ABOUT: &str = "\
What goes is shown first, then you are asked. Of a long record its beginning is shown; `v` as the answer shows all of it, \
to the last byte. With --yes all of it is printed. \
A record that a server has acknowledged is not sent to it again.

A server that wants to know who sends gives out tokens; a token is read from a variable of the environment or from a \
file, so that it stands in no shell history.";

/// Send measurement records to a server
#[derive(Debug, clap::Args)]
#[command(after_help = ABOUT)]
pub struct Args {
    /// Records, as `plimsoll probe` wrote them
    #[arg(value_name = "RECORD.json", required = true)]
    records: Vec<PathBuf>,
    /// The server, such as `https://plimsoll.example.org`
    #[arg(long, value_name = "URL")]
    to: String,
    /// The variable of the environment that holds your token
    #[arg(long, value_name = "NAME", conflicts_with = "token_file")]
    token_env: Option<String>,
    /// The file that holds your token
    #[arg(long, value_name = "PATH")]
    token_file: Option<PathBuf>,
    /// Send without asking
    #[arg(long, short)]
    yes: bool,
    /// Send over plain http to another machine, where anybody on the way can read along
    #[arg(long)]
    insecure: bool,
    /// How often a record is tried when the server cannot be reached or is busy
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=100))]
    tries: u32,
    /// How long the server may take to answer one try, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

/// Exit code when the question was answered with no: nothing went wrong, but nothing was sent either.
const DECLINED: u8 = 1;

/// Lines of a record that are shown before the question: what it says of the machine and the run, and less than a terminal
/// scrolls away. A run of a minute has more than a thousand.
const HEAD: usize = 40;

/// A record on its way.
struct Parcel {
    /// The file it is from.
    name: String,
    /// What is shown and sent.
    text: String,
    /// What tells it from every other record.
    hash: String,
    summary: String,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<u8, Failure> {
    let address = Address::parse(&args.to)?;
    address.check(args.insecure)?;
    let token = token::read(args.token_env.as_deref(), args.token_file.as_deref())?;
    // All are read before any goes: a broken one is found while nothing has happened yet.
    let mut parcels: Vec<Parcel> = Vec::new();
    for path in &args.records {
        let next = load(path)?;
        if parcels.iter().all(|one| one.hash != next.hash) {
            parcels.push(next);
        }
    }
    let ledger = Ledger::open()?;
    let mut out = anstream::stdout().lock();
    let known = ledger.read()?;
    parcels.retain(|one| {
        let sent = known.holds(&address, &one.hash);
        if sent {
            let _ = writeln!(out, "{} was sent to {} before; it is left out.", one.name, address.host());
        }
        !sent
    });
    if parcels.is_empty() {
        writeln!(out, "Nothing to send.")?;
        return Ok(exit::OK);
    }
    let can_ask = io::stdin().is_terminal() && io::stdout().is_terminal();
    if !args.yes && !can_ask {
        let problem = "there is no terminal to ask whether this may be sent";
        return Err(Error::new("--yes", problem, "give --yes to send without being asked").into());
    }
    let most = if args.yes { usize::MAX } else { HEAD };
    show(&mut out, &parcels, most, Paint::for_stdout()).map_err(unseen)?;
    if !args.yes && !agreed(&mut out, &parcels, &question(&parcels, &address, token.is_some()))? {
        writeln!(out, "Nothing was sent.")?;
        return Ok(DECLINED);
    }
    let sender = Sender::new(&address, token, args.tries, Duration::from_secs(args.timeout));
    let mut locked = ledger.lock()?;
    for one in &parcels {
        // Another upload may have been at it while we asked or waited.
        let outcome = if locked.read()?.holds(&address, &one.hash) {
            "was sent meanwhile; it is left out.".to_owned()
        } else {
            let accepted = sender.send(&one.text, &one.hash).map_err(|refusal| refusal.about(&one.name))?;
            locked.add(&address, &one.hash)?;
            match accepted {
                Accepted::New { place: Some(place) } => format!("was accepted: {place}"),
                Accepted::New { place: None } => "was accepted.".to_owned(),
                Accepted::Known => "is on the server already.".to_owned(),
            }
        };
        // What is agreed is sent, whether or not somebody reads on.
        let _ = writeln!(out, "{} {outcome}", one.name);
    }
    Ok(exit::OK)
}

/// Shows the records, of each at most the first `most` lines.
fn show(out: &mut impl io::Write, parcels: &[Parcel], most: usize, paint: Paint) -> io::Result<()> {
    for one in parcels {
        writeln!(out, "{}\n{}", paint.strong(&one.name), one.summary)?;
        let head: usize = one.text.split_inclusive('\n').take(most).map(str::len).sum();
        let (head, rest) = one.text.split_at(head);
        out.write_all(head.as_bytes())?;
        if !rest.is_empty() {
            writeln!(out, "{}", paint.quiet(&format!("... and {} lines more: v shows them", rest.lines().count())))?;
        }
        writeln!(out)?;
    }
    out.flush()
}

/// Asks until the answer is yes or no; all is shown where that is what is wanted first.
fn agreed(out: &mut impl io::Write, parcels: &[Parcel], question: &str) -> Result<bool, Failure> {
    loop {
        match answer(question)?.as_str() {
            "y" | "yes" => return Ok(true),
            "v" | "view" => show(out, parcels, usize::MAX, Paint::for_stdout()).map_err(unseen)?,
            _ => return Ok(false),
        }
    }
}

/// What could not be shown is not sent: here a closed output is no success.
fn unseen(error: io::Error) -> Failure {
    Failure::Environment {
        problem: format!("nothing was sent: what goes could not be shown ({error})"),
        hint: "let the output run to its end, into a terminal or a file".to_owned(),
    }
}

fn load(path: &Path) -> Result<Parcel, Failure> {
    let record = records::read(path)?;
    // What a server would refuse is refused here, before anybody is asked anything.
    if let Some(error) = record.validate().into_iter().next() {
        return Err(Failure::from(error).in_file(&path.display().to_string()));
    }
    let text = records::text(&record);
    Ok(Parcel {
        name: path.display().to_string(),
        hash: record.content_id(),
        summary: summary::summary(&record, &text),
        text,
    })
}

fn question(parcels: &[Parcel], address: &Address, token: bool) -> String {
    let size: Bytes = parcels.iter().map(|one| Bytes::new(one.text.len() as u64)).sum();
    let what = match parcels.len() {
        1 => "this record".to_owned(),
        n => format!("these {n} records"),
    };
    let how = if token { ", with your token" } else { "" };
    format!("Send {what} ({size}) to {address}{how}? [y/N, v views all] ")
}

/// What is answered to a question, in lower case.
fn answer(question: &str) -> Result<String, Failure> {
    let mut out = anstream::stdout();
    out.write_all(question.as_bytes()).and_then(|()| out.flush())?;
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| Failure::Environment {
        problem: format!("cannot read your answer: {error}"),
        hint: "give --yes to send without being asked".to_owned(),
    })?;
    Ok(answer.trim().to_lowercase())
}
