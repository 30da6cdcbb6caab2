//! `Accept-Encoding`: which stored form of a file a client gets.

/// The forms a file is stored in, the one we would rather send first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// `br`.
    Brotli,
    /// `gzip`.
    Gzip,
    /// As it is.
    Identity,
}

impl Encoding {
    /// Every form, the smallest first.
    pub(crate) const ALL: [Self; 3] = [Self::Brotli, Self::Gzip, Self::Identity];

    /// The name in HTTP headers.
    pub(crate) const fn token(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Gzip => "gzip",
            Self::Identity => "identity",
        }
    }

    /// What is appended to a file's name when it is stored in this form.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Self::Brotli => ".br",
            Self::Gzip => ".gz",
            Self::Identity => "",
        }
    }
}

/// The best of `stored` that `accept` allows. A client that refuses all of them gets the file as it is: RFC 9110
/// section 12.5.3 allows it, and it is more use than an error.
pub(crate) fn negotiate(accept: &str, stored: impl Fn(Encoding) -> bool) -> Encoding {
    let mut best = (Encoding::Identity, 0);
    for encoding in Encoding::ALL {
        let weight = weight(accept, encoding);
        // Strictly greater: at equal weights the earlier, smaller form wins.
        if stored(encoding) && weight > best.1 {
            best = (encoding, weight);
        }
    }
    best.0
}

/// The weight `accept` gives to an encoding, in thousandths; 0 is a refusal.
fn weight(accept: &str, encoding: Encoding) -> u16 {
    let mut any = None;
    for item in accept.split(',') {
        let mut parts = item.split(';').map(str::trim);
        let Some(name) = parts.next() else { continue };
        let weight = parts
            .find_map(|p| p.strip_prefix("q=").or_else(|| p.strip_prefix("Q=")))
            .map_or(1000, |q| q.trim().parse::<f32>().map_or(0, |q| (q.clamp(0.0, 1.0) * 1000.0).round() as u16));
        let x_gzip = encoding == Encoding::Gzip && name.eq_ignore_ascii_case("x-gzip");
        if name.eq_ignore_ascii_case(encoding.token()) || x_gzip {
            return weight;
        }
        if name == "*" {
            any = Some(weight);
        }
    }
    // Identity needs no mention to be acceptable, but comes after whatever was asked for.
    any.unwrap_or(if encoding == Encoding::Identity { 1 } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(accept: &str) -> Encoding {
        negotiate(accept, |_| true)
    }

    #[test]
    fn browsers_get_brotli() {
        assert_eq!(all("gzip, deflate, br, zstd"), Encoding::Brotli);
        assert_eq!(all("GZIP, BR"), Encoding::Brotli);
    }

    #[test]
    fn what_is_not_stored_is_not_sent() {
        assert_eq!(negotiate("br, gzip", |e| e != Encoding::Brotli), Encoding::Gzip);
        assert_eq!(negotiate("br, gzip", |e| e == Encoding::Identity), Encoding::Identity);
    }

    #[test]
    fn weights_decide() {
        assert_eq!(all("br;q=0.5, gzip;q=0.9"), Encoding::Gzip);
        assert_eq!(all("br;q=0, gzip"), Encoding::Gzip);
        assert_eq!(all("br; q=0, *;q=0.1"), Encoding::Gzip);
        assert_eq!(all("identity, br;q=0.2"), Encoding::Identity);
    }

    #[test]
    fn silence_and_nonsense_get_the_file_as_it_is() {
        for accept in ["", "deflate", "br;q=abc", ";;;,,", "identity;q=0", "*;q=0", "brotli"] {
            assert_eq!(all(accept), Encoding::Identity, "{accept:?}");
        }
    }

    #[test]
    fn old_names() {
        assert_eq!(all("x-gzip"), Encoding::Gzip);
    }
}
