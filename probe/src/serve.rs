//! `plimsoll serve`: hosts the planner that is inside this binary.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use plimsoll_server::{DEFAULT_LISTEN, ServeError, Site, serve, stop_signal};

use crate::exit::{self, Failure};

/// Host the planner on this machine
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to listen: an address with a port, or a port of this machine; port 0 lets the system choose one
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = DEFAULT_LISTEN, value_parser = parse_listen)]
    listen: SocketAddr,

    /// Open the planner in the browser once it is there
    #[arg(long)]
    open: bool,
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        Self::Environment { problem: error.to_string(), hint: error.hint() }
    }
}

/// Runs the subcommand until Ctrl-C or SIGTERM. The first line of standard output holds the planner's address.
pub fn run(args: &Args) -> Result<u8, Failure> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().map_err(|error| Failure::Environment {
        problem: format!("cannot start the server's threads: {error}"),
        hint: "end some other processes".to_owned(),
    })?;
    runtime.block_on(async {
        // Before anything is said: whoever reads that the server is there may tell it to end at once.
        let signal = stop_signal();
        let stop = async {
            signal.await;
            eprintln!("Stopping.");
        };
        serve(args.listen, Site::embedded(), |address| announce(address, args.open), stop).await
    })?;
    Ok(exit::OK)
}

fn announce(address: SocketAddr, open: bool) {
    let url = url(address);
    let mut out = std::io::stdout();
    // Nobody reads the output: no reason not to serve.
    let _ = writeln!(out, "The planner is at {url} (Ctrl-C stops it)").and_then(|()| out.flush());
    if !address.ip().is_loopback() {
        eprintln!("Note: {address} can be reached from other machines.");
    }
    if open && let Err(error) = open::that_detached(&url) {
        eprintln!("Note: no browser could be opened ({error}); open {url} yourself.");
    }
}

/// What to type into a browser on this machine. "Every address" is none of them.
fn url(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    format!("http://{}/", SocketAddr::new(ip, address.port()))
}

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let port = |text: &str| text.parse().map(|port| SocketAddr::new(DEFAULT_LISTEN.ip(), port)).ok();
    let local = text.strip_prefix("localhost:").or_else(|| text.strip_prefix(':')).unwrap_or(text);
    text.parse().ok().or_else(|| port(local)).ok_or_else(|| {
        format!("`{text}` is not an address with a port; write it like {DEFAULT_LISTEN}, or only the port: 7071")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_as_people_write_them() {
        for (text, expected) in [
            ("127.0.0.1:7070", "127.0.0.1:7070"),
            ("7071", "127.0.0.1:7071"),
            (":0", "127.0.0.1:0"),
            ("localhost:80", "127.0.0.1:80"),
            ("0.0.0.0:7070", "0.0.0.0:7070"),
            ("[::1]:7070", "[::1]:7070"),
        ] {
            assert_eq!(parse_listen(text).unwrap().to_string(), expected);
        }
        for text in ["", "127.0.0.1", "70700", "-1", "example.org:80", "127.0.0.1:port"] {
            assert!(parse_listen(text).unwrap_err().contains("127.0.0.1:7070"), "{text}");
        }
    }

    #[test]
    fn the_address_shown_is_one_a_browser_can_open() {
        assert_eq!(url("0.0.0.0:7070".parse().unwrap()), "http://127.0.0.1:7070/");
        assert_eq!(url("[::]:7070".parse().unwrap()), "http://[::1]:7070/");
    }
}
