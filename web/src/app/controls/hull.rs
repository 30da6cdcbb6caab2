//! A model that somebody recorded: its file opened or dropped, what it is, and its axes.

use leptos::prelude::*;
use leptos::task::spawn_local;
use plimsoll_core::catalog;
use plimsoll_core::ledger::hull::{Hull, MAGIC, MOST_BYTES};
use plimsoll_core::scenario::{Change, HullModel, ModelSource, at};
use plimsoll_core::summary::{Recorded, range};
use plimsoll_core::{Error, Result};
use plimsoll_web::field;
use plimsoll_web::wording::sentence;

use crate::app::hulls;
use crate::app::planner::{Planner, in_full};
use crate::app::widgets::TextField;

/// What went wrong with a file that was opened.
#[derive(Clone, Copy)]
pub struct Refused(RwSignal<Option<Error>>);

/// The axes of any hull may be as long as whoever asks likes; the engine says where one is too long.
const LONGEST: u64 = 1 << 40;

impl Refused {
    /// Nothing yet.
    pub fn new() -> Self {
        Self(RwSignal::new(None))
    }

    /// Takes a file's bytes as the model.
    fn take(self, planner: Planner, bytes: &[u8]) {
        let taken = HullModel::of(bytes).and_then(|hull| {
            hulls::keep(&hull);
            planner.change(&Change::Model(ModelSource::Hull(hull)))
        });
        self.0.set(taken.err());
    }

    /// Reads a file and takes it, if it is a hull; what else it is, `otherwise` reads.
    pub fn read(self, planner: Planner, file: web_sys::File, otherwise: impl FnOnce(web_sys::File) + 'static) {
        if file.size() > MOST_BYTES as f64 {
            return match file.name().ends_with(".hull") {
                true => {
                    self.0.set(Some(Error::new(at::model::hull, "it is longer than any hull", "choose another file")))
                }
                false => otherwise(file),
            };
        }
        spawn_local(async move {
            match hulls::content(file.array_buffer()).await {
                Some(bytes) if bytes.starts_with(MAGIC) || file.name().ends_with(".hull") => self.take(planner, &bytes),
                _ => otherwise(file),
            }
        });
    }
}

#[component]
pub fn HullChoice(refused: Refused) -> impl IntoView {
    let planner = Planner::get();
    let chosen = move |event: web_sys::Event| {
        let input = event_target::<web_sys::HtmlInputElement>(&event);
        if let Some(file) = input.files().and_then(|files| files.get(0)) {
            let name = file.name();
            refused.read(planner, file, move |_| {
                let problem = format!("{name} is no hull");
                refused.0.set(Some(Error::new(at::model::hull, problem, "choose a file that plimsoll trace wrote")));
            });
        }
        // The same file can be chosen again.
        input.set_value("");
    };
    // Its file may come after its name, which a link says alone.
    let hull = Memo::new(move |_| {
        planner.below.scenario.with(|s| match &s.model.source {
            ModelSource::Hull(hull) => Some((hull.hash().to_owned(), hull.file().is_ok())),
            _ => None,
        })
    });
    let of_the_catalog =
        move || hull.with(|hull| hull.as_ref().is_some_and(|(hash, _)| catalog::recorded_as(hash).is_some()));
    let recorded = move || {
        hull.get()?;
        planner.scenario.with_untracked(|s| match &s.model.source {
            ModelSource::Hull(hull) => hull.file().ok().map(|file| (Recorded::of(file), axes(file))),
            _ => None,
        })
    };
    Effect::new(move |before: Option<Option<String>>| {
        let now = hull.get().map(|(hash, _)| hash);
        if before.is_some_and(|before| before != now) && now.is_some() {
            refused.0.set(None);
        }
        now
    });
    let open = planner.scenario.with_untracked(|s| matches!(s.model.source, ModelSource::Hull(_)));
    view! {
        <details class="fold" prop:open=move || open || hull.get().is_some() || refused.0.get().is_some()>
            <summary>
                {move || if of_the_catalog() { "As recorded" } else { "Recorded" }}
            </summary>
            <div class="field" class:has-error=move || refused.0.get().is_some()>
                <label for="hull-file">"A .hull file of plimsoll trace, opened here or dropped anywhere on the page"</label>
                <input
                    id="hull-file"
                    data-testid="hull-file"
                    type="file"
                    accept=".hull"
                    aria-describedby="hull-help hull-error"
                    on:change=chosen
                />
                <p class="help" id="hull-help">
                    "It is read here and sent nowhere. A link holds it where it is short enough."
                </p>
                <p class="error" id="hull-error" role="alert" data-testid="hull-error">
                    {move || refused.0.get().map(|fault| format!("{} {}", sentence(&fault.problem), sentence(&fault.hint)))}
                </p>
            </div>
            {move || {
                recorded()
                    .map(|(recorded, axes)| {
                        view! {
                            <div class="size-grid">
                                {axes.into_iter().map(|(name, help)| view! { <AxisField name help/> }).collect_view()}
                            </div>
                            <dl class="recorded" data-testid="hull">
                                {recorded
                                    .lines
                                    .into_iter()
                                    .map(|(name, says)| view! { <div><dt>{name}</dt><dd>{says}</dd></div> })
                                    .collect_view()}
                            </dl>
                        }
                    })
            }}
        </details>
    }
}

/// Name of each axis but the batch, and what it may be.
fn axes(file: &Hull) -> Vec<(String, String)> {
    let of = |axis: &plimsoll_core::ledger::hull::Axis| (axis.name.clone(), range(axis));
    file.axes.iter().skip(1).map(of).collect()
}

#[component]
fn AxisField(name: String, help: String) -> impl IntoView {
    let planner = Planner::get();
    let own = name.clone();
    let value = Signal::derive(move || {
        planner.below.scenario.with(|s| match &s.model.source {
            ModelSource::Hull(hull) => hull.axes().get(&own).map(ToString::to_string).unwrap_or_default(),
            _ => String::new(),
        })
    });
    let own = name.clone();
    let put = move |value: u64| -> Result<()> {
        let source = planner.scenario.with_untracked(|s| s.model.source.clone());
        let ModelSource::Hull(hull) = source else { return Ok(()) };
        let hull = hull.with_axis(&own, value);
        hull.values(planner.scenario.with_untracked(|s| s.input.batch))?;
        planner.change(&Change::Model(ModelSource::Hull(hull)))
    };
    let set = Callback::new(move |text: String| {
        let value = field::whole(&text, 1, LONGEST)?;
        put(value).map_err(|fault| in_full(&fault))
    });
    let fault = planner.fault_at(format!("model.{name}"));
    view! { <TextField id=format!("axis-{name}") label=name help value fault set/> }
}
