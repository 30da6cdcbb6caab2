//! Which tape of a hull is played.

use std::sync::Arc;

use plimsoll_catalog::{Gpu, Vendor};
use plimsoll_ground::{Error, Result};
use plimsoll_ledger::hull::{Chosen, Hull, Tape, names_match};
use plimsoll_scenario::{Checkpointing, ParallelStrategy, Scenario, at, variant_of};

use super::Played;

/// Cards that choose kernels as another one does.
fn class(capability: (u8, u8)) -> (u8, u8) {
    match capability {
        (8, 7) => (8, 6),
        (10 | 11, _) => (10, 0),
        (12, _) => (12, 0),
        other => other,
    }
}

/// The tape of this scenario.
pub(super) fn tape(hull: &Arc<Hull>, scenario: &Scenario, gpu: &Gpu) -> Result<Played> {
    let precision = scenario.training.precision.as_str();
    let attends = |tape: &Tape| {
        tape.storages
            .iter()
            .any(|born| hull.ops.get(born.op as usize).is_some_and(|op| op.starts_with("_scaled_dot_product")))
    };
    let capability = gpu.compute_capability.filter(|_| gpu.vendor == Vendor::Nvidia).map(class);
    let variant = variant_of(&scenario.training);
    let fits = |tape: &Tape| capability.is_some_and(|c| tape.cards.contains(&c)) || !attends(tape);
    let same = |tape: &Tape| tape.precision == precision && tape.variant == variant;
    let known = hull.tapes.iter().any(same);
    let batch = scenario.input.batch;
    let training = &scenario.training;
    let checkpointed = training.checkpointing != Checkpointing::None;
    let found = hull.position(batch, checkpointed, |tape| same(tape) && fits(tape));
    let number = found.ok_or_else(|| {
        let (problem, hint) = if known {
            (
                format!("attention takes other kernels on the {} than this hull was recorded with", gpu.name),
                "choose a card \
             of compute capability 8.0 or above",
            )
        } else {
            (format!("this hull was not recorded in {precision}"), "record it with plimsoll trace --precision")
        };
        Error::new(if known { at::device::gpu } else { at::training::precision }, problem, hint)
    })?;
    // What FSDP1 has made views of a flat parameter is no leaf to autocast.
    let flat = scenario.parallel.strategy == ParallelStrategy::Fsdp1;
    let views = if flat { hull.tapes[number].of_views(hull)? } else { None };
    let recorded = |views: Option<Tape>| match views {
        Some(tape) => Ok(Played::Made(Arc::new(tape))),
        None => Ok(Played::Recorded(Arc::clone(hull), number)),
    };
    if !checkpointed {
        return recorded(views);
    }
    let tape = views.as_ref().unwrap_or(&hull.tapes[number]);
    let marked = tape.is_marked();
    let patterns = &training.checkpoint_modules;
    if patterns.is_empty() {
        // What PyTorch itself checkpointed while it was recorded is played as it is.
        if tape.checkpointed && !marked {
            return recorded(views);
        }
        return match marked {
            true => Ok(Played::Made(Arc::new(tape.checkpointed(hull, Chosen::Marked)?.0))),
            false => Err(Error::new(
                at::training::checkpointing,
                "the model has no switch for checkpointing, and no blocks of one class are called in it",
                "name the modules: training.checkpoint_modules = [\"layers.*\"]; a hull of an older plimsoll is recorded again",
            )),
        };
    }
    if (tape.checkpointed && !marked) || !tape.says_what_is_given() {
        return Err(Error::new(
            at::training::checkpoint_modules,
            "this model does something else when it is run again, so other modules than its blocks cannot be worked out",
            "leave checkpoint_modules out, or call torch.utils.checkpoint in the model and record it again",
        ));
    }
    let unknown = patterns.iter().find(|pattern| !hull.modules.iter().any(|name| names_match(pattern, name)));
    let (played, count) = tape.checkpointed(hull, Chosen::Named(patterns))?;
    match unknown {
        None if count > 0 => Ok(Played::Made(Arc::new(played))),
        _ => {
            let named = unknown.map_or_else(|| patterns.join(", "), Clone::clone);
            let names: Vec<&str> =
                hull.modules.iter().filter(|name| !name.is_empty()).take(6).map(String::as_str).collect();
            Err(Error::new(
                at::training::checkpoint_modules,
                format!("no module that the model calls is named {named}"),
                format!("its modules are called {}, ...; * stands for one part of a name", names.join(", ")),
            ))
        }
    }
}
