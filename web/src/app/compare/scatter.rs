//! Measured across, estimated up.

use leptos::html::Div;
use leptos::prelude::*;
use plimsoll_web::compare::scatter::Scatter;
use plimsoll_web::compare::{Entry, percent, recipe};
use plimsoll_web::number;

use super::shown;
use crate::app::browser;
use crate::app::route::Route;

#[component]
pub fn ScatterSection() -> impl IntoView {
    let route = Route::get();
    let frame = NodeRef::<Div>::new();
    let width = RwSignal::new(browser::window_width().min(560.0));
    Effect::new(move || {
        if let Some(frame) = frame.get() {
            browser::watch_width(&frame, move |w| width.set(w.round().max(220.0)));
        }
    });
    let layout = Memo::new(move |_| {
        let entries = shown();
        let entries: Vec<&Entry> = entries.iter().collect();
        Scatter::new(&entries, route.view.with(|v| v.metric), width.get())
    });
    let step = move |event: web_sys::KeyboardEvent| {
        let (dx, dy) = match event.key().as_str() {
            "ArrowLeft" => (-1.0, 0.0),
            "ArrowRight" => (1.0, 0.0),
            "ArrowUp" => (0.0, -1.0),
            "ArrowDown" => (0.0, 1.0),
            _ => return,
        };
        event.prevent_default();
        let next = layout.with_untracked(|layout| {
            let from = route.view.with_untracked(|v| v.selected.clone());
            match from.filter(|id| layout.dots.iter().any(|d| d.id == *id)) {
                Some(from) => layout.towards(&from, dx, dy).map(|d| d.id.clone()),
                None => layout.dots.first().map(|d| d.id.clone()),
            }
        });
        if let Some(id) = next {
            route.look(|v| v.selected = Some(id));
        }
    };
    let text = move || {
        let id = route.view.with(|v| v.selected.clone())?;
        let entry = shown().into_iter().find(|e| e.point.id == id)?;
        Some(spoken(&entry))
    };
    view! {
        <section class="section" aria-labelledby="scatter-title">
            <header class="section-head">
                <h3 id="scatter-title">"Each run"</h3>
                <p>"On the diagonal the estimate was right; above it, too high. GiB, on logarithmic scales."</p>
            </header>
            <div
                class="plot scatter"
                node_ref=frame
                role="group"
                tabindex="0"
                data-testid="scatter"
                aria-label="Measured and estimated peaks; arrow keys go from run to run"
                aria-describedby="scatter-text"
                on:keydown=step
            >
                {move || view! { <Drawing layout=layout.get()/> }}
            </div>
            <p id="scatter-text" class="unseen" role="status">{text}</p>
            {move || {
                let out = layout.with(|l| l.left_out);
                (out > 0).then(|| view! { <p class="help">{format!("{out} more are not drawn; choose a filter.")}</p> })
            }}
        </section>
    }
}

fn spoken(entry: &Entry) -> String {
    let metric = Route::get().view.with(|v| v.metric);
    let point = &entry.point;
    let size = |bytes: Option<_>| bytes.map_or("not known".to_owned(), number::bytes);
    format!(
        "{}, {}, on {}: measured {}, estimated {}, {}.",
        point.model,
        recipe(point),
        point.device,
        size(point.measured.get(metric)),
        size(point.estimated.and_then(|e| e.get(metric))),
        point.error(metric).map_or("not compared".to_owned(), percent),
    )
}

#[component]
fn Drawing(layout: Scatter) -> impl IntoView {
    let route = Route::get();
    let [left, right, top, bottom] = layout.plot;
    let (width, height) = (layout.width, layout.height);
    let [x1, y1, x2, y2] = layout.diagonal;
    view! {
        <svg width=width height=height viewBox=format!("0 0 {width} {height}") role="presentation">
            {layout
                .up
                .iter()
                .map(|mark| {
                    view! {
                        <line class="graticule" x1=left x2=right y1=mark.at y2=mark.at/>
                        <text class="draught figure-end" x=left - 7.0 y=mark.at + 4.0>{mark.text.clone()}</text>
                    }
                })
                .collect_view()}
            {layout
                .across
                .iter()
                .map(|mark| {
                    view! {
                        <line class="graticule" x1=mark.at x2=mark.at y1=top y2=bottom/>
                        <text class="draught middle" x=mark.at y=bottom + 17.0>{mark.text.clone()}</text>
                    }
                })
                .collect_view()}
            <text class="draught figure-end" x=right y=bottom + 37.0>"measured, GiB"</text>
            <text class="draught" x=left + 6.0 y=top + 12.0>"estimated, GiB"</text>
            <line class="diagonal" x1=x1 y1=y1 x2=x2 y2=y2/>
            {layout
                .dots
                .iter()
                .map(|dot| {
                    let id = dot.id.clone();
                    let chosen = {
                        let id = id.clone();
                        move || route.view.with(|v| v.selected.as_deref() == Some(id.as_str()))
                    };
                    let class = if dot.quarantined { "dot dot-out" } else { "dot" };
                    view! {
                        <circle
                            class=class
                            class:dot-chosen=chosen
                            cx=dot.x
                            cy=dot.y
                            r="5.5"
                            on:click=move |_| route.look(|v| v.selected = Some(id.clone()))
                        >
                            <title>{percent(dot.error)}</title>
                        </circle>
                    }
                })
                .collect_view()}
        </svg>
    }
}
