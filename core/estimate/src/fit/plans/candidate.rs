//! A point of a way that fits, and what it costs.

use std::cmp::Ordering;

use plimsoll_catalog::Gpu;
use plimsoll_ground::Bytes;
use plimsoll_scenario::Scenario;

use super::Bound;
use crate::Traffic;
use crate::fit::Altered;
use crate::fit::space::{Point, Way};
use crate::work::StepWork;

/// A point that fits.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub way: Way,
    pub point: Point,
    pub scenario: Scenario,
    pub flops: u64,
    pub traffic: Traffic,
    pub bound: Bound,
    /// Levers that it sets otherwise than was asked.
    pub changes: usize,
    /// Live bytes at the highest of how its way's lightest point begins: what has less there holds more.
    pub lightest: Bytes,
}

impl Candidate {
    /// By what a step of it takes.
    pub fn new(asked: &Scenario, (way, point): (&Way, Point), scenario: Scenario, work: &StepWork, gpu: &Gpu) -> Self {
        Self {
            flops: flops(work),
            traffic: work.traffic,
            bound: Bound::of(work, gpu),
            changes: Altered::between(asked, &scenario).len(),
            lightest: Bytes::ZERO,
            way: way.clone(),
            point,
            scenario,
        }
    }

    /// In short.
    pub fn name(&self) -> String {
        let mut name = self.way.name(Point { parts: 1, ..self.point }, &self.scenario);
        let (batch, accumulation) = (self.scenario.input.batch, self.scenario.training.accumulation);
        let _ = std::fmt::Write::write_fmt(&mut name, format_args!(", micro-batch {batch} x {accumulation}"));
        name
    }

    /// Whether nothing of it is dearer than the other's, and the other's way holds no more.
    pub fn makes_needless(&self, other: &Self) -> bool {
        let (own, its) = (&self.traffic, &other.traffic);
        let cheap = self.lightest <= other.lightest && self.flops <= other.flops;
        cheap && own.peers <= its.peers && own.network <= its.network && own.host <= its.host
    }

    /// The cheaper first: by what no step is faster than, where that is alike to a hundredth of `least` by what everything takes
    /// one by one, then by changes.
    pub fn cheaper(&self, other: &Self, least: f64) -> Ordering {
        let coarse = |seconds: f64| if least > 0.0 { (seconds / least * 100.0).round() } else { 0.0 };
        let by =
            |of: fn(&Bound) -> f64| move |a: &Self, b: &Self| coarse(of(&a.bound)).total_cmp(&coarse(of(&b.bound)));
        by(Bound::hidden)(self, other)
            .then_with(|| by(Bound::one_by_one)(self, other))
            .then_with(|| self.changes.cmp(&other.changes))
            .then_with(|| self.bound.one_by_one().total_cmp(&other.bound.one_by_one()))
            .then_with(|| self.point.cmp(&other.point))
    }
}

/// Operations of a step.
pub fn flops(work: &StepWork) -> u64 {
    let phases = [&work.forward, &work.backward, &work.optimizer];
    phases.iter().fold(0u64, |sum, phase| sum.saturating_add(phase.total_flops()))
}
