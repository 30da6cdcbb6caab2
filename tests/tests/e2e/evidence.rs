//! What a failed journey leaves behind: a picture of every page, what its console held, the error.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};

use crate::{page::Page, surroundings, watch};

/// Keeps everything under the journey's name; says where.
pub async fn keep(name: &str, pages: &[Page], error: &anyhow::Error) -> Result<String> {
    let directory = surroundings::evidence();
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let mut log = format!("{error:?}\n");
    for (number, page) in pages.iter().enumerate() {
        let address = page.client().current_url().await.map(String::from).unwrap_or_else(|e| e.to_string());
        writeln!(log, "\npage {}: {address}", number + 1)?;
        match watch::findings(page.client()).await {
            Ok(findings) => findings.iter().try_for_each(|finding| writeln!(log, "  {finding}"))?,
            Err(error) => writeln!(log, "  its console could not be read: {error}")?,
        }
        match page.client().screenshot().await {
            Ok(picture) => std::fs::write(directory.join(format!("{name}-{}.png", number + 1)), picture)?,
            Err(error) => writeln!(log, "  no picture could be taken: {error}")?,
        }
    }
    let log_file = directory.join(format!("{name}.log"));
    std::fs::write(&log_file, log)?;
    Ok(format!("pictures and {name}.log are in {}", directory.display()))
}

/// Removes what an earlier run left.
pub fn clear(name: &str) {
    let own = |file: &str| file.strip_prefix(name).is_some_and(|rest| rest == ".log" || is_picture(rest));
    for entry in std::fs::read_dir(surroundings::evidence()).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(own) {
            // Overwritten anyway should it stay and be needed.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// `-1.png`.
fn is_picture(rest: &str) -> bool {
    rest.strip_prefix('-').and_then(|rest| rest.strip_suffix(".png")).is_some_and(|n| n.parse::<u32>().is_ok())
}
