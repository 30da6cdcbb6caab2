//! `plimsoll serve`: hosts the planner, the one inside this binary or one in a folder, and keeps measurements.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_server::{Api, DEFAULT_LISTEN, ServeError, Settings, Site, serve, stop_signal};

use crate::database::{self, block_on};
use crate::exit::{self, Failure};

const ABOUT: &str = "\
Measurements are kept in a database and shown in the planner. Anybody who reaches the server may read them; uploads \
need a token (plimsoll token create), except from programs of this machine as long as there is no token and the server \
listens to this machine only. Nothing is kept of who asked. docs/deploying.md tells how to run it for others.";

/// Host the planner on this machine, and keep measurements
#[derive(Debug, clap::Args)]
#[command(after_help = ABOUT)]
pub struct Args {
    /// Where to listen: an address with a port, or a port of this machine; port 0 lets the system choose one
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = DEFAULT_LISTEN, value_parser = parse_listen)]
    listen: SocketAddr,

    /// Open the planner in the browser once it is there
    #[arg(long)]
    open: bool,

    /// Serve the planner in this folder instead of the one inside this program
    #[arg(long, value_name = "DIRECTORY")]
    planner: Option<PathBuf>,

    #[command(flatten)]
    database: database::Which,

    /// Keep no measurements: the planner alone
    #[arg(long, conflicts_with = "database")]
    no_database: bool,

    /// How many uploads each token may make in a minute, and each address without one; 0 is no limit
    #[arg(long, value_name = "N", default_value_t = Settings::default().uploads_per_minute)]
    uploads_per_minute: u32,

    /// How many proxies stand in front of the server: whom they name in X-Forwarded-For is then believed and counted
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=8))]
    proxies: u8,

    /// Another name that a server which listens to this machine only is asked for by; may be repeated
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        Self::Environment { problem: error.to_string(), hint: error.hint() }
    }
}

/// What is said of a program that has none.
const NO_PLANNER: &str = "\
Note: this plimsoll was built without the planner. In a checkout of the project, `cargo install --path probe --locked` \
installs one that has it, and `cargo xtask serve` builds it and serves it at once.";

/// Threads that answer.
const THREADS: usize = 2;

/// Runs the subcommand until Ctrl-C or SIGTERM. The first line of standard output holds the planner's address.
pub fn run(args: &Args) -> Result<u8, Failure> {
    block_on(THREADS, async {
        // Before anything is said: whoever reads that the server is there may tell it to end at once.
        let signal = stop_signal();
        let stop = async {
            signal.await;
            eprintln!("Stopping.");
        };
        let site = site(args.planner.as_deref())?;
        let planner = !site.is_empty();
        let api = if args.no_database { None } else { Some(api(args).await?) };
        let said = match &api {
            Some(api) => Some(terms(args, api).await?),
            None => None,
        };
        if let Some(api) = &api {
            let store = api.store().clone();
            tokio::spawn(async move { store.keep_verifying().await });
            let store = api.store().clone();
            tokio::spawn(async move {
                match store.renew().await {
                    Ok(0) => {}
                    Ok(count) => eprintln!("{count} measurements were estimated anew by this version."),
                    Err(error) => eprintln!("Note: older measurements keep their estimates: {error}; {}", error.hint()),
                }
            });
        }
        let ready = |address| {
            announce(address, args.open && planner);
            if !planner {
                eprintln!("{NO_PLANNER}");
            }
            said.iter().for_each(|said| eprintln!("{said}"));
        };
        let served = serve(args.listen, site, api.clone(), ready, stop).await;
        if let Some(api) = api {
            api.store().close().await;
        }
        Ok(served?)
    })?;
    Ok(exit::OK)
}

/// The planner in the folder, or the one inside.
fn site(folder: Option<&Path>) -> Result<Site, Failure> {
    let Some(folder) = folder else { return Ok(Site::embedded()) };
    let failure = |problem| Failure::Environment {
        problem: format!("{} holds no planner: {problem}", folder.display()),
        hint: "name the folder with the planner's index.html; `cargo xtask serve` builds it into web/dist".to_owned(),
    };
    let site = Site::read(folder).map_err(|error| failure(error.to_string()))?;
    if site.is_empty() { Err(failure("there is no index.html".to_owned())) } else { Ok(site) }
}

async fn api(args: &Args) -> Result<Arc<Api>, Failure> {
    let store = args.database.open().await?;
    let settings = Settings {
        local: args.listen.ip().is_loopback(),
        uploads_per_minute: args.uploads_per_minute,
        proxies: args.proxies.into(),
        hosts: args.host.clone(),
    };
    Ok(Arc::new(Api::new(store, settings)))
}

/// Where measurements are, and who may add to them.
async fn terms(args: &Args, api: &Api) -> Result<String, Failure> {
    let place = args.database.target()?;
    let who = if api.store().asks_for_tokens().await? {
        "uploads need a token"
    } else if args.listen.ip().is_loopback() {
        "programs of this machine may upload"
    } else {
        "uploads are refused until there is a token (plimsoll token create)"
    };
    Ok(format!("Measurements are kept in {place}; {who}."))
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
