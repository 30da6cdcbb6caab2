//! Plans: scenarios a person keeps by name, in this browser or in one link, and sets side by side.

use std::hash::{DefaultHasher, Hash, Hasher};

use plimsoll_core::scenario::{Levers, Link};
use plimsoll_core::{Error, Result, Scenario};
use serde::{Deserialize, Serialize};

/// Plans that are kept: more than anyone tells apart in a list.
pub const KEPT: usize = 50;

/// Plans that stand beside the present scenario at most.
pub const PINNED: usize = 4;

/// Characters of a name.
const NAME: usize = 80;

/// Bytes of the text plans are kept as: every one of them with a pasted config in its link.
pub const TEXT: usize = 2 << 20;

/// One plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// What a person called it.
    pub name: String,
    /// Its share link, from the question mark on.
    pub link: String,
    /// Whether it stands beside the present scenario.
    #[serde(default)]
    pub pinned: bool,
}

/// Plans in the order they were kept; no two have one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Plans(Vec<Plan>);

impl Plan {
    /// The scenario of it.
    ///
    /// # Errors
    /// When its link is no longer a scenario.
    pub fn scenario(&self) -> Result<Scenario> {
        Link::decode_strict(&self.link)
    }

    /// Tells plans apart on one page by what they say.
    pub fn id(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.link.hash(&mut hasher);
        hasher.finish()
    }
}

impl Plans {
    /// Plans as they were written; what is no scenario is left out, and said.
    ///
    /// # Errors
    /// When the text as a whole is none of ours.
    pub fn parse(text: &str) -> Result<(Self, Vec<String>)> {
        let refuse = |problem: String| Error::new("plans", problem, "keep the plans again from their links");
        if text.len() > TEXT {
            return Err(refuse(format!("they are longer than {TEXT} bytes")));
        }
        let written: Vec<Plan> = serde_json::from_str(text).map_err(|e| refuse(format!("they cannot be read: {e}")))?;
        let (mut plans, mut notices) = (Self::default(), Vec::new());
        for plan in written {
            let outcome = plan.scenario().and_then(|scenario| plans.keep(&plan.name, &scenario));
            match outcome {
                Ok(()) => {
                    if plan.pinned {
                        // The fifth pin of a written list is no pin.
                        let _ = plans.pin(&plan.name, true);
                    }
                }
                Err(error) => {
                    let name: String = plan.name.chars().take(NAME).collect();
                    notices.push(format!("The plan {name:?} was left out. {}; {}.", error.problem, error.hint));
                }
            }
        }
        Ok((plans, notices))
    }

    /// Reads the plans that a link carries beside its scenario; `None` where it carries none.
    ///
    /// # Errors
    /// A damaged part of the link, or as [`Plans::parse`].
    pub fn in_link(link: &str) -> Option<Result<(Self, Vec<String>)>> {
        Some(Link::beside(link, TEXT)?.and_then(|text| Self::parse(&text)))
    }

    /// As text, to be kept.
    pub fn text(&self) -> String {
        serde_json::to_string(&self.0).unwrap_or_default()
    }

    /// The pinned ones as a link carries them; `None` where nothing is pinned.
    pub fn packed(&self) -> Option<String> {
        let pinned: Vec<&Plan> = self.pinned().collect();
        (!pinned.is_empty()).then(|| Link::pack(&serde_json::to_string(&pinned).unwrap_or_default()))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Plan> {
        self.0.iter()
    }

    /// Those that stand side by side.
    pub fn pinned(&self) -> impl Iterator<Item = &Plan> {
        self.0.iter().filter(|plan| plan.pinned)
    }

    /// Keeps a scenario by a name; it takes the place of the plan that had it.
    ///
    /// # Errors
    /// A name that is empty, too long or holds signs that cannot be seen; too many plans.
    pub fn keep(&mut self, name: &str, scenario: &Scenario) -> Result<()> {
        let name = name.trim();
        let refuse = |problem: String, hint: &str| Err(Error::new("plan", problem, hint));
        if name.is_empty() || name.chars().count() > NAME {
            return refuse(
                format!("a plan's name has 1 to {NAME} characters"),
                "give it a shorter name, or one at all",
            );
        }
        if name.chars().any(plimsoll_core::is_hidden) {
            return refuse("a plan's name holds signs that cannot be seen".to_owned(), "type the name afresh");
        }
        let link = Link::encode(scenario);
        if let Some(plan) = self.0.iter_mut().find(|plan| plan.name == name) {
            plan.link = link;
        } else if self.0.len() >= KEPT {
            return refuse(format!("{KEPT} plans are kept already"), "remove one that is not needed");
        } else {
            self.0.push(Plan { name: name.to_owned(), link, pinned: false });
        }
        Ok(())
    }

    /// Puts a plan beside the present scenario, or takes it away.
    ///
    /// # Errors
    /// When as many stand there as there is room for.
    pub fn pin(&mut self, name: &str, pinned: bool) -> Result<()> {
        if pinned && self.pinned().filter(|plan| plan.name != name).count() >= PINNED {
            let problem = format!("{PINNED} plans stand side by side already");
            return Err(Error::new("plan", problem, "take one of them away first"));
        }
        if let Some(plan) = self.0.iter_mut().find(|plan| plan.name == name) {
            plan.pinned = pinned;
        }
        Ok(())
    }

    /// Forgets a plan.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|plan| plan.name != name);
    }

    /// Takes in plans that came with a link; a name that stands for another scenario here gets a number behind it.
    pub fn take_in(&mut self, others: &Self) -> Vec<String> {
        for plan in self.0.iter_mut() {
            plan.pinned = false;
        }
        let mut notices = Vec::new();
        for other in others.iter() {
            let taken = |name: &str| self.0.iter().any(|plan| plan.name == name && plan.link != other.link);
            let name = std::iter::once(other.name.clone())
                .chain((2..).map(|n| format!("{} ({n})", other.name)))
                .find(|name| !taken(name));
            let kept = name.ok_or_else(|| Error::new("plan", "no name is free", "remove a plan")).and_then(|name| {
                self.keep(&name, &other.scenario()?)?;
                self.pin(&name, other.pinned)
            });
            if let Err(error) = kept {
                notices.push(format!("The plan {:?} was left out. {}; {}.", other.name, error.problem, error.hint));
            }
        }
        notices
    }

    /// A name for a scenario that no plan has yet.
    pub fn free_name(&self, wish: &str) -> String {
        let wish: String = wish.chars().take(NAME - 5).collect();
        let free = |name: &String| self.0.iter().all(|plan| plan.name != *name);
        std::iter::once(wish.clone()).chain((2..=KEPT + 1).map(|n| format!("{wish} ({n})"))).find(free).unwrap_or(wish)
    }
}

/// What sets a scenario apart from another, in a few words: `model, precision, LoRA rank`.
pub fn differences(from: &Scenario, to: &Scenario) -> Vec<&'static str> {
    let model = (from.model != to.model).then_some("model");
    let levers = Levers::of(from).unlike(&Levers::of(to));
    model.into_iter().chain(levers.into_iter().map(|lever| lever.row.label)).collect()
}

#[cfg(test)]
mod tests {
    use plimsoll_core::scenario::{Change, Precision};

    use super::{KEPT, PINNED, Plans, differences};
    use crate::engine::opening;

    fn in_fp32() -> plimsoll_core::Scenario {
        Change::Precision(Precision::Fp32).apply(&opening()).unwrap()
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let mut plans = Plans::default();
        plans.keep("now", &opening()).unwrap();
        plans.keep("in 32 bits", &in_fp32()).unwrap();
        plans.pin("in 32 bits", true).unwrap();
        let (read, notices) = Plans::parse(&plans.text()).unwrap();
        assert_eq!((read, notices), (plans.clone(), Vec::new()));
        assert_eq!(plans.pinned().next().unwrap().scenario(), Ok(in_fp32()));
        plans.keep("now", &in_fp32()).unwrap();
        assert_eq!(plans.iter().count(), 2, "a name stands once");
        plans.remove("now");
        assert_eq!(plans.iter().count(), 1);
    }

    #[test]
    fn a_link_carries_what_is_pinned() {
        let mut plans = Plans::default();
        assert_eq!(plans.packed(), None);
        plans.keep("a", &opening()).unwrap();
        plans.keep("b", &in_fp32()).unwrap();
        plans.pin("b", true).unwrap();
        let link = format!("http://here/?model=gpt2#p={}", plans.packed().unwrap());
        let (read, notices) = Plans::in_link(&link).unwrap().unwrap();
        assert_eq!(read.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["b"]);
        assert!(notices.is_empty());
        assert!(
            plimsoll_core::scenario::Link::decode(&link).notices.is_empty(),
            "the scenario's own reading passes it by"
        );
        // Another plan of that name is here already.
        let mut here = Plans::default();
        here.keep("b", &opening()).unwrap();
        assert!(here.take_in(&read).is_empty());
        assert_eq!(
            here.iter().map(|p| (p.name.as_str(), p.pinned)).collect::<Vec<_>>(),
            [("b", false), ("b (2)", true)]
        );
        here.take_in(&read);
        assert_eq!(here.iter().count(), 2, "the same link twice brings nothing new");
    }

    #[test]
    fn bad_plans_are_said_and_good_ones_stay() {
        let text = r#"[{"name":"good","link":"?model=gpt2"},{"name":"bad","link":"?model=nonsense"},
            {"name":"\u202eevil","link":"?model=gpt2"},{"name":"","link":"?model=gpt2"}]"#;
        let (plans, notices) = Plans::parse(text).unwrap();
        assert_eq!(plans.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["good"]);
        assert_eq!(notices.len(), 3, "{notices:?}");
        for damaged in ["", "{}", "[1]", "nonsense"] {
            assert!(Plans::parse(damaged).is_err(), "{damaged}");
        }
        for damaged in ["#p=%%%", "#p=AAAA", "#p="] {
            assert!(Plans::in_link(damaged).unwrap().is_err(), "{damaged}");
        }
        assert!(Plans::in_link("?model=gpt2").is_none());
    }

    #[test]
    fn there_is_an_end_to_plans_and_pins() {
        let mut plans = Plans::default();
        for n in 0..KEPT {
            plans.keep(&plans.free_name("plan"), &opening()).unwrap();
            let name = plans.iter().nth(n).unwrap().name.clone();
            assert_eq!(plans.pin(&name, true).is_ok(), n < PINNED);
        }
        assert!(plans.keep("one more", &opening()).is_err());
        assert_eq!(plans.pinned().count(), PINNED);
    }

    #[test]
    fn differences_are_said_by_their_labels() {
        assert_eq!(differences(&opening(), &in_fp32()), ["Precision"]);
        assert!(differences(&opening(), &opening()).is_empty());
    }
}
