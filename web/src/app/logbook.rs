//! The measurements this page knows: those that ship with it, those of the server, and those a person brought along.

use std::collections::BTreeMap;

use leptos::prelude::*;
use leptos::task::spawn_local;
use plimsoll_core::{Error, Measurement};
use plimsoll_web::compare::{Entry, List, Origin, merge};
use serde::Deserialize;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

use super::browser;

/// Under which names this browser keeps records that were opened; the record's id follows.
const KEPT: &str = "plimsoll.record.";

/// Most measurements taken from a server: more than a person looks through, and 500 a request.
const MOST: usize = 5000;

/// Whether everything there is has come.
#[derive(Clone, Debug, PartialEq)]
pub enum Gathering {
    /// Not yet.
    Under,
    /// It has.
    Done,
    /// It has, but for what could not be had: why.
    Failed(String),
}

/// The page's measurements.
#[derive(Clone, Copy)]
pub struct Logbook {
    /// What is known of each.
    pub entries: RwSignal<Vec<Entry>>,
    /// Whether all have come.
    pub gathering: RwSignal<Gathering>,
    /// How many the server has beyond those that were taken.
    pub beyond: RwSignal<u64>,
    /// Why a file or a link was not taken.
    pub refused: RwSignal<Option<String>>,
    /// The opened records that this browser keeps beyond this page, by id.
    pub kept: RwSignal<Vec<String>>,
    /// Whole records, as far as they have been asked for.
    records: RwSignal<BTreeMap<String, Result<Measurement, String>>>,
    /// Where the server's interface is, when there is one.
    api: RwSignal<Option<String>>,
}

/// What the page is told about where it is hosted (`site.json`).
#[derive(Debug, Deserialize)]
struct Site {
    api: Option<String>,
}

impl Logbook {
    /// An empty logbook that begins to fill.
    pub fn open() -> Self {
        let logbook = Self {
            entries: RwSignal::new(Vec::new()),
            gathering: RwSignal::new(Gathering::Under),
            beyond: RwSignal::new(0),
            refused: RwSignal::new(None),
            kept: RwSignal::new(Vec::new()),
            records: RwSignal::new(BTreeMap::new()),
            api: RwSignal::new(None),
        };
        logbook.remember();
        spawn_local(async move {
            let failed = logbook.gather().await.err();
            logbook.gathering.set(failed.map_or(Gathering::Done, Gathering::Failed));
        });
        logbook
    }

    /// The logbook of this page.
    pub fn get() -> Self {
        expect_context()
    }

    async fn gather(self) -> Result<(), String> {
        let shipped: List = json("measurements/index.json").await?;
        self.entries.update(|entries| merge(entries, shipped.items, Origin::Shipped));
        let site: Site = json("site.json").await?;
        let Some(api) = site.api else { return Ok(()) };
        self.api.set(Some(api.clone()));
        let mut cursor: Option<String> = None;
        let mut taken = 0;
        loop {
            let place = cursor.map(|c| format!("&cursor={c}")).unwrap_or_default();
            let list: List = json(&format!("{api}/measurements?status=all&limit=500{place}")).await?;
            taken += list.items.len();
            let total = list.total.unwrap_or(0);
            self.entries.update(|entries| merge(entries, list.items, Origin::Server));
            cursor = list.next;
            if cursor.is_none() || taken >= MOST {
                self.beyond.set(total.saturating_sub(taken as u64));
                return Ok(());
            }
        }
    }

    /// Opens what this browser kept of earlier visits. What is no record of this version any more stays where it is, for one
    /// that can read it.
    fn remember(self) {
        for key in browser::kept_under(KEPT) {
            if let Some(Ok(record)) = browser::kept(&key).map(|text| read(&text)) {
                let id = self.keep(record);
                self.kept.update(|kept| kept.push(id));
            }
        }
    }

    /// Lets go of all records that were opened in this browser.
    pub fn forget(self) {
        for key in browser::kept_under(KEPT) {
            browser::forget(&key);
        }
        self.kept.set(Vec::new());
        self.entries.update(|entries| entries.retain(|entry| entry.origin != Origin::Here));
    }

    /// Takes a record's text, and keeps it in this browser; where that cannot be, the page has it until it is reloaded, and
    /// says so.
    pub fn take(self, text: &str, name: &str) -> Option<String> {
        match read(text) {
            Ok(record) => {
                let id = self.keep(record);
                if self.kept.with_untracked(|kept| kept.contains(&id)) {
                    return Some(id);
                }
                if browser::keep(&format!("{KEPT}{id}"), text) {
                    self.kept.update(|kept| kept.push(id.clone()));
                } else {
                    self.refused.set(Some(format!(
                        "{name} is shown, but this browser has no room to keep it: it is gone when the page is loaded again. \
                         Forget the records opened before, or open it again from the file."
                    )));
                }
                Some(id)
            }
            Err(error) => {
                self.refused
                    .set(Some(format!("{name} was not taken. {}: {}; {}.", error.key, error.problem, error.hint)));
                None
            }
        }
    }

    /// Keeps a record in this page; its id.
    pub fn keep(self, record: Measurement) -> String {
        self.refused.set(None);
        let id = record.content_id();
        if let Ok(point) = record.point() {
            self.entries.update(|entries| merge(entries, vec![point], Origin::Here));
        }
        self.records.update(|records| drop(records.insert(id.clone(), Ok(record))));
        id
    }

    /// The whole record, or why it cannot be had; `None` while it is on its way.
    pub fn record(self, id: &str) -> Option<Result<Measurement, String>> {
        self.records.with(|records| records.get(id).cloned())
    }

    /// Fetches the whole record where it is not here yet.
    pub fn want(self, id: String) {
        if self.records.with_untracked(|records| records.contains_key(&id)) {
            return;
        }
        let origin = self.entries.with_untracked(|e| e.iter().find(|e| e.point.id == id).map(|e| e.origin));
        let plain = id.bytes().all(|b| b.is_ascii_hexdigit());
        let api = self.api.get_untracked();
        let address = match (origin, api) {
            (Some(Origin::Shipped), _) if plain => format!("measurements/{id}.json"),
            (Some(Origin::Server), Some(api)) if plain => format!("{api}/measurements/{id}"),
            _ => return,
        };
        spawn_local(async move {
            let record = match text(&address).await {
                Ok(text) => read(&text).map_err(|error| error.to_string()),
                Err(problem) => Err(problem),
            };
            self.records.update(|records| drop(records.insert(id, record)));
        });
    }
}

/// A good record from its text.
fn read(text: &str) -> Result<Measurement, Error> {
    let record = Measurement::from_json(text)?;
    match record.validate().into_iter().next() {
        Some(problem) => Err(problem),
        None => Ok(record),
    }
}

async fn json<T: serde::de::DeserializeOwned>(address: &str) -> Result<T, String> {
    let text = text(address).await?;
    serde_json::from_str(&text).map_err(|error| format!("{address} is not what it should be: {error}"))
}

/// A file of the host, as text.
async fn text(address: &str) -> Result<String, String> {
    let failed = |_: JsValue| format!("{address} could not be fetched");
    let window = web_sys::window().ok_or_else(|| "there is no page".to_owned())?;
    let response = JsFuture::from(window.fetch_with_str(address)).await.map_err(failed)?;
    let response: web_sys::Response = response.dyn_into().map_err(failed)?;
    if !response.ok() {
        return Err(format!("{address} could not be fetched: the host answered {}", response.status()));
    }
    let text = JsFuture::from(response.text().map_err(failed)?).await.map_err(failed)?;
    text.as_string().ok_or_else(|| format!("{address} is not text"))
}
