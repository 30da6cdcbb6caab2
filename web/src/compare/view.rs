//! What the compare page shows, as its address says it: `#/compare?by=gpu&metric=process&family=llama&id=...`.

use plimsoll_core::measurement::{DeviceKind, Facet, MeasurementPoint, Metric};

use super::Entry;

/// The page's place behind `#`.
pub const PLACE: &str = "/compare";

/// What is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// Which peak.
    pub metric: Metric,
    /// What the table groups by.
    pub by: Facet,
    /// Only records with these values.
    pub only: Vec<(Facet, String)>,
    /// The record that is looked at.
    pub selected: Option<String>,
}

impl Default for View {
    fn default() -> Self {
        Self { metric: Metric::Allocated, by: Facet::Family, only: Vec::new(), selected: None }
    }
}

/// By what the page lets people choose.
pub const FILTERS: [Facet; 7] = [
    Facet::Gpu,
    Facet::Family,
    Facet::Precision,
    Facet::Optimizer,
    Facet::Checkpointing,
    Facet::Training,
    Facet::Torch,
];

impl View {
    /// Whether an address (or what stands behind its `#`) is the compare page's.
    pub fn is_at(fragment: &str) -> bool {
        let place = fragment.trim_start_matches('#');
        place.strip_prefix(PLACE).is_some_and(|rest| rest.is_empty() || rest.starts_with('?'))
    }

    /// Reads what stands behind `#`; what cannot be read takes its default.
    pub fn parse(fragment: &str) -> Self {
        let mut view = Self::default();
        let query = fragment.split_once('?').map_or("", |(_, query)| query);
        for (name, text) in query.split('&').filter_map(|part| part.split_once('=')) {
            let text = decoded(text);
            match name {
                "metric" => view.metric = Metric::ALL.into_iter().find(|m| m.as_str() == text).unwrap_or(view.metric),
                "by" => view.by = Facet::group(&text).unwrap_or(view.by),
                "id" => view.selected = Some(text),
                other => {
                    if let Some(by) = FILTERS.into_iter().find(|by| by.as_str() == other) {
                        view.set(by, Some(text));
                    }
                }
            }
        }
        view
    }

    /// What stands behind `#`; only what is not the default.
    pub fn fragment(&self) -> String {
        let default = Self::default();
        let mut parts = Vec::new();
        if self.metric != default.metric {
            parts.push(format!("metric={}", self.metric.as_str()));
        }
        if self.by != default.by {
            parts.push(format!("by={}", self.by.as_str()));
        }
        for (by, value) in &self.only {
            parts.push(format!("{}={}", by.as_str(), encoded(value)));
        }
        if let Some(id) = &self.selected {
            parts.push(format!("id={}", encoded(id)));
        }
        let query = if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) };
        format!("{PLACE}{query}")
    }

    /// The value records must have.
    pub fn only(&self, by: Facet) -> Option<&str> {
        self.only.iter().find(|(b, _)| *b == by).map(|(_, value)| value.as_str())
    }

    /// Sets it, or takes it away.
    pub fn set(&mut self, by: Facet, value: Option<String>) {
        self.only.retain(|(b, _)| *b != by);
        if let Some(value) = value {
            self.only.push((by, value));
            self.only.sort();
        }
    }

    /// Whether a record is shown; `but` is left out of account.
    fn shows(&self, point: &MeasurementPoint, but: Option<Facet>) -> bool {
        self.only.iter().filter(|(by, _)| Some(*by) != but).all(|(by, value)| by.of(point) == *value)
    }

    /// The records that are shown.
    pub fn shown<'e>(&self, entries: &'e [Entry]) -> Vec<&'e Entry> {
        entries.iter().filter(|e| self.shows(&e.point, None)).collect()
    }

    /// The values one can choose, each with the number of records it would leave, in order.
    pub fn choices(&self, entries: &[Entry], by: Facet) -> Vec<(String, usize)> {
        let mut counts = std::collections::BTreeMap::new();
        for entry in entries.iter().filter(|e| self.shows(&e.point, Some(by))) {
            *counts.entry(by.of(&entry.point)).or_insert(0) += 1;
        }
        // A link may ask for what is not there any more.
        if let Some(value) = self.only(by) {
            counts.entry(value.to_owned()).or_insert(0);
        }
        counts.into_iter().collect()
    }
}

/// Why a record stands beside no estimate; empty when it does.
pub fn why_alone(point: &MeasurementPoint, metric: Metric) -> &'static str {
    if point.error(metric).is_some() {
        ""
    } else if point.device_kind == DeviceKind::Cpu {
        "measured on a processor: only the memory of the process is known, with Python in it"
    } else if !point.finished {
        "the run did not finish"
    } else if point.estimated.is_none() {
        "the engine does not estimate it"
    } else {
        "the device does not tell this figure"
    }
}

fn encoded(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~".contains(&b);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|h| std::str::from_utf8(h).ok()).and_then(|h| u8::from_str_radix(h, 16).ok());
        match (first, hex) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = tail;
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::Origin;
    use super::super::tests::point;
    use super::*;

    #[test]
    fn an_address_comes_back_as_it_was() {
        let mut view = View { metric: Metric::Process, by: Facet::Torch, ..View::default() };
        view.set(Facet::Gpu, Some("Example card é & co = 50 %".to_owned()));
        view.set(Facet::Optimizer, Some("adamw foreach".to_owned()));
        view.selected = Some("abc".to_owned());
        let text = view.fragment();
        assert!(View::is_at(&text) && View::is_at(&format!("#{text}")));
        assert_eq!(View::parse(&text), view, "{text}");
        assert_eq!(View::default().fragment(), PLACE);
    }

    #[test]
    fn a_bad_address_is_the_page_without_it() {
        for text in ["/compare", "/compare?", "/compare?metric=weight&by=&x=%zz&%&=", "#/compare?by=colour"] {
            assert_eq!(View::parse(text), View::default(), "{text}");
        }
        assert!(!View::is_at("#m=abc") && !View::is_at("#/compared") && !View::is_at(""));
    }

    #[test]
    fn choices_count_what_they_would_leave() {
        let mut second = point("b", 1, 1);
        second.precision = "bf16".to_owned();
        let entries: Vec<Entry> =
            [point("a", 1, 1), second].map(|point| Entry { point, origin: Origin::Shipped }).into();
        let mut view = View::default();
        let all = [("bf16".to_owned(), 1), ("fp16-amp".to_owned(), 1)];
        assert_eq!(view.choices(&entries, Facet::Precision), all);
        view.set(Facet::Precision, Some("bf16".to_owned()));
        assert_eq!(view.choices(&entries, Facet::Precision), all);
        assert_eq!(view.choices(&entries, Facet::Family), [("gpt2".to_owned(), 1)]);
        assert_eq!(view.shown(&entries).len(), 1);
        view.set(Facet::Precision, Some("fp8".to_owned()));
        assert!(view.choices(&entries, Facet::Precision).contains(&("fp8".to_owned(), 0)));
        assert!(view.shown(&entries).is_empty());
    }
}
