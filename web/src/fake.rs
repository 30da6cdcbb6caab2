//! TEMPORARY local stand-in for the engine, for visual work only; removed before this part is done.
#![allow(missing_docs)]
use plimsoll_core::estimate::*;
use plimsoll_core::scenario::*;
use plimsoll_core::{Bytes, Error, Result, Scenario};
use serde_json::Value;

#[derive(Debug)]
pub struct Run {
    e: Estimate,
    t: Timeline,
}
const G: f64 = 1073741824.0;
fn b(x: f64) -> Bytes {
    Bytes::new((x * G) as u64)
}
impl Run {
    pub fn new(s: &Scenario) -> Result<Self> {
        if s.input.batch > 60_000 {
            return Err(Error::new("input.batch", "too large for the fake", "lower it"));
        }
        let p: f64 = 1.236;
        let tr = if s.training.lora.is_some() { 0.011 } else { p };
        let amp = matches!(s.training.precision, Precision::Bf16Amp | Precision::Fp16Amp);
        let w = if matches!(s.training.precision, Precision::Bf16 | Precision::Fp16) { 2.0 } else { 4.0 };
        let weights = p * w * 0.931;
        let states = tr
            * w
            * 0.931
            * match s.training.optimizer {
                Optimizer::Sgd => 0.0,
                Optimizer::SgdMomentum => 1.0,
                _ => 2.0,
            };
        let grads = tr * w * 0.931;
        let copies = if amp { p * 2.0 * 0.931 } else { 0.0 };
        let tok = s.input.batch as f64 * s.input.seq.unwrap_or(64) as f64 / 4096.0;
        let act = tok
            * if s.training.checkpointing == Checkpointing::Full { 1.9 } else { 5.4 }
            * if w == 4.0 && !amp { 1.5 } else { 1.0 };
        let temp = if s.training.optimizer_impl == OptimizerImpl::Foreach { tr * w * 0.931 } else { 0.02 };
        let mk = |a: f64, st: f64, g: f64, c: f64, te: f64| PeakBreakdown {
            weights: b(weights),
            gradients: b(g),
            optimizer_states: b(st),
            saved_activations: b(a),
            temporaries: b(te),
            autocast_copies: b(c),
            inputs: b(0.0001),
            workspace: b(0.008),
        };
        let names = [
            PhaseName::Load,
            PhaseName::Input,
            PhaseName::Forward,
            PhaseName::Backward,
            PhaseName::Clip,
            PhaseName::Optimizer,
            PhaseName::ZeroGrad,
            PhaseName::Input,
            PhaseName::Forward,
            PhaseName::Backward,
            PhaseName::Clip,
            PhaseName::Optimizer,
            PhaseName::ZeroGrad,
        ];
        let evs = [150u32, 2, 1400, 2100, 150, 900, 150, 2, 1400, 2100, 150, 900, 150];
        let mut points = vec![];
        let mut ev = 0;
        for (i, (n, e)) in names.iter().zip(evs).enumerate() {
            let st0 = if i > 6 { states } else { 0.0 };
            let k = 40.min(e);
            for j in 0..k {
                let f = f64::from(j + 1) / f64::from(k);
                let wob = if j % 2 == 0 { 0.0 } else { 0.12 * tok };
                let live = match n {
                    PhaseName::Load => {
                        let mut m = mk(0.0, 0.0, 0.0, 0.0, 0.0);
                        m.weights = b(weights * f);
                        m
                    }
                    PhaseName::Input => mk(0.0, st0, 0.0, 0.0, 0.0),
                    PhaseName::Forward => mk(act * f * 0.82, st0, 0.0, copies * f, wob),
                    PhaseName::Backward => mk(
                        act * (1.0 - f),
                        st0,
                        grads * f,
                        copies * (1.0 - f),
                        wob + if j < 3 { act * 0.3 } else { 0.0 },
                    ),
                    PhaseName::Clip => mk(0.0, st0, grads, 0.0, 0.01),
                    PhaseName::Optimizer => mk(
                        0.0,
                        if i > 6 { states } else { states * f.min(0.5) * 2.0 },
                        grads,
                        0.0,
                        if f > 0.5 { temp } else { 0.0 },
                    ),
                    PhaseName::ZeroGrad => mk(0.0, states, grads * (1.0 - f), 0.0, 0.0),
                };
                points.push(TimelinePoint {
                    event: ev + (e as f64 * f) as u32,
                    phase: i as u32,
                    live,
                    op: "aten::mm".into(),
                    module: "model.layers.7.mlp.down_proj".into(),
                });
            }
            ev += e;
        }
        let peak = points.iter().enumerate().max_by_key(|(_, p)| p.live.total()).map_or(0, |(i, _)| i);
        let Some(pp) = points.get(peak) else { return Err(Error::new("x", "", "")) };
        let req = pp.live.total();
        let reserved = b(req.gib() * 1.04 + 0.02);
        let process = reserved + Bytes::from_mib(520);
        let cap = s
            .device
            .memory
            .unwrap_or(plimsoll_core::catalog::gpu(&s.device.gpu).map_or(Bytes::from_gib(12), |g| g.memory));
        let line = s.device.load_line.unwrap_or(b(cap.gib() * 0.92));
        let phases = names
            .iter()
            .enumerate()
            .map(|(i, n)| Phase {
                name: *n,
                step: if i == 0 { None } else { Some(1 + (i > 6) as u32) },
                micro_batch: matches!(n, PhaseName::Input | PhaseName::Forward | PhaseName::Backward).then_some(1),
                peak_requested: points
                    .iter()
                    .filter(|p| p.phase == i as u32)
                    .map(|p| p.live.total())
                    .max()
                    .unwrap_or_default(),
                end_requested: points
                    .iter()
                    .filter(|p| p.phase == i as u32)
                    .map(|p| p.live.total())
                    .last()
                    .unwrap_or_default(),
                end_allocated: req,
                end_reserved: reserved,
            })
            .collect();
        let e = Estimate {
            schema: 1,
            scenario: Value::Null,
            parameters: Parameters { total: 1_235_814_400, trainable: (tr * 1e9) as u64 },
            peak: Peak {
                allocated: req,
                requested: req,
                reserved,
                process,
                phase: PhaseName::Optimizer,
                step: 2,
                op: "_foreach_sqrt".into(),
                module: String::new(),
            },
            at_peak: pp.live,
            phases,
            device: DeviceLimits { gpu: s.device.gpu.clone(), capacity: cap, load_line: line },
            verdict: if process <= line {
                Verdict::Fits
            } else if process <= cap {
                Verdict::Tight
            } else {
                Verdict::DoesNotFit
            },
            headroom: line.get() as i64 - process.get() as i64,
            max_batch: None,
            warnings: vec![],
        };
        Ok(Self { e, t: Timeline { points, peak } })
    }
    pub fn estimate(&self) -> &Estimate {
        &self.e
    }
    pub fn timeline(&self, _n: usize) -> Timeline {
        self.t.clone()
    }
    pub fn alive_at(&self, event: u32) -> Vec<Holding> {
        let live = self.t.points.iter().rev().find(|p| p.event <= event).map(|p| p.live).unwrap_or_default();
        let mut v: Vec<Holding> = Category::ALL
            .iter()
            .filter(|c| live.get(**c) > Bytes::ZERO)
            .map(|c| Holding {
                category: *c,
                module: "model.layers.*.mlp.down_proj".into(),
                op: "aten::mm".into(),
                shape: vec![2048, 8192],
                dtype: "float32".into(),
                count: 16,
                bytes: live.get(*c),
            })
            .collect();
        v.sort_by_key(|h| std::cmp::Reverse(h.bytes));
        v
    }
}
pub fn max_batch(s: &Scenario) -> Result<u64> {
    let mut s = s.clone();
    let mut n = 0;
    for k in 1..64 {
        s.input.batch = k;
        if Run::new(&s)?.e.verdict == Verdict::Fits {
            n = k;
        }
    }
    Ok(n)
}
