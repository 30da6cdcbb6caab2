//! The planner from plain files in a folder of some file host, with no Plimsoll server.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    path::{Component, Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context as _, Result, ensure};
use fantoccini::key::Key;
use url::Url;

use crate::{figures::agreed, journey::journey, surroundings};

/// The folder it lies in on that host.
const FOLDER: &str = "/tools/memory/";

#[test]
fn the_planner_works_from_plain_files() -> Result<()> {
    journey("static-files", async |journey| {
        let page = journey.browser_at(host(surroundings::planner()?, Arc::default())?).await?;
        page.open("").await?;
        page.address_with(&[FOLDER, "?"]).await?;
        let before = agreed(&page).await?;
        page.retype("gpu-search", "b200").await?;
        page.press(Key::Enter).await?;
        page.address_with(&[FOLDER, "gpu=b200"]).await?;
        let after = agreed(&page).await?;
        ensure!(after.verdict == "fits" && after.largest != before.largest);
        // A model that needs the worker.
        page.open("?model=llama-3.1-70b&gpu=b200&precision=bf16&batch=1&seq=256").await?;
        agreed(&page).await?;
        page.reload().await?;
        agreed(&page).await?;
        Ok(())
    })
}

#[test]
fn it_opens_without_a_network_after_the_first_visit() -> Result<()> {
    journey("offline", async |journey| {
        let away = Arc::new(AtomicBool::new(false));
        let page = journey.browser_at(host(surroundings::planner()?, away.clone())?).await?;
        page.open("?model=gpt2&batch=8").await?;
        let before = agreed(&page).await?;
        page.until("the files to be kept", async || {
            let kept = page.eval("return navigator.serviceWorker.controller !== null").await?;
            Ok(if kept == true { Ok(()) } else { Err(kept) })
        })
        .await?;
        away.store(true, Ordering::SeqCst);
        page.reload().await?;
        let after = agreed(&page).await?;
        ensure!(after == before, "{after:?}");
        // What takes longer than a frame runs in the worker, whose files are asked for only now.
        page.open("?model=llama-3.1-70b&gpu=b200&precision=bf16&batch=1&seq=256").await?;
        agreed(&page).await?;
        Ok(())
    })
}

/// The plainest of file hosts: files by their names, types by their endings, nothing compressed, no headers else. While it is
/// away it answers nobody.
fn host(directory: PathBuf, away: Arc<AtomicBool>) -> Result<Url> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = Url::parse(&format!("http://{}{FOLDER}", listener.local_addr()?))?;
    // It ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten().filter(|_| !away.load(Ordering::SeqCst)) {
            let directory = directory.clone();
            // A browser that broke off is its own affair.
            std::thread::spawn(move || drop(answer(stream, &directory)));
        }
    });
    Ok(url)
}

fn answer(mut stream: TcpStream, directory: &Path) -> Result<()> {
    let mut head = BufReader::new(&stream).lines();
    let first = head.next().context("an empty request")??;
    // The rest of the head says nothing that matters here, but has to be read.
    head.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
    let target = first.split_whitespace().nth(1).context("no target")?;
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let file = path.strip_prefix(FOLDER).map(|name| if name.is_empty() { "index.html" } else { name });
    let inside = |name: &&str| Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    let content = file.filter(inside).and_then(|name| Some((name, fs::read(directory.join(name)).ok()?)));
    let (status, kind, content) = match content {
        Some((name, content)) => ("200 OK", kind(name), content),
        None => ("404 Not Found", "text/plain", b"not found".to_vec()),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        content.len()
    )?;
    Ok(stream.write_all(&content)?)
}

fn kind(name: &str) -> &'static str {
    match Path::new(name).extension().and_then(|ending| ending.to_str()) {
        Some("html") => "text/html",
        Some("css") => "text/css",
        Some("js") => "text/javascript",
        Some("wasm") => "application/wasm",
        Some("svg") => "image/svg+xml",
        Some("woff2") => "font/woff2",
        _ => "application/octet-stream",
    }
}
