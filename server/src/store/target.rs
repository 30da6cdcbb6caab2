//! Which database: a file for SQLite, an address for PostgreSQL.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::OpenError;

/// Which database measurements are kept in.
#[derive(Clone, PartialEq, Eq)]
pub enum Target {
    /// A file.
    Sqlite(PathBuf),
    /// A server's address, `postgres://user:password@host/name`.
    Postgres(String),
}

impl FromStr for Target {
    type Err = OpenError;

    /// `sqlite://FILE`, `sqlite:FILE`, `postgres://…` or `postgresql://…`.
    fn from_str(text: &str) -> Result<Self, OpenError> {
        if let Some(rest) = text.strip_prefix("sqlite:") {
            let path = rest.strip_prefix("//").unwrap_or(rest);
            // SQLite itself reads a name that begins with `file:` and all after a `?` as instructions.
            if !path.is_empty() && !path.starts_with(':') && !path.contains('?') && !path.contains('\0') {
                return Ok(Self::Sqlite(path.into()));
            }
        } else if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres(text.to_owned()));
        }
        // A password may stand behind the scheme.
        Err(OpenError::Target(match text.split_once("://") {
            Some((scheme, _)) => format!("{scheme}://..."),
            None => text.to_owned(),
        }))
    }
}

/// Where it is, without passwords.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => path.display().fmt(f),
            Self::Postgres(url) => {
                let (scheme, rest) = url.split_once("://").unwrap_or(("postgres", url));
                let rest = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
                // What follows may hold a password too: `?password=`.
                write!(f, "{scheme}://{}", rest.split('?').next().unwrap_or_default())
            }
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_databases_by_name() {
        for (text, expected) in [("sqlite:///a/b.db", "/a/b.db"), ("sqlite://b.db", "b.db"), ("sqlite:b.db", "b.db")] {
            assert_eq!(text.parse::<Target>().unwrap(), Target::Sqlite(expected.into()));
        }
        assert!(matches!("postgresql://h/n".parse().unwrap(), Target::Postgres(_)));
        for text in ["", "sqlite:", "sqlite://", "sqlite::memory:", "sqlite://a?mode=ro", "mysql://h/n", "/a/b.db"] {
            assert!(text.parse::<Target>().unwrap_err().hint().contains("sqlite://FILE"), "{text}");
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        let shown = |text: &str| format!("{0} {0:?}", text.parse::<Target>().unwrap());
        assert_eq!(
            shown("postgres://u:secret@h:5432/n?sslmode=require&password=secret"),
            "postgres://h:5432/n postgres://h:5432/n"
        );
        let error = "mysql://u:secret@h".parse::<Target>().unwrap_err().to_string();
        assert!(error.contains("mysql") && !error.contains("secret"), "{error}");
    }
}
