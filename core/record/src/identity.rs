//! What would tell who took a measurement, or on which machine: found in texts, and taken out of them.

use plimsoll_ground::is_hidden;
use serde_json::Value;

use super::Measurement;

/// What takes the place of a word that was taken out.
const TAKEN_OUT: &str = "[left out]";

impl Measurement {
    /// Takes out of every free text what [`Measurement::validate`] would refuse as identifying: paths, addresses,
    /// serial numbers, in events, in the scenario's config and in the estimate's copy of it. For the writer of a record;
    /// a reader only validates.
    pub fn scrub(&mut self, known: &Known) {
        for event in &mut self.events {
            event.message = scrubbed_of(&event.message, known);
        }
        for value in [Some(&mut self.scenario), self.estimate.as_mut()].into_iter().flatten() {
            scrub_value(value, known);
        }
        self.device.name = scrubbed_of(&self.device.name, known);
        for rank in &mut self.ranks {
            rank.device = rank.device.as_deref().map(|name| scrubbed_of(name, known));
        }
        self.allocator.conf = self.allocator.conf.as_deref().map(|conf| scrubbed_of(conf, known));
    }
}

fn scrub_value(value: &mut Value, known: &Known) {
    match value {
        Value::String(text) if identifying(text).is_some() || text.chars().any(is_hidden) || known.is_in(text) => {
            *text = scrubbed_of(text, known);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| scrub_value(item, known)),
        Value::Object(map) => map.values_mut().for_each(|item| scrub_value(item, known)),
        _ => {}
    }
}

/// `text` on one line, without hidden characters and without words that identify, cut to [`super::MESSAGE`].
pub fn scrubbed(text: &str) -> String {
    scrubbed_of(text, &Known::default())
}

/// As [`scrubbed`], and without the names that are known.
fn scrubbed_of(text: &str, known: &Known) -> String {
    let words: Vec<&str> =
        text.split(|c: char| c.is_whitespace() || is_hidden(c)).filter(|word| !word.is_empty()).collect();
    let mut out = String::new();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        at += 1;
        let identifies = identifying(word).is_some();
        let shown = if identifies || known.is_in(word) { TAKEN_OUT } else { word };
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(shown);
        // Folders have spaces in their names: up to the last word that goes on with the path, all of it goes.
        if identifies && (has_path(word) || has_separator(word)) && !ends(word) {
            let rest = words.get(at..).unwrap_or_default();
            let open = rest.iter().position(|word| ends(word)).map_or(rest.len(), |end| end + 1);
            let near = rest.get(..open.min(SPACES)).unwrap_or_default();
            at += near.iter().rposition(|word| has_separator(word)).map_or(0, |last| last + 1);
        }
    }
    // Words that are harmless alone may identify together: `\\\\server share`.
    if identifying(&out).is_some() {
        return TAKEN_OUT.to_owned();
    }
    out.chars().take(super::MESSAGE).collect()
}

/// How many words a path may go on for: surnames have several, and so have folders.
const SPACES: usize = 6;

fn has_separator(word: &str) -> bool {
    word.contains(['/', '\\'])
}

/// Whether a path that goes on to this word ends with it.
fn ends(word: &str) -> bool {
    word.ends_with(['"', '\'', ',', ';', ':', ')', ']', '>'])
}

/// Names that are known to identify: of the user, the machine, and the folders that are theirs.
#[derive(Clone, Debug, Default)]
pub struct Known(Vec<String>);

impl Known {
    /// Of these names, each with its words: `John Smithson` is known by either. A name of a machine is known by its first
    /// label too. Names as short as two characters, and those that are nobody's, are left alone.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        const NOBODY: [&str; 11] =
            ["root", "user", "users", "home", "admin", "ubuntu", "runner", "localhost", "public", "default", "local"];
        let mut all: Vec<String> = names
            .into_iter()
            .flat_map(|name| name.split(|c: char| !c.is_alphanumeric()).chain([name]))
            .map(str::to_lowercase)
            .filter(|name| name.chars().count() > 2 && !NOBODY.contains(&name.as_str()))
            .collect();
        all.sort_unstable();
        all.dedup();
        Self(all)
    }

    /// Whether a word has one of them in it, whatever the case of its letters, as a word of its own.
    fn is_in(&self, word: &str) -> bool {
        let lower = word.to_lowercase();
        let edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
        self.0.iter().any(|name| {
            lower.match_indices(name.as_str()).any(|(at, _)| {
                let after = lower.get(at + name.len()..).and_then(|rest| rest.chars().next());
                edge(lower.get(..at).and_then(|rest| rest.chars().next_back())) && edge(after)
            })
        })
    }
}

/// What is looked for, and whether a text has it.
type Check = (&'static str, fn(&str) -> bool);

/// What in `text` identifies a person or a machine, if anything does.
pub fn identifying(text: &str) -> Option<&'static str> {
    let checks: [Check; 7] = [
        ("a path", has_path),
        ("a path", has_relative_path),
        ("an e-mail address", has_email),
        ("an IP address", has_ip),
        ("a hardware address", has_hardware_address),
        ("a unique id", has_uuid),
        ("a serial number", has_serial),
    ];
    checks.into_iter().find(|(_, found)| found(text)).map(|(what, _)| what)
}

/// An absolute path of two steps or more, one below a home, a drive's, a share's or a `file://`. The path of a web
/// address is none: PyTorch's messages point to its documentation.
fn has_path(text: &str) -> bool {
    let lower = text.to_lowercase();
    if ["file:/", "/home/", "/users/", "\\users\\", "/root/", "~/", "\\\\"].iter().any(|s| lower.contains(s)) {
        return true;
    }
    let bytes = text.as_bytes();
    let at = |i: usize| bytes.get(i).copied().unwrap_or(b' ');
    let name = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b) || b >= 0x80;
    for (i, byte) in bytes.iter().enumerate() {
        let before = i.checked_sub(1).map_or(b' ', at);
        if *byte == b'/' && !name(before) && before != b'/' && before != b':' && name(at(i + 1)) {
            let rest = bytes.get(i + 1..).unwrap_or_default();
            let end = rest.iter().position(|b| !name(*b)).unwrap_or(rest.len());
            if rest.get(end) == Some(&b'/') {
                return true;
            }
        }
        // C:\, but not the end of a word (`GiB:\`).
        if *byte == b':' && before.is_ascii_alphabetic() && at(i + 1) == b'\\' {
            let letter_alone = i < 2 || !at(i - 2).is_ascii_alphanumeric();
            if letter_alone {
                return true;
            }
        }
    }
    false
}

/// A path that begins anywhere: `./a`, `..\\a`, one of three steps and more whose names are not numbers, one with
/// backslashes, and what is left of one whose beginning was taken out.
fn has_relative_path(text: &str) -> bool {
    let words = || text.split(|c: char| c.is_whitespace() || "\"'`()[]{}<>,;=".contains(c)).filter(|w| !w.is_empty());
    let is_name = |part: &str| {
        part.chars().any(char::is_alphabetic) && part.chars().all(|c| c.is_alphanumeric() || "._-+~@".contains(c))
    };
    let steps = |word: &str| word.split(['/', '\\']).filter(|part| is_name(part)).count();
    // Of a web address the path is none of these.
    let is_web = |word: &str| word.contains("://");
    let begins = |word: &str| ["./", "../", ".\\", "..\\"].iter().any(|start| word.starts_with(start));
    let backslashed = |word: &str| word.contains('\\') && steps(word) >= 2;
    let drive = |word: &str| {
        let mut chars = word.chars();
        let letter = chars.next().is_some_and(|c| c.is_ascii_alphabetic());
        letter && chars.next() == Some(':') && chars.next().is_some_and(|c| c == '/' || c == '\\')
    };
    let whole = words().any(|word| {
        let deep = steps(word) >= 3 && word.contains('/');
        !is_web(word) && (begins(word) || backslashed(word) || drive(word) || deep)
    });
    let rest = text.match_indices("<path>").any(|(at, marker)| {
        let after = text.get(at + marker.len()..).unwrap_or_default();
        after
            .split_whitespace()
            .take(SPACES)
            .take_while(|word| !ends(word))
            .any(|word| !is_web(word) && has_separator(word))
    });
    whole || rest
}

/// `name@host`, also of a host without a dot, and as people write it who hide it: `name(at)host`.
fn has_email(text: &str) -> bool {
    let plain = text.to_lowercase().replace("(at)", "@").replace("[at]", "@").replace("{at}", "@");
    plain.split(|c: char| c.is_whitespace() || "<>()[]\"',;:".contains(c)).any(|word| {
        word.split_once('@').is_some_and(|(name, host)| {
            let name = name.rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            let host = host.split(|c: char| !c.is_alphanumeric() && c != '-').next().unwrap_or_default();
            // An op that a function of autograd ran: `mul@MulBackward0`.
            let autograd = host.contains("backward") || host == "accumulategrad";
            !name.is_empty() && host.len() >= 2 && host.chars().any(char::is_alphabetic) && !autograd
        })
    })
}

fn has_ip(text: &str) -> bool {
    let four = text.split(|c: char| !(c.is_ascii_digit() || c == '.')).any(|word| {
        let parts: Vec<&str> = word.trim_matches('.').split('.').collect();
        parts.len() == 4 && parts.iter().all(|p| p.parse::<u8>().is_ok())
    });
    // Eight groups, or fewer around one `::`; a name of C++ (`at::native`) has letters that no digit is.
    let six = text.split(|c: char| !(c.is_alphanumeric() || c == ':' || c == '_')).any(|word| {
        let word = word.trim_end_matches(|c: char| c == ':' && !word.ends_with("::"));
        let groups = word.split(':').filter(|g| !g.is_empty()).count();
        let hex = word.bytes().all(|b| b.is_ascii_hexdigit() || b == b':') && word.bytes().any(|b| b.is_ascii_digit());
        let short = hex && word.split(':').all(|g| g.len() <= 4);
        short && (groups == 8 || (groups >= 2 && word.contains("::")))
    });
    four || six
}

fn has_hardware_address(text: &str) -> bool {
    text.split(|c: char| !(c.is_ascii_hexdigit() || c == ':' || c == '-')).any(|word| {
        [':', '-'].iter().any(|mark| {
            let parts: Vec<&str> = word.split(*mark).collect();
            parts.len() == 6 && parts.iter().all(|p| p.len() == 2 && p.chars().all(|c| c.is_ascii_hexdigit()))
        })
    })
}

fn has_uuid(text: &str) -> bool {
    let hex = |text: &str| text.chars().all(|c| c.is_ascii_hexdigit());
    let uuid = text.split(|c: char| !(c.is_ascii_hexdigit() || c == '-')).any(|word| {
        let parts: Vec<&str> = word.trim_matches('-').split('-').collect();
        parts.windows(5).any(|p| p.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12]))
    });
    // What NVIDIA's tools print: GPU-1a2b3c4d-..., MIG-..., also cut short.
    let named = ["GPU-", "MIG-", "gpu-", "mig-"].iter().any(|prefix| {
        text.match_indices(prefix).any(|(i, _)| {
            let id: String = text.get(i + prefix.len()..).unwrap_or_default().chars().take(8).collect();
            id.len() == 8 && hex(&id) && id.chars().any(|c| c.is_ascii_digit())
        })
    });
    uuid || named
}

/// Sixteen hexadecimal digits and more in one word, letters and digits mixed (an address in memory has fewer), or a
/// number of thirteen digits and more (bytes of any card have fewer).
fn has_serial(text: &str) -> bool {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.')).any(|word| {
        let word = word.trim_matches('.');
        let digits = word.bytes().filter(u8::is_ascii_digit).count();
        let hex = word.bytes().all(|b| b.is_ascii_hexdigit());
        // As makers print them: capitals and digits in one, mostly digits, longer than the name of any card.
        let capitals = word.bytes().filter(u8::is_ascii_uppercase).count();
        let printed = capitals > 0 && capitals + digits == word.len() && word.len() >= 11 && digits >= 6;
        (hex && word.len() >= 16 && digits > 0) || (digits == word.len() && digits >= 13) || printed
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_identifies_is_found() {
        for (text, what) in [
            ("No module named torch in /home/ada/venv/bin", "a path"),
            ("opened (/opt/venv/lib/python3.12/site.py)", "a path"),
            ("C:\\Users\\ada\\run.py", "a path"),
            ("at D:\\data", "a path"),
            ("\\\\nas\\share", "a path"),
            ("~/models/llama", "a path"),
            ("file:///x", "a path"),
            ("path=/mnt/data/ada", "a path"),
            ("ask ada@example.org.", "an e-mail address"),
            ("listening on 192.168.1.20:7070", "an IP address"),
            ("from fe80::1ff:fe23:4567:890a", "an IP address"),
            ("eth0 aa:bb:cc:dd:ee:0f", "a hardware address"),
            ("device GPU-1a2b3c4d", "a unique id"),
            ("550e8400-e29b-41d4-a716-446655440000", "a unique id"),
            ("board 1320521046789", "a serial number"),
            ("key 0123456789abcdef0123", "a serial number"),
            ("<path> Beeblebrox/torch/lib.py", "a path"),
            ("<path> beeble/x.py", "a path"),
            ("<path> Beeblebrox\\torch\\x.py", "a path"),
            ("C:<path> Smithson/x.py", "a path"),
            ("C:/Users/John Smithson/x.py", "a path"),
            ("c:\\users\\john smithson\\code\\x.py", "a path"),
            ("Beeblebrox/torch/lib.py", "a path"),
            ("./rel/secretproject/x.py", "a path"),
            ("..\\secret", "a path"),
            ("zaphod@localhost", "an e-mail address"),
            ("zaphod(at)example.org", "an e-mail address"),
            ("git@heartofgold:x", "an e-mail address"),
            ("fe80::1", "an IP address"),
            ("at [fe80::1]:80", "an IP address"),
            ("serial ABC123456789", "a serial number"),
        ] {
            assert_eq!(identifying(text), Some(what), "{text}");
            assert_eq!(identifying(&scrubbed(text)), None, "{text}");
        }
    }

    #[test]
    fn what_does_not_identify_stays() {
        for text in [
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 11.60 GiB of which 1.20 GiB \
             is free. See documentation for Memory Management \
             (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)",
            "NVIDIA GeForce RTX 5070 Ti Laptop GPU",
            "AMD Radeon RX 7900 XTX",
            "Intel(R) Core(TM) i7-13700H @ 2.40GHz",
            "meta-llama/Llama-3.2-1B",
            "120 tokens/s, 8/16 done, loss / accumulation, and/or",
            "expandable_segments:True,max_split_size_mb:128",
            "12884901888 bytes at 0x7f3a5c000000, loss 0.30000000000000004",
            "2026-11-20 10:04:05",
            "model.layers.0.self_attn::forward",
            "_log_softmax_backward_data@LogSoftmaxBackward0, add@AccumulateGrad",
            "c10::Error at::native::add std::bad_alloc",
            "H100-SXM5-80GB, RTX6000, GFX1100, MI300X",
        ] {
            assert_eq!(identifying(text), None, "{text}");
            assert_eq!(scrubbed(text), text);
        }
        assert_eq!(scrubbed("a\u{202e}b\u{200b}c \u{e0041}d"), "a b c d", "nothing hidden stays");
        assert_eq!(scrubbed("Error in\n\t/home/ada/x.py:\u{7} bad"), "Error in [left out] bad");
        assert_eq!(scrubbed(&"x".repeat(5000)).len(), super::super::MESSAGE);
    }

    #[test]
    fn a_path_goes_with_the_words_that_belong_to_it() {
        for (text, left) in [
            ("in /opt/Zaphod Beeblebrox/torch/lib.py line 3", "in [left out] line 3"),
            ("no \"/home/zaphod van der beeble/x.py\" here", "no [left out] here"),
            ("at C:\\Users\\Zaphod Beeblebrox\\torch\\x.py: bad", "at [left out] bad"),
            ("C:/Users/John Smithson/x.py", "[left out]"),
            ("\\\\nas\\Zaphod Beeblebrox\\x failed", "[left out] failed"),
            ("/a/b, then 3 tokens/s", "[left out] then 3 tokens/s"),
        ] {
            assert_eq!(scrubbed(text), left, "{text}");
        }
    }

    #[test]
    fn names_that_are_known_go_whatever_their_case() {
        let known = Known::new(["Zaphod Beeblebrox", "heartofgold42.example.org", "root", "zb"]);
        for word in ["HEARTOFGOLD42", "HeartOfGold42:", "beeblebrox", "x_ZAPHOD", "(zaphod)"] {
            assert!(known.is_in(word), "{word}");
        }
        for word in ["root", "zaphodic", "zb", "torch"] {
            assert!(!known.is_in(word), "{word}");
        }
    }
}
