//! `nn.ModuleList`: modules that run one after the other.

use std::ops::Range;
use std::rc::Rc;

use super::scope::Scope;
use crate::tensor::{Context, Tensor, Unit, WORTH, run_units};

/// The longest pattern of layers that is looked for: Gemma 3 has a global one after five local ones.
const LONGEST_PATTERN: usize = 8;

/// Modules that run one after the other, each on what the one before returned. Those that do the same are executed a few
/// times only ([`run_units`]).
#[derive(Debug)]
pub struct ModuleList<T> {
    items: Vec<Rc<T>>,
    units: Vec<Unit>,
}

impl<T> ModuleList<T> {
    /// The list `name` of `count` modules; `build` makes one of them in its place. `None` where it makes none.
    pub fn new(
        scope: &Scope,
        name: &'static str,
        count: u64,
        mut build: impl FnMut(&Scope, u64) -> Option<T>,
    ) -> Option<Self> {
        Self::try_new(scope, name, count, |scope, i| build(scope, i).ok_or(())).ok()
    }

    /// As [`ModuleList::new`], where `build` always makes one.
    pub fn of(scope: &Scope, name: &'static str, count: u64, mut build: impl FnMut(&Scope, u64) -> T) -> Self {
        let built: Result<Self, std::convert::Infallible> =
            Self::try_new(scope, name, count, |scope, i| Ok(build(scope, i)));
        match built {
            Ok(list) => list,
            Err(never) => match never {},
        }
    }

    /// As [`ModuleList::new`], with an error where `build` has one.
    pub fn try_new<E>(
        scope: &Scope,
        name: &'static str,
        count: u64,
        mut build: impl FnMut(&Scope, u64) -> Result<T, E>,
    ) -> Result<Self, E> {
        let mut list = Self { items: Vec::new(), units: Vec::new() };
        for i in 0..count {
            if scope.cx().exhausted() && !list.items.is_empty() {
                break;
            }
            let (modules, parameters) = (scope.cx().modules(), scope.place());
            list.items.push(Rc::new(build(&scope.item(name, i), i)?));
            let unit = Unit { modules: modules..scope.cx().modules(), parameters: scope.parameters_since(parameters) };
            list.units.push(unit);
        }
        Ok(list)
    }

    /// The modules.
    pub fn iter(&self) -> impl Iterator<Item = &Rc<T>> {
        self.items.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Runs them: `step` runs one on what the one before returned. Modules with equal parameters of which `kind` says the
    /// same do the same.
    pub fn run<K: PartialEq>(
        &self,
        cx: &Rc<Context>,
        hidden: Tensor,
        kind: impl Fn(&T) -> K,
        mut step: impl FnMut(&Rc<T>, Tensor) -> Tensor,
    ) -> Tensor {
        let kinds: Vec<(K, bool)> =
            self.items.iter().enumerate().map(|(i, item)| (kind(item), cx.is_checkpointed(i))).collect();
        let mut hidden = hidden;
        let mut at = 0;
        while at < self.items.len() && !cx.exhausted() {
            let (pattern, count) = repeated(&kinds[at..]);
            let units = (0..count).map(|unit| self.unit(at + unit * pattern..at + (unit + 1) * pattern)).collect();
            hidden = run_units(cx, units, hidden, |unit, hidden| {
                let first = at + unit * pattern;
                (first..first + pattern).fold(hidden, |hidden, i| {
                    if cx.exhausted() { hidden } else { cx.as_layer(i, || step(&self.items[i], hidden)) }
                })
            });
            at += pattern * count;
        }
        hidden
    }

    /// As [`ModuleList::run`], one after the other, where something besides passes from one to the next.
    pub fn run_each(&self, cx: &Context, hidden: Tensor, mut step: impl FnMut(&Rc<T>, Tensor) -> Tensor) -> Tensor {
        self.items.iter().enumerate().fold(hidden, |hidden, (i, item)| {
            if cx.exhausted() { hidden } else { cx.as_layer(i, || step(item, hidden)) }
        })
    }

    /// Some modules as one unit.
    fn unit(&self, items: Range<usize>) -> Unit {
        let units = &self.units[items];
        let (Some(first), Some(last)) = (units.first(), units.last()) else { return Unit::default() };
        Unit {
            modules: first.modules.start..last.modules.end,
            parameters: units.iter().flat_map(|unit| unit.parameters.iter().cloned()).collect(),
        }
    }
}

/// How `kinds` begins: with so many repetitions of a pattern of this length.
fn repeated<K: PartialEq>(kinds: &[K]) -> (usize, usize) {
    let repetitions = |length: usize| {
        let alike = kinds.iter().zip(kinds.iter().skip(length)).take_while(|(a, b)| a == b).count();
        (length, 1 + alike / length)
    };
    let worth = (1..=LONGEST_PATTERN.min(kinds.len())).map(repetitions).filter(|(_, count)| *count >= WORTH);
    // Of patterns that go equally far the shortest.
    worth.max_by_key(|(length, count)| (length * count, usize::MAX - length)).unwrap_or((1, 1))
}

#[cfg(test)]
mod tests {
    use super::repeated;

    #[test]
    fn a_pattern_is_found_where_it_repeats() {
        assert_eq!(repeated(&[0; 32]), (1, 32));
        assert_eq!(repeated(&[0; 4]), (1, 1), "too few to be worth it");
        let alternating: Vec<usize> = (0..26).map(|i| i % 2).collect();
        assert_eq!(repeated(&alternating), (2, 13));
        let gemma3: Vec<bool> = (0..62).map(|i| i % 6 == 5).collect();
        assert_eq!(repeated(&gemma3), (6, 10), "the last two are on their own");
        let late: Vec<bool> = (0..28).map(|i| i >= 21).collect();
        assert_eq!((repeated(&late), repeated(&late[21..])), ((1, 21), (1, 7)));
    }
}
