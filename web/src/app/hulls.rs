//! Hulls that this page has: a scenario names one by its hash, and the file is kept here.

use std::cell::RefCell;
use std::collections::BTreeMap;

use leptos::prelude::*;
use leptos::task::spawn_local;
use plimsoll_core::catalog;
use plimsoll_core::scenario::{Change, HullModel, ModelSource, at};
use plimsoll_core::{Error, Result, Scenario};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

use super::planner::Planner;

thread_local! {
    static KNOWN: RefCell<BTreeMap<String, HullModel>> = const { RefCell::new(BTreeMap::new()) };
}

/// Keeps a hull for as long as the page is open.
pub fn keep(hull: &HullModel) {
    KNOWN.with_borrow_mut(|known| drop(known.insert(hull.hash().to_owned(), hull.clone())));
}

/// The scenario with the file of its hull, where the page has it.
pub fn with_file(scenario: Scenario) -> Scenario {
    let ModelSource::Hull(hull) = &scenario.model.source else { return scenario };
    if hull.file().is_ok() {
        keep(hull);
        return scenario;
    }
    let known = KNOWN.with_borrow(|known| known.get(hull.hash()).cloned());
    let filled = known.and_then(|known| scenario.clone().with_hull(&known).ok());
    filled.unwrap_or(scenario)
}

/// The hash of a scenario's hull that the page does not have.
pub fn missing(scenario: &Scenario) -> Option<String> {
    match &scenario.model.source {
        ModelSource::Hull(hull) if hull.file().is_err() => Some(hull.hash().to_owned()),
        _ => None,
    }
}

/// What keeps the hull that the page has from being asked as the scenario says.
pub fn fault(scenario: &Scenario) -> Option<Error> {
    let ModelSource::Hull(hull) = &scenario.model.source else { return None };
    let known = KNOWN.with_borrow(|known| known.get(hull.hash()).cloned())?;
    scenario.clone().with_hull(&known).err()
}

/// Takes a model of the catalog. The file of a recording is asked for first, where the page does not have it; what is wrong
/// then is said when it has come.
///
/// # Errors
/// The model is refused.
pub fn choose(planner: Planner, id: &str) -> Result<()> {
    let hash = match ModelSource::called(id) {
        ModelSource::Hull(hull) => hull.hash().to_owned(),
        other => return planner.change(&Change::Model(other)),
    };
    if let Some(hull) = KNOWN.with_borrow(|known| known.get(&hash).cloned()) {
        return planner.change(&Change::Model(ModelSource::Hull(hull)));
    }
    spawn_local(async move {
        let came = match bytes(&hash).await {
            Ok(bytes) => HullModel::of(&bytes),
            Err(why) => Err(Error::new(at::model::catalog, why, "try it again")),
        };
        let taken = came.and_then(|hull| {
            keep(&hull);
            planner.change(&Change::Model(ModelSource::Hull(hull)))
        });
        if let Err(fault) = taken {
            planner.fault.set(Some(fault));
        }
    });
    Ok(())
}

/// Asks the host for a hull; what comes is shown if it is still asked about.
pub fn fetch(planner: Planner, hash: String) {
    spawn_local(async move {
        let found = bytes(&hash).await.and_then(|bytes| HullModel::of(&bytes).map_err(|error| error.problem));
        match found {
            Ok(hull) if hull.hash() == hash => {
                keep(&hull);
                planner.came();
            }
            other => {
                let why = other.err().unwrap_or_else(|| "the host has another file under its hash".to_owned());
                let asked = planner.scenario.with_untracked(missing);
                if asked.as_deref() == Some(&*hash) {
                    let hint = "open the .hull file here, or ask whoever made the link for it";
                    planner.fault.set(Some(Error::new(at::model::hull, why, hint)));
                }
            }
        }
    });
}

/// The file of the host's with this hash: what comes with the catalog lies beside the planner's own files.
async fn bytes(hash: &str) -> std::result::Result<Vec<u8>, String> {
    let digits = hash.strip_prefix("sha256:").unwrap_or_default();
    let nothing = |_: JsValue| "the link names a hull that this host does not have".to_owned();
    let window = web_sys::window().ok_or_else(|| "there is no page".to_owned())?;
    let address = match catalog::place_of(hash) {
        Some(_) => format!("hulls/{digits}.hull"),
        None => format!("api/v1/hulls/{digits}"),
    };
    let answer = JsFuture::from(window.fetch_with_str(&address)).await.map_err(nothing)?;
    let answer: web_sys::Response = answer.dyn_into().map_err(nothing)?;
    if !answer.ok() {
        return Err(nothing(JsValue::NULL));
    }
    content(answer.array_buffer().map_err(nothing)?).await.ok_or_else(|| nothing(JsValue::NULL))
}

/// What a promise of bytes holds in the end.
pub async fn content(promise: js_sys::Promise) -> Option<Vec<u8>> {
    let buffer = JsFuture::from(promise).await.ok()?;
    Some(js_sys::Uint8Array::new(&buffer).to_vec())
}
