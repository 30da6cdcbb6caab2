//! Chromium, driven through its chromedriver.

use std::{
    fs,
    io::ErrorKind,
    net::{Ipv4Addr, Ipv6Addr, TcpListener},
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context as _, Result};
use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::json;

use crate::{process::Process, surroundings};

/// How often a driver or a browser is started before that counts as failed.
const ATTEMPTS: u32 = 8;

/// A chromedriver on a port of its own.
#[derive(Debug)]
pub struct Driver {
    address: String,
    _process: Process,
}

/// One browser with nothing remembered.
#[derive(Debug)]
pub struct Browser {
    /// The way to talk to it.
    pub client: Client,
    profile: PathBuf,
}

impl Driver {
    /// Starts it on a port that nobody else has.
    pub fn start() -> Result<Self> {
        (1..ATTEMPTS).find_map(|_| Self::attempt().ok()).map_or_else(Self::attempt, Ok)
    }

    /// Asked to find a port itself it looks for one that is free on one loopback address and then wants it on the other as
    /// well, where another program may have got it by then. So it is told which.
    fn attempt() -> Result<Self> {
        let port = port()?;
        let mut process = Process::start(Command::new(surroundings::chromedriver()?).arg(format!("--port={port}")))?;
        process.line_after("started successfully")?;
        Ok(Self { address: format!("http://{}:{port}", Ipv4Addr::LOCALHOST), _process: process })
    }

    /// Opens a fresh browser.
    pub async fn open(&self) -> Result<Browser> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let profile = surroundings::profiles().join(format!("{}-{count}", std::process::id()));
        fs::create_dir_all(&profile).with_context(|| format!("cannot make {}", profile.display()))?;
        let capabilities = json!({
            "browserName": "chrome",
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": {
                "binary": surroundings::chrome()?,
                "args": [
                    "--headless=new",
                    "--no-sandbox",
                    "--disable-gpu",
                    "--disable-dev-shm-usage",
                    "--no-first-run",
                    "--no-default-browser-check",
                    "--disable-background-networking",
                    "--disable-component-update",
                    "--disable-sync",
                    "--window-size=1280,900",
                    format!("--user-data-dir={}", profile.display()),
                ],
            },
        });
        let capabilities = capabilities.as_object().cloned().unwrap_or_default();
        let mut builder = ClientBuilder::new(HttpConnector::new());
        let builder = builder.capabilities(capabilities);
        // On a machine that is busy enough, Chromium does not come up in the time that its driver gives it.
        for _ in 1..ATTEMPTS {
            if let Ok(client) = builder.connect(&self.address).await {
                return Ok(Browser { client, profile });
            }
        }
        let client = builder.connect(&self.address).await.context("chromedriver opened no browser")?;
        Ok(Browser { client, profile })
    }
}

/// A port that is free on both loopback addresses, of those that no system gives to programs that ask for any: each test
/// takes another, and each run of the tests begins elsewhere.
fn port() -> Result<u16> {
    const FIRST: u32 = 10_000;
    const LAST: u32 = 32_767;
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let is_free = |port: &u16| {
        TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()
            && TcpListener::bind((Ipv6Addr::LOCALHOST, *port))
                .map_or_else(|e| e.kind() != ErrorKind::AddrInUse, |_| true)
    };
    let start = std::process::id().wrapping_mul(97);
    (FIRST..=LAST)
        .map(|_| FIRST + start.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed)) % (LAST - FIRST + 1))
        .filter_map(|port| u16::try_from(port).ok())
        .find(is_free)
        .context("no port is free on this machine")
}

impl Browser {
    /// Closes it, and removes what it wrote.
    pub async fn close(self) -> Result<()> {
        let closed = self.client.close().await;
        // The last of its processes may still be writing: what is left over is in a directory of temporary files.
        let _ = fs::remove_dir_all(&self.profile);
        Ok(closed?)
    }
}
