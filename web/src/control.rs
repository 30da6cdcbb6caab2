//! Which controls a scenario has, and what they offer: exactly what the engine takes.

use plimsoll_core::Scenario;
use plimsoll_core::scenario::{Kind, Lever, Word};
use serde_json::Value;

/// Whether a lever has a control: it stands in a table that the scenario has, and there is a choice.
pub fn is_shown(lever: &'static Lever, scenario: &Scenario) -> bool {
    lever.is_open(scenario) && lever.is_offered(scenario)
}

/// The words a control offers.
pub fn words(lever: &'static Lever, scenario: &Scenario) -> Vec<Word> {
    let Kind::Words(words) = lever.row.kind else { return Vec::new() };
    let offers = lever.offers(scenario);
    words.iter().copied().filter(|word| offers.contains(&Value::from(word.key))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use plimsoll_core::estimate::Run;
    use plimsoll_core::scenario::{Change, Group, at, levers};
    use plimsoll_tests::product::questions;

    use super::*;

    /// Over every architecture: what a control offers runs, and what none offers is refused, or changes nothing.
    #[test]
    fn what_is_offered_is_what_the_engine_takes() {
        let mut shown = BTreeSet::new();
        // The card is chosen from the catalog.
        for question in questions().unwrap().iter().filter(|question| !matches!(question.lever.row.kind, Kind::Id)) {
            let (lever, start) = (question.lever, &question.start);
            let what = format!("{}, {} = {}", question.family.name, lever.path, question.value);
            let asked = question.asked().ok().filter(|next| lever.get(next).as_ref() == Some(&question.value));
            if !is_shown(lever, start) {
                let there = lever.get(start);
                let other = asked.filter(|_| lever.is_open(start) && there.as_ref() != Some(&question.value));
                assert_eq!(other, None, "{what} is not offered");
                continue;
            }
            shown.insert(lever.path);
            // A module that is named need not be there, and of a small image nothing may be left for the last stage.
            let named = [at::lora::targets, at::lora::modules_to_save, at::input::image].contains(&lever.path);
            let offered = match lever.row.kind {
                Kind::Words(_) => words(lever, start).iter().any(|word| question.value == word.key),
                _ => asked.is_some(),
            };
            assert_eq!(offered, asked.is_some(), "{what}");
            if let Some(next) = asked {
                let ran = Run::new(&next).map(drop);
                // Which parameters a loss does not reach, only a run shows; DDP fails of them, and says which key to set.
                let unused = ran.as_ref().is_err_and(|error| error.key == at::ddp::find_unused_parameters);
                // What a selective checkpoint keeps and a router writes over, only a run shows as well; it says what to use.
                let mutated = ran.as_ref().is_err_and(|error| error.problem.contains("has been mutated"));
                // Which kernels a batch norm is given to as well.
                let normed = ran.as_ref().is_err_and(|error| error.problem.contains("a batch norm"));
                assert!(named || unused || mutated || normed || ran.is_ok(), "{what} is offered: {ran:?}");
            }
        }
        let elsewhere = [Group::Model, Group::Later];
        // Of recorded models alone, which no table of architectures asks about.
        let recorded = [at::training::checkpoint_modules, at::fsdp::modules];
        let own = |lever: &&Lever| {
            !matches!(lever.row.kind, Kind::Id)
                && !elsewhere.contains(&lever.row.group)
                && !recorded.contains(&lever.path)
        };
        let nowhere: Vec<&str> = levers().filter(own).map(|l| l.path).filter(|path| !shown.contains(path)).collect();
        assert!(nowhere.is_empty(), "no control anywhere: {nowhere:?}");
    }

    /// A change of one control leaves the others as they are, but for what goes by it.
    #[test]
    fn a_word_that_is_chosen_is_offered_still() {
        for question in questions().unwrap() {
            let (lever, value) = (question.lever, &question.value);
            if let (Kind::Words(_), Ok(next)) =
                (lever.row.kind, Change::Set(lever, value.clone()).apply(&question.start))
            {
                // A word for what another says already leaves that one.
                let stands = lever.get(&next).unwrap_or_default();
                assert!(words(lever, &next).iter().any(|word| stands == word.key), "{} {value}", lever.path);
            }
        }
    }
}
