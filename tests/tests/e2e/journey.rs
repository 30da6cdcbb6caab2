//! One journey: a server, a driver, and the browsers it opens; nothing is shared with another journey.

use std::{cell::RefCell, time::Duration};

use anyhow::{Context as _, Result, anyhow};
use plimsoll_testkit::attended::attended;
use url::Url;

use crate::{
    browser::{Browser, Driver},
    evidence,
    page::Page,
    process::Process,
    surroundings, watch,
};

/// How long a journey may take in all; each of its waits has its own, shorter limit.
const LIMIT: Duration = Duration::from_secs(600);

/// `plimsoll serve` on a free port.
#[derive(Debug)]
pub struct Server {
    /// The process.
    pub process: Process,
    /// Where the planner is.
    pub url: Url,
    /// Where it keeps measurements; gone with it.
    _data: tempfile::TempDir,
}

impl Server {
    /// Starts it and waits until it listens.
    pub fn start() -> Result<Self> {
        let mut serve = attended(surroundings::plimsoll()?);
        let data = tempfile::tempdir()?;
        let database = format!("sqlite://{}", data.path().join("measurements.db").display());
        serve.args(["serve", "--listen", "127.0.0.1:0", "--database", &database]);
        let mut process = Process::start(serve.arg("--planner").arg(surroundings::planner()?))?;
        let line = process.line_after("The planner is at ")?;
        let url = line.split_whitespace().next().unwrap_or_default();
        let url = Url::parse(url).with_context(|| format!("{line:?} starts with no address"))?;
        Ok(Self { process, url, _data: data })
    }
}

/// What a journey travels with.
#[derive(Debug)]
pub struct Journey {
    driver: Driver,
    server: Server,
    browsers: RefCell<Vec<Browser>>,
    pages: RefCell<Vec<Page>>,
}

impl Journey {
    /// Where the planner is.
    pub fn home(&self) -> &Url {
        &self.server.url
    }

    /// A fresh browser, with nothing open yet and nothing remembered.
    pub async fn browser(&self) -> Result<Page> {
        self.browser_at(self.server.url.clone()).await
    }

    /// A fresh browser for a planner at another address.
    pub async fn browser_at(&self, home: Url) -> Result<Page> {
        let browser = self.driver.open().await?;
        let page = Page::new(browser.client.clone(), home);
        self.browsers.borrow_mut().push(browser);
        self.pages.borrow_mut().push(page.clone());
        watch::start(page.client()).await?;
        Ok(page)
    }

    /// A fresh browser with the planner open in it.
    pub async fn planner(&self) -> Result<Page> {
        let page = self.browser().await?;
        page.open("").await?;
        Ok(page)
    }
}

/// Takes a journey. It fails when its steps do, and when a browser complained on the way.
pub fn journey(name: &str, steps: impl AsyncFnOnce(&Journey) -> Result<()>) -> Result<()> {
    evidence::clear(name);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let journey = Journey {
            driver: Driver::start()?,
            server: Server::start()?,
            browsers: RefCell::default(),
            pages: RefCell::default(),
        };
        let outcome = tokio::time::timeout(LIMIT, async {
            steps(&journey).await?;
            let pages = journey.pages.borrow().clone();
            for page in &pages {
                watch::nothing_wrong(page.client()).await?;
            }
            anyhow::Ok(())
        });
        let outcome = outcome.await.unwrap_or_else(|_| Err(anyhow!("the journey took longer than {LIMIT:?}")));
        let outcome = match outcome {
            Ok(()) => Ok(()),
            Err(error) => {
                let pages = journey.pages.take();
                let kept = evidence::keep(name, &pages, &error).await;
                Err(error.context(kept.unwrap_or_else(|error| format!("nothing could be kept: {error}"))))
            }
        };
        for browser in journey.browsers.take() {
            browser.close().await?;
        }
        outcome
    })
}
