//! Chromium and its driver: finds a pair that belongs together, or installs Debian's where that is allowed.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, bail};

use crate::shell::{self, headline};

/// A browser and the driver made for it.
#[derive(Debug)]
pub struct Browser {
    /// Chromium or Chrome.
    pub chrome: PathBuf,
    /// chromedriver of the same major version.
    pub driver: PathBuf,
    /// What the browser calls itself.
    pub version: String,
}

/// What is to be done when there is none.
const ADVICE: &str = "install Chromium and its driver (Debian, Ubuntu: `apt-get install chromium chromium-driver`), \
    or say where they are with CHROME=/path/to/chrome and CHROMEDRIVER=/path/to/chromedriver";

impl Browser {
    /// Finds a pair, or installs one where this process may do so.
    pub fn ready() -> Result<Self> {
        match find() {
            Ok(browser) => Ok(browser),
            // What the environment names is what is meant: another one would not help.
            Err(_) if named("CHROME").is_none() && named("CHROMEDRIVER").is_none() && may_install() => {
                headline("Installing Chromium and its driver with apt-get: the browser tests run in it");
                shell::run(Command::new("apt-get").arg("update"))?;
                let mut install = Command::new("apt-get");
                install.env("DEBIAN_FRONTEND", "noninteractive");
                install.args(["install", "--yes", "--no-install-recommends", "chromium", "chromium-driver"]);
                shell::run(&mut install)?;
                find()
            }
            Err(error) => Err(error),
        }
    }
}

fn find() -> Result<Browser> {
    let chromes =
        candidates("CHROME", &["chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome"]);
    let drivers = candidates("CHROMEDRIVER", &["chromedriver"]);
    let versions = |paths: Vec<PathBuf>| -> Vec<(PathBuf, String)> {
        paths
            .into_iter()
            .filter_map(|p| Some((shell::output(Command::new(&p).arg("--version"))?, p)))
            .map(|(v, p)| (p, v))
            .collect()
    };
    let (chromes, drivers) = (versions(chromes), versions(drivers));
    for (chrome, version) in &chromes {
        if let Some((driver, _)) =
            drivers.iter().find(|(_, text)| major(text).is_some() && major(text) == major(version))
        {
            return Ok(Browser { chrome: chrome.clone(), driver: driver.clone(), version: version.trim().to_owned() });
        }
    }
    let say = |found: &[(PathBuf, String)], variable: &str, what: &str| match (found.first(), named(variable)) {
        (Some((path, version)), _) => format!("{} is {version}", path.display()),
        (None, Some(path)) => format!("{variable}={} does not run", path.display()),
        (None, None) => format!("there is no {what}"),
    };
    bail!("{}; {}: {ADVICE}", say(&chromes, "CHROME", "Chromium"), say(&drivers, "CHROMEDRIVER", "chromedriver"))
}

/// What the environment names, and nothing else then; otherwise PATH and the usual places.
fn candidates(variable: &str, names: &[&str]) -> Vec<PathBuf> {
    if let Some(path) = named(variable) {
        return vec![path];
    }
    // CHROMEWEBDRIVER is where GitHub's runners keep the driver.
    let mut places: Vec<PathBuf> = std::env::var_os("CHROMEWEBDRIVER").map(PathBuf::from).into_iter().collect();
    places.extend(
        ["/usr/lib/chromium", "/usr/lib/chromium-browser", "/snap/bin", "/opt/google/chrome"].map(PathBuf::from),
    );
    let mut found: Vec<PathBuf> = names.iter().flat_map(|name| shell::find_program(name, &[])).collect();
    found.extend(
        places.iter().flat_map(|place| names.iter().map(|name| place.join(name))).filter(|path| path.is_file()),
    );
    let mac = Path::new("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome");
    if variable == "CHROME" && mac.is_file() {
        found.push(mac.to_path_buf());
    }
    found
}

fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The first number in `Chromium 156.0.8078.79 built on Debian`, `ChromeDriver 156.0...`.
fn major(version: &str) -> Option<u32> {
    version.split_whitespace().find_map(|word| word.split('.').next()?.parse().ok())
}

/// Debian's package manager, and the right to use it.
pub fn may_install() -> bool {
    let root = shell::output(Command::new("id").arg("-u")).is_some_and(|id| id == "0");
    root && !shell::find_program("apt-get", &[]).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_say_their_version_in_several_ways() {
        assert_eq!(major("Chromium 156.0.8078.79 built on Debian GNU/Linux 12 (bookworm)"), Some(156));
        assert_eq!(major("ChromeDriver 156.0.8078.79 (abc)"), Some(156));
        assert_eq!(major("Google Chrome 9.1"), Some(9));
        assert_eq!(major("no number"), None);
    }
}
