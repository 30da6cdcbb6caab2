//! What of a hull is spread over several cards: which modules are wrapped by themselves.

use std::collections::BTreeMap;

use plimsoll_ground::{Error, Reason, Result};
use plimsoll_ledger::hull::{Hull, Segment, Step, Tape, names_match};
use plimsoll_scenario::{ParallelStrategy, Scenario, Wrap, at};
use plimsoll_torch::nn::Sharded;
use plimsoll_torch::tensor::{DType, ModuleId};

/// Modules that get a wrapper of their own, by the numbers of their names; none where the strategy wraps a model as a whole.
///
/// # Errors
/// A recording that does not say what a wrapper sees, or whose model is not called once; no module of these names.
pub(super) fn blocks(hull: &Hull, tape: &Tape, scenario: &Scenario) -> Result<Vec<u32>> {
    let parallel = &scenario.parallel;
    let refuse = |problem: &str, hint: &str| Err(Error::new(at::parallel::strategy, problem, hint));
    if tape.segments.iter().any(|segment| !segment.steps.iter().any(|step| matches!(step, Step::Arrived(_)))) {
        return refuse(
            "this recording does not say when each parameter has its gradient, which several cards go by",
            "record it again with plimsoll trace",
        );
    }
    if parallel.strategy == ParallelStrategy::Ddp
        && let Some(unused) = unused(tape)
    {
        let problem = format!(
            "{unused} gets no gradient, and DDP stops at the second forward (\"Expected to have finished reduction in the prior iteration\")"
        );
        let hint = "freeze what is not used (requires_grad_(False)) and record that, or use fsdp2";
        return Err(Error::new(at::parallel::strategy, problem, hint).because(Reason::UnreachedParameter));
    }
    let calls = tape.segments.iter().map(|segment| calls(hull, segment)).max().unwrap_or(0);
    if calls != 1 {
        let problem = match calls {
            0 => "the model that was recorded is not called as a whole, and a wrapper is what is called in its place"
                .to_owned(),
            calls => {
                format!("the model is called {calls} times in a micro-batch, which is not followed under a wrapper")
            }
        };
        return refuse(&problem, "write one module whose forward does all of it, and record that; or use one card");
    }
    let cuts = matches!(parallel.strategy, ParallelStrategy::Fsdp1 | ParallelStrategy::Fsdp2);
    if !cuts || parallel.fsdp.wrap == Wrap::Root {
        return Ok(Vec::new());
    }
    let patterns = &parallel.fsdp.modules;
    if patterns.is_empty() {
        if tape.blocks.is_empty() {
            let problem =
                "no modules of one class repeat in a list of this model, so it is not known which are wrapped";
            let hint = "name them (modules = [\"layers.*\"]), or set parallel.fsdp.wrap = \"root\"";
            return Err(Error::new(at::fsdp::modules, problem, hint));
        }
        return Ok(tape.blocks.clone());
    }
    let number = |(_, name): &(u32, &String)| patterns.iter().any(|pattern| names_match(pattern, name));
    if let Some(unknown) = patterns.iter().find(|p| !hull.modules.iter().any(|name| names_match(p, name))) {
        let names: Vec<&str> =
            hull.modules.iter().filter(|name| !name.is_empty()).take(6).map(String::as_str).collect();
        return Err(Error::new(
            at::fsdp::modules,
            format!("no module of the model is named {unknown}"),
            format!("its modules are called {}, ...; * stands for one part of a name", names.join(", ")),
        ));
    }
    Ok((0..).zip(&hull.modules).filter(number).map(|(number, _)| number).collect())
}

/// Refuses what FSDP1 lays into no flat parameter (`_validate_tensors_to_flatten`), and frozen parameters that are views of one that takes
/// a gradient.
///
/// # Errors
/// That.
pub(super) fn check_flat(sharded: &[Sharded], scenario: &Scenario) -> Result<()> {
    let parallel = &scenario.parallel;
    if parallel.strategy != ParallelStrategy::Fsdp1 {
        return Ok(());
    }
    let trained = |p: &Sharded| p.shard.requires_grad();
    let together = sharded.iter().filter(|p| parallel.fsdp.wrap != Wrap::Peft || !trained(p));
    let mut units: BTreeMap<Option<ModuleId>, (DType, bool)> = BTreeMap::new();
    for parameter in together {
        let unit = parameter.block.filter(|_| parallel.fsdp.wrap != Wrap::Root);
        let is = (parameter.shard.dtype(), trained(parameter));
        let known = *units.entry(unit).or_insert(is);
        if known.0 != is.0 {
            let problem = "PyTorch lays no parameters of several element types into one flat parameter (\"Must flatten tensors with uniform \
                           dtype\")";
            let hint = "wrap what is of another type by itself (parallel.fsdp.modules), or use fsdp2";
            return Err(Error::new(at::parallel::strategy, problem, hint));
        }
        if known.1 != is.1 {
            let problem = if parallel.fsdp.use_orig_params {
                "frozen parameters that share a flat one with trained ones get gradients in PyTorch, which are not recorded"
            } else {
                "without it PyTorch lays no frozen and no trained parameter into one flat parameter (\"Must flatten tensors with uniform \
                 `requires_grad`\")"
            };
            let hint =
                "wrap what is trained by itself: parallel.fsdp.modules, or wrap = \"peft\" of adapters; or use fsdp2";
            return Err(Error::new(at::fsdp::use_orig_params, problem, hint));
        }
    }
    Ok(())
}

/// A parameter that is trained and gets no gradient.
fn unused(tape: &Tape) -> Option<&str> {
    let mut arrived = vec![false; tape.parameters.len()];
    for step in &tape.segments[0].steps {
        if let Step::Arrived(parameter) = step {
            arrived[*parameter as usize] = true;
        }
    }
    let unused = tape.parameters.iter().zip(arrived).find(|(parameter, arrived)| parameter.trained && !arrived);
    unused.map(|(parameter, _)| parameter.name.as_str())
}

/// How often the model itself is called in a forward: its own calls that are within no other.
fn calls(hull: &Hull, segment: &Segment) -> u32 {
    let (mut depth, mut calls) = (0u32, 0u32);
    for step in segment.steps.iter().take(segment.begins[1] as usize) {
        match step {
            Step::Module(module) => {
                let own = hull.modules.get(*module as usize).is_some_and(String::is_empty);
                calls += u32::from(depth == 0 && own);
                depth += 1;
            }
            Step::Return => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    calls
}

/// The innermost of `blocks` that a parameter of this name is in.
pub(super) fn block_of(hull: &Hull, blocks: &[u32], parameter: &str) -> Option<u32> {
    let within = |block: &&u32| {
        let name = hull.modules.get(**block as usize).map_or("", String::as_str);
        parameter.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'))
    };
    let length = |block: &&u32| hull.modules.get(**block as usize).map_or(0, String::len);
    blocks.iter().filter(within).max_by_key(length).copied()
}
