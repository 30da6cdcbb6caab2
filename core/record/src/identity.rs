//! What would tell who took a measurement, or on which machine: found in texts, and taken out of them.

use serde_json::Value;

use super::Measurement;

/// What takes the place of a word that was taken out.
const TAKEN_OUT: &str = "[left out]";

impl Measurement {
    /// Takes out of every free text what [`Measurement::validate`] would refuse as identifying: paths, addresses,
    /// serial numbers, in events, in the scenario's config and in the estimate's copy of it. For the writer of a record;
    /// a reader only validates.
    pub fn scrub(&mut self) {
        for event in &mut self.events {
            event.message = scrubbed(&event.message);
        }
        for value in [Some(&mut self.scenario), self.estimate.as_mut()].into_iter().flatten() {
            scrub_value(value);
        }
        self.device.name = scrubbed(&self.device.name);
        self.allocator.conf = self.allocator.conf.as_deref().map(scrubbed);
    }
}

fn scrub_value(value: &mut Value) {
    match value {
        Value::String(text) if identifying(text).is_some() => *text = scrubbed(text),
        Value::Array(items) => items.iter_mut().for_each(scrub_value),
        Value::Object(map) => map.values_mut().for_each(scrub_value),
        _ => {}
    }
}

/// `text` on one line, without control characters and without words that identify, cut to [`super::MESSAGE`].
pub fn scrubbed(text: &str) -> String {
    let mut out = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(if identifying(word).is_some() { TAKEN_OUT } else { word });
    }
    // Words that are harmless alone may identify together: `\\server share`.
    if identifying(&out).is_some() {
        return TAKEN_OUT.to_owned();
    }
    out.chars().take(super::MESSAGE).collect()
}

/// What is looked for, and whether a text has it.
type Check = (&'static str, fn(&str) -> bool);

/// What in `text` identifies a person or a machine, if anything does.
pub fn identifying(text: &str) -> Option<&'static str> {
    let checks: [Check; 6] = [
        ("a path", has_path),
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

fn has_email(text: &str) -> bool {
    text.split(|c: char| c.is_whitespace() || "<>()[]\"',;:".contains(c)).any(|word| {
        word.split_once('@').is_some_and(|(name, host)| {
            let end = host.trim_end_matches(['.', '!', '?']).rsplit_once('.').map(|(_, end)| end);
            !name.is_empty() && end.is_some_and(|end| end.len() >= 2 && end.chars().all(char::is_alphabetic))
        })
    })
}

fn has_ip(text: &str) -> bool {
    let four = text.split(|c: char| !(c.is_ascii_digit() || c == '.')).any(|word| {
        let parts: Vec<&str> = word.trim_matches('.').split('.').collect();
        parts.len() == 4 && parts.iter().all(|p| p.parse::<u8>().is_ok())
    });
    // Eight groups, or fewer around one `::`.
    let six = text.split(|c: char| !(c.is_ascii_hexdigit() || c == ':')).any(|word| {
        let groups = word.split(':').filter(|g| !g.is_empty()).count();
        word.split(':').all(|g| g.len() <= 4) && (groups == 8 || (groups >= 3 && word.contains("::")))
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
        (hex && word.len() >= 16 && digits > 0) || (digits == word.len() && digits >= 13)
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
        ] {
            assert_eq!(identifying(text), None, "{text}");
            assert_eq!(scrubbed(text), text);
        }
        assert_eq!(scrubbed("Error in\n\t/home/ada/x.py:\u{7} bad"), "Error in [left out] bad");
        assert_eq!(scrubbed(&"x".repeat(5000)).len(), super::super::MESSAGE);
    }
}
