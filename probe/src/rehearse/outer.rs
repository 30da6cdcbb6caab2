//! A rehearsal within a rehearsal: what the outer one put into the environment gives way.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use plimsoll_hollow::{Setup, VARIABLE};

/// The outer rehearsal's folder, where this process runs in one.
pub fn folder() -> Option<PathBuf> {
    let setup = Setup::from_json(&env::var(VARIABLE).ok()?).ok()?;
    Some(setup.book?.parent()?.to_owned())
}

/// `first`, and behind it what the variable, a list of paths, holds now but for what lies in `outer`: libraries of two docks
/// would stand in for one another.
pub fn before(first: &str, variable: &str, outer: Option<&Path>) -> OsString {
    joined(first, env::var_os(variable), outer)
}

fn joined(first: &str, now: Option<OsString>, outer: Option<&Path>) -> OsString {
    let mut all = OsString::from(first);
    let Some(now) = now.filter(|now| !now.is_empty()) else { return all };
    let kept = match (now.to_str(), outer) {
        (Some(text), Some(outer)) => {
            let kept: Vec<&str> = text.split(':').filter(|entry| !Path::new(entry).starts_with(outer)).collect();
            OsString::from(kept.join(":"))
        }
        _ => now,
    };
    if !kept.is_empty() {
        all.push(":");
        all.push(kept);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_outer_one_put_there_is_left_out_and_the_users_own_stays() {
        let now = || Some(OsString::from("/tmp/outer/a.so:/tmp/outer/rehearsal:/home/own.so:/tmp/outermost"));
        let outer = Some(Path::new("/tmp/outer"));
        assert_eq!(joined("/tmp/inner", now(), outer), "/tmp/inner:/home/own.so:/tmp/outermost");
        assert_eq!(joined("/tmp/inner", Some("/tmp/outer/b".into()), outer), "/tmp/inner");
        assert_eq!(joined("/tmp/inner", Some("/own".into()), None), "/tmp/inner:/own");
        assert_eq!(joined("/tmp/inner", None, None), "/tmp/inner");
    }
}
