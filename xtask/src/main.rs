//! Tasks.
#![forbid(unsafe_code)]

mod accuracy;

fn main() -> anyhow::Result<std::process::ExitCode> {
    match std::env::args().skip(1).collect::<Vec<_>>().iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["accuracy"] => accuracy::run(false),
        ["accuracy", "--check"] => accuracy::run(true),
        _ => anyhow::bail!("usage: cargo xtask accuracy [--check]"),
    }
}
