//! Every row times every lever: it runs, or is refused by the lever's own name before anything runs.
#![cfg(not(target_arch = "wasm32"))]
#![allow(clippy::unwrap_used, reason = "a question that cannot be asked fails the test")]

use std::collections::BTreeSet;

use plimsoll_core::estimate::Run;
use plimsoll_core::ledger::Kind;
use plimsoll_core::scenario::{Group, Lever, at, levers};
use plimsoll_core::{Error, Reason, Scenario};
use plimsoll_tests::product::{Question, questions};

/// Which levers ran, and what was neither run nor refused.
#[derive(Debug, Default)]
struct Asked {
    ran: BTreeSet<&'static str>,
    wrong: Vec<String>,
}

/// How starts ended as they come: nearly half of all values are those that the start has, and change nothing.
#[derive(Debug, Default)]
struct Known<'q>(Option<(&'q Scenario, Result<(), Error>)>);

impl<'q> Known<'q> {
    fn run(&mut self, question: &'q Question, next: &Scenario) -> Result<(), Error> {
        if *next != question.start {
            return Run::new(next).map(drop);
        }
        // One start's questions come one after the other.
        match &self.0 {
            Some((start, ended)) if **start == question.start => ended.clone(),
            _ => self.0.insert((&question.start, Run::new(next).map(drop))).1.clone(),
        }
    }
}

fn ask(questions: &[Question]) -> Asked {
    let Asked { mut ran, mut wrong } = Asked::default();
    let mut known = Known::default();
    for question in questions {
        let (family, lever, value) = (question.family.name, question.lever, &question.value);
        let what = || format!("{family}, {} = {value}, of {}", lever.path, question.start.to_value()["training"]);
        match question.asked() {
            Err(error) => {
                // A table that the row does not take is refused whole.
                let named = lever.path == error.key || lever.path.starts_with(&format!("{}.", error.key));
                // Of two levers that cannot stand together, the refusal may name the other.
                let other = levers().any(|lever| lever.path == error.key);
                if !named && !other {
                    wrong.push(format!("{}: refused as {error}", what()));
                }
            }
            // What a scenario may say, the engine does; but a module that is named need not be there, and of a small image
            // nothing may be left for the last stage.
            Ok(next) => match known.run(question, &next) {
                Ok(()) => drop(ran.insert(lever.path)),
                Err(error)
                    if error.key == lever.path
                        && [at::lora::targets, at::lora::modules_to_save, at::input::image].contains(&lever.path) => {}
                // Which parameters a loss does not reach, only a run shows; DDP fails of them.
                Err(error) if error.reason == Some(Reason::UnreachedParameter) => {}
                // Which biases a forward gives another dtype as well; an average fails of them.
                Err(error) if error.reason == Some(Reason::RecastParameter) => {}
                // Under autocast only a run shows which dtype a router is given (Qwen3-VL-MoE before transformers 5).
                Err(error) if error.reason == Some(Reason::ScatteredDtype) => {}
                // How the rows of a mask lie decides whether its attention runs when they come back from the machine's memory.
                Err(error)
                    if [Some(Reason::UnalignedMask), Some(Reason::RecomputedOtherwise)].contains(&error.reason) => {}
                // Where FSDP1's units have several checkpoints, or one within another, a run shows (Swin).
                Err(error) if error.reason == Some(Reason::ReadyTwice) => {}
                Err(error) => wrong.push(format!("{}: {error}", what())),
            },
        }
    }
    Asked { ran, wrong }
}

#[test]
fn every_lever_of_every_architecture_runs_or_is_refused_by_name() {
    // Most of its time is the engine's, which needs one processor a run.
    let questions = questions().unwrap();
    let each = questions.len().div_ceil(std::thread::available_parallelism().map_or(1, usize::from)).max(1);
    let parts: Vec<Asked> = std::thread::scope(|scope| {
        let started: Vec<_> = questions.chunks(each).map(|part| scope.spawn(|| ask(part))).collect();
        started.into_iter().map(|part| part.join().unwrap()).collect()
    });
    let wrong: Vec<String> = parts.iter().flat_map(|part| part.wrong.iter().cloned()).collect();
    let ran: BTreeSet<&str> = parts.into_iter().flat_map(|part| part.ran).collect();
    assert!(wrong.is_empty(), "{} of the product:\n{}", wrong.len(), wrong.join("\n"));
    // What is carried and not estimated yet is refused everywhere.
    // Modules are named of hulls alone, which are in no row of the table.
    let estimated = |lever: &&Lever| {
        lever.section() != "model"
            && lever.row.group != Group::Later
            && ![at::training::checkpoint_modules, at::fsdp::modules].contains(&lever.path)
    };
    for lever in levers().filter(estimated) {
        assert!(ran.contains(lever.path), "{} never ran", lever.path);
    }
}

/// FSDP and DeepSpeed are refused by the row's word for it, before anything runs.
#[test]
fn a_row_says_whether_a_parameter_has_no_dimensions() {
    let mut questions = questions().unwrap();
    // The first of a row is its plain model.
    questions.dedup_by_key(|question| question.family.name);
    assert!(questions.iter().any(|question| question.family.scalar.is_some()), "no row has one");
    for Question { family, start, .. } in questions {
        let run = Run::new(&start).unwrap();
        let ledger = run.ledger();
        let mut parameters = ledger.storages.iter().filter(|storage| storage.kind == Kind::Parameter);
        let found = parameters.any(|storage| ledger.sizes(storage).is_empty());
        assert_eq!(found, family.scalar.is_some(), "{}", family.name);
    }
}
