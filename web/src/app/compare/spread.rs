//! How the errors spread.

use leptos::prelude::*;
use plimsoll_core::measurement::Standing;
use plimsoll_web::compare::histogram::bins;
use plimsoll_web::compare::percent;

use super::shown;
use crate::app::route::Route;

/// Size of the drawing in its own units; it scales to the room there is.
const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 230.0;
const FOOT: f64 = 190.0;
const TOP: f64 = 22.0;

#[component]
pub fn SpreadSection() -> impl IntoView {
    let route = Route::get();
    let found = Memo::new(move |_| {
        let metric = route.view.with(|v| v.metric);
        let errors: Vec<f64> = shown()
            .iter()
            .filter(|e| e.point.standing == Standing::Accepted)
            .filter_map(|e| e.point.error(metric))
            .collect();
        bins(&errors)
    });
    view! {
        <section class="section" aria-labelledby="spread-title">
            <header class="section-head">
                <h3 id="spread-title">"How far off"</h3>
                <p>"Errors of the estimate, relative to what was measured; half and more in the outermost bars."</p>
            </header>
            <div class="plot histogram">
                {move || {
                    let bins = found.get();
                    let most = bins.iter().map(|b| b.count).max().unwrap_or(0).max(1);
                    let pitch = WIDTH / bins.len().max(1) as f64;
                    let tall = |count: usize| (FOOT - TOP) * count as f64 / most as f64;
                    let labelled = [0, bins.len() / 4, bins.len() / 2, bins.len() * 3 / 4, bins.len().saturating_sub(1)];
                    view! {
                        <svg viewBox=format!("0 0 {WIDTH} {HEIGHT}") width="100%" role="img" aria-labelledby="spread-title">
                            {bins
                                .iter()
                                .enumerate()
                                .map(|(i, bin)| {
                                    let x = i as f64 * pitch;
                                    let height = tall(bin.count);
                                    let middle = f64::midpoint(bin.from, bin.to);
                                    view! {
                                        <rect
                                            class="bin"
                                            class:bin-zero=i == bins.len() / 2
                                            x=x + 1.0
                                            y=FOOT - height
                                            width=(pitch - 2.0).max(1.0)
                                            height=height
                                        >
                                            <title>
                                                {format!("{} to {}: {}", percent(bin.from), percent(bin.to), bin.count)}
                                            </title>
                                        </rect>
                                        {(bin.count > 0)
                                            .then(|| {
                                                view! {
                                                    <text class="draught middle" x=x + pitch / 2.0 y=FOOT - height - 5.0>
                                                        {bin.count}
                                                    </text>
                                                }
                                            })}
                                        {labelled
                                            .contains(&i)
                                            .then(|| {
                                                let anchor = match i {
                                                    0 => "draught",
                                                    i if i + 1 == bins.len() => "draught figure-end",
                                                    _ => "draught middle",
                                                };
                                                let at = match i {
                                                    0 => 0.0,
                                                    i if i + 1 == bins.len() => WIDTH,
                                                    _ => x + pitch / 2.0,
                                                };
                                                view! {
                                                    <text class=anchor x=at y=FOOT + 18.0>{percent(middle)}</text>
                                                }
                                            })}
                                    }
                                })
                                .collect_view()}
                            <line class="bin-foot" x1="0" x2=WIDTH y1=FOOT y2=FOOT/>
                        </svg>
                    }
                }}
            </div>
            <details class="more">
                <summary>"As a table"</summary>
                <table class="figures-table">
                    <caption class="unseen">"Errors and how many runs have them"</caption>
                    <thead>
                        <tr>
                            <th scope="col">"From"</th>
                            <th scope="col">"To"</th>
                            <th scope="col" class="num">"Runs"</th>
                        </tr>
                    </thead>
                    <tbody>
                        {move || {
                            found
                                .get()
                                .into_iter()
                                .filter(|b| b.count > 0)
                                .map(|b| {
                                    view! {
                                        <tr>
                                            <td>{percent(b.from)}</td>
                                            <td>{percent(b.to)}</td>
                                            <td class="num">{b.count}</td>
                                        </tr>
                                    }
                                })
                                .collect_view()
                        }}
                    </tbody>
                </table>
            </details>
        </section>
    }
}
