//! Where Plimsoll keeps its data.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::exit::Failure;

/// Where in the data directory everything belongs that was not measured but rehearsed.
const REHEARSED: &str = "rehearsals";

/// The folder of Plimsoll's data; it need not exist yet. Within `plimsoll rehearse`, where no card computes, it is a folder
/// of its own below: what was rehearsed is never found among what was measured. `PLIMSOLL_DATA` names another one than the system's place:
/// `$XDG_DATA_HOME/plimsoll` or `~/.local/share/plimsoll`, on macOS `~/Library/Application Support/plimsoll`, on Windows
/// `%LOCALAPPDATA%\plimsoll`.
///
/// # Errors
/// [`Failure::Environment`] when the system does not say where the user's files are.
pub fn data_directory() -> Result<PathBuf, Failure> {
    let rehearsed = env::var_os(plimsoll_hollow::VARIABLE).is_some();
    let place = find(|name| env::var_os(name), env::consts::OS);
    place.map(|place| if rehearsed { place.join(REHEARSED) } else { place }).ok_or_else(|| Failure::Environment {
        problem: "the system does not say where your data belongs".to_owned(),
        hint: "set PLIMSOLL_DATA to a folder, or give --out".to_owned(),
    })
}

fn find(variable: impl Fn(&str) -> Option<OsString>, os: &str) -> Option<PathBuf> {
    let path = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(chosen) = path("PLIMSOLL_DATA") {
        return Some(chosen);
    }
    let place = match os {
        "macos" => path("HOME")?.join("Library").join("Application Support"),
        "windows" => path("LOCALAPPDATA")?,
        // The XDG specification: a relative path is invalid and to be ignored.
        _ => match path("XDG_DATA_HOME").filter(|path| path.is_absolute()) {
            Some(place) => place,
            None => path("HOME")?.join(".local").join("share"),
        },
    };
    Some(place.join("plimsoll"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)], os: &str) -> Option<PathBuf> {
        find(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()), os)
    }

    #[test]
    fn each_system_has_its_place() {
        let home = ("HOME", "/home/a");
        assert_eq!(with(&[home], "linux"), Some("/home/a/.local/share/plimsoll".into()));
        assert_eq!(with(&[home, ("XDG_DATA_HOME", "/data")], "linux"), Some("/data/plimsoll".into()));
        assert_eq!(with(&[home, ("XDG_DATA_HOME", "data")], "linux"), Some("/home/a/.local/share/plimsoll".into()));
        assert_eq!(with(&[home], "macos"), Some("/home/a/Library/Application Support/plimsoll".into()));
        assert_eq!(with(&[home, ("LOCALAPPDATA", "/l")], "windows"), Some("/l/plimsoll".into()));
        assert_eq!(with(&[home, ("PLIMSOLL_DATA", "/mine")], "linux"), Some("/mine".into()));
        assert_eq!(with(&[("HOME", "")], "linux"), None);
    }
}
