//! `plimsoll token`: who may upload to the server of this database.

use std::fmt::Write as _;
use std::io::Write as _;

use clap::Subcommand;
use plimsoll_core::Error;
use plimsoll_server::store::{LABEL, Store};

use crate::database::{self, block_on};
use crate::exit::{self, Failure};
use crate::view::{Paint, fit};

const ABOUT: &str = "\
As long as a database has no token, its server takes uploads from programs of its own machine only, and only where \
it listens to no other. From the first token on, every upload needs one.

A token is shown once, when it is made; kept is only what it can be recognized by.";

/// Make, list and revoke the tokens that uploads need
#[derive(Debug, clap::Args)]
#[command(after_help = ABOUT)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a token and print it; it is never shown again
    Create {
        /// Whose it is
        #[arg(long, value_name = "TEXT")]
        label: String,
        #[command(flatten)]
        database: database::Which,
    },
    /// List all tokens, revoked ones too
    List {
        #[command(flatten)]
        database: database::Which,
    },
    /// Revoke a token: uploads with it are refused from now on
    Revoke {
        /// Its id, as `plimsoll token list` shows it
        id: String,
        #[command(flatten)]
        database: database::Which,
    },
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<u8, Failure> {
    block_on(1, async {
        let (Action::Create { database, .. } | Action::List { database } | Action::Revoke { database, .. }) =
            &args.action;
        let store = database.open().await?;
        let done = match &args.action {
            Action::Create { label, .. } => create(&store, label).await,
            Action::List { .. } => list(&store).await,
            Action::Revoke { id, .. } => revoke(&store, id).await,
        };
        store.close().await;
        done
    })
}

async fn create(store: &Store, label: &str) -> Result<u8, Failure> {
    let label = label.trim();
    let length = label.chars().count();
    if length == 0 || length > LABEL || label.chars().any(plimsoll_core::is_hidden) {
        let problem = format!("{length} characters where 1 to {LABEL} printable ones are expected");
        return Err(
            Error::new("--label", problem, "say whose token it is, as --label \"the lab's big machine\"").into()
        );
    }
    let (id, token) = store.create_token(label).await?;
    let mut out = std::io::stdout();
    if let Err(error) = writeln!(out, "{token}").and_then(|()| out.flush()) {
        // Nobody has it: it must not stay valid.
        store.revoke_token(&id).await?;
        return Err(error.into());
    }
    eprintln!(
        "This is token {id}. Keep it where only you can read it; it is not shown again.\n\
         Give it to plimsoll upload with --token-file FILE or --token-env NAME."
    );
    Ok(exit::OK)
}

async fn list(store: &Store) -> Result<u8, Failure> {
    let tokens = store.tokens().await?;
    let paint = Paint::for_stdout();
    let mut text = String::new();
    if tokens.is_empty() {
        text.push_str("No token was made yet; `plimsoll token create --label TEXT` makes one.\n");
    } else {
        let head = format!("{:<10} {:<11} {:<11} {:<11} {}", "id", "created", "last used", "revoked", "label");
        let _ = writeln!(text, "{}", paint.strong(&head));
    }
    for token in tokens {
        let day = |day: &Option<String>| day.clone().unwrap_or_else(|| "-".to_owned());
        let (used, revoked) = (day(&token.last_used), day(&token.revoked));
        let label = fit(&token.label, 32);
        let _ = writeln!(text, "{:<10} {:<11} {used:<11} {revoked:<11} {label}", token.id, token.created);
    }
    anstream::stdout().lock().write_all(text.as_bytes())?;
    Ok(exit::OK)
}

async fn revoke(store: &Store, id: &str) -> Result<u8, Failure> {
    if store.revoke_token(id).await? {
        writeln!(std::io::stdout(), "Token {id} is revoked.")?;
        return Ok(exit::OK);
    }
    let known = store.tokens().await?.into_iter().any(|token| token.id == id);
    if known {
        writeln!(std::io::stdout(), "Token {id} was revoked before.")?;
        return Ok(exit::OK);
    }
    let shown = id.chars().take(24).filter(|c| !plimsoll_core::is_hidden(*c)).collect::<String>();
    Err(Error::new("id", format!("there is no token {shown}"), "`plimsoll token list` shows the ids").into())
}
