//! Chromium, driven through its chromedriver.

use std::{
    fs,
    net::{Ipv4Addr, TcpStream},
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
    /// Starts it on a free port.
    pub fn start() -> Result<Self> {
        // It looks for a port that is free on one loopback address and then wants it on the other as well, where another
        // may have it by then ("bind() failed: Address already in use"), and ends.
        (1..ATTEMPTS).find_map(|_| Self::attempt().ok()).map_or_else(Self::attempt, Ok)
    }

    fn attempt() -> Result<Self> {
        let mut process = Process::start(Command::new(surroundings::chromedriver()?).arg("--port=0"))?;
        let port = process.line_after("started successfully on port ")?;
        let port: u16 = port.trim_end_matches('.').parse().with_context(|| format!("{port:?} is no port"))?;
        // It has said so before it lost the port.
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("chromedriver does not listen")?;
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

impl Browser {
    /// Closes it, and removes what it wrote.
    pub async fn close(self) -> Result<()> {
        let closed = self.client.close().await;
        // The last of its processes may still be writing: what is left over is in a directory of temporary files.
        let _ = fs::remove_dir_all(&self.profile);
        Ok(closed?)
    }
}
