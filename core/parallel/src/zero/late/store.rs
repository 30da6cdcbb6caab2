//! Partitioned parameters (`deepspeed/runtime/zero/partition_parameters.py`): every rank keeps a part, and the whole is there
//! from its gathering until its release.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plimsoll_ledger::Stream;
use plimsoll_torch::ops::{self, Rearrangement, Transfer};
use plimsoll_torch::tensor::{Context, DType, Geometry, Kind, ModuleId, Mould, Tensor};
use smallvec::SmallVec;

/// `ZeroParamStatus`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Status {
    /// Only its part is there.
    #[default]
    Away,
    /// Being gathered.
    Coming,
    /// Whole.
    Here,
}

/// One parameter.
#[derive(Debug)]
pub struct Parameter {
    /// What the model computes with, without bytes of its own.
    pub whole: Tensor,
    /// `ds_numel`.
    pub numel: u64,
    /// Numbers of every rank's part, the last one padded.
    pub part: u64,
    /// What is made of it.
    pub moulds: Rc<Made>,
    /// Whether it is small enough to stay whole between steps (`ds_persist`).
    pub persists: bool,
    status: Cell<Status>,
    /// What it is being gathered with (`InflightParamRegistry`).
    coming: RefCell<Option<Coming>>,
    /// `param.data`, while it is gathered.
    bytes: RefCell<Option<Tensor>>,
    /// `ds_active_sub_modules`.
    used_by: RefCell<SmallVec<[ModuleId; 2]>>,
}

/// What is made of each of several parameters of the same sizes.
#[derive(Debug, Default)]
pub struct Made {
    /// The whole parameter as it is loaded, and a rank's part of it.
    pub loaded: Mould,
    pub part: Mould,
    /// What the parts of all ranks are gathered into.
    gathered: Mould,
    /// The copy that it gets of what was gathered together.
    copied: Mould,
}

impl Parameter {
    fn new(whole: Tensor, moulds: Rc<Made>, ranks: u64, persistent: u64) -> Self {
        let numel = whole.numel();
        Self {
            whole,
            numel,
            part: numel.div_ceil(ranks.max(1)),
            moulds,
            persists: numel <= persistent,
            status: Cell::default(),
            coming: RefCell::default(),
            bytes: RefCell::default(),
            used_by: RefCell::default(),
        }
    }

    pub fn is_away(&self) -> bool {
        self.status.get() == Status::Away
    }

    /// A module is about to use it.
    pub fn take(&self, module: ModuleId) {
        let mut used_by = self.used_by.borrow_mut();
        if !used_by.contains(&module) {
            used_by.push(module);
        }
    }

    /// A module does not use it any more.
    pub fn leave(&self, module: ModuleId) {
        let mut used_by = self.used_by.borrow_mut();
        if let Some(at) = used_by.iter().position(|user| *user == module) {
            used_by.swap_remove(at);
        }
    }
}

/// Parameters by their places, of a module or a gathering.
pub type Members = SmallVec<[usize; 4]>;

/// What a parameter that is being gathered is gathered with.
#[derive(Clone, Debug)]
enum Coming {
    /// Nothing else: it is a view of what it is gathered into (`AllGatherHandle`).
    Alone,
    Together(Rc<Gathering>),
}

/// What is gathered together (`AllGatherCoalescedHandle`).
#[derive(Debug)]
struct Gathering {
    members: Members,
    /// What all parts are gathered into, one for every dtype, of which each parameter gets a copy. It goes when the last of its
    /// parameters was waited for.
    #[allow(dead_code, reason = "held alive, as the handle holds it")]
    flats: SmallVec<[Tensor; 1]>,
    complete: Cell<bool>,
}

/// All parameters of a model, and what is being gathered.
#[derive(Debug)]
pub struct Store {
    pub all: Vec<Parameter>,
    /// The storage that the model knows of each, ascending, and where it is among them.
    places: Vec<(u32, usize)>,
    ranks: u64,
    stream: Stream,
    module: ModuleId,
    /// Whether parts lie in the machine's memory.
    offloaded: bool,
}

impl Store {
    /// Parameters up to `persistent` numbers stay whole. They are gathered on `stream`.
    pub fn new(
        wholes: Vec<Tensor>,
        (ranks, persistent): (u64, u64),
        (stream, module): (Stream, ModuleId),
        offloaded: bool,
    ) -> Self {
        let mut places: Vec<(u32, usize)> = (0..).zip(&wholes).map(|(at, whole)| (whole.storage_id(), at)).collect();
        places.sort_unstable();
        // Layers have parameters of a few sizes.
        let mut sizes: Vec<(Tensor, Rc<Made>)> = Vec::new();
        let parameter = |whole: Tensor| {
            let alike = |(of, _): &&(Tensor, Rc<Made>)| of.dims() == whole.dims() && of.dtype() == whole.dtype();
            let moulds = match sizes.iter().find(alike) {
                Some((_, moulds)) => Rc::clone(moulds),
                None => {
                    let moulds = Rc::<Made>::default();
                    sizes.push((whole.clone(), Rc::clone(&moulds)));
                    moulds
                }
            };
            Parameter::new(whole, moulds, ranks, persistent)
        };
        let all = wholes.into_iter().map(parameter).collect();
        Self { all, places, ranks, stream, module, offloaded }
    }

    /// Whether parts lie in the machine's memory.
    pub const fn is_away(&self) -> bool {
        self.offloaded
    }

    pub fn get(&self, index: usize) -> Option<&Parameter> {
        self.all.get(index)
    }

    /// What the parts of all ranks, each of so many numbers, are gathered into.
    fn gathered(&self, cx: &Rc<Context>, part: u64, dtype: DType) -> Tensor {
        let numel = part.saturating_mul(self.ranks);
        ops::transfer(cx, Transfer::AllGather, numel, self.ranks, dtype);
        self.make(cx, Geometry::contiguous(&[numel]), dtype)
    }

    fn make(&self, cx: &Rc<Context>, geometry: Geometry, dtype: DType) -> Tensor {
        cx.counting_as(Kind::Parameter, || cx.put_down_to(self.module, || ops::empty_of(cx, geometry, dtype)))
    }

    /// A rank's part on the card: itself, or a copy of what lies in the machine's memory.
    fn fetched(&self, cx: &Rc<Context>, of: &Parameter) -> Option<Tensor> {
        self.offloaded.then(|| {
            ops::transfer(cx, Transfer::ToCard, of.part, 1, of.whole.dtype());
            self.make(cx, Geometry::contiguous(&[of.part]), of.whole.dtype())
        })
    }

    /// `all_gather_coalesced`, of those of `wanted` that are not there; how many numbers they have, where there are any.
    pub fn gather(&self, cx: &Rc<Context>, wanted: &[usize]) -> Option<u64> {
        let is_away = |index: &usize| self.get(*index).is_some_and(Parameter::is_away);
        let mut away = wanted.iter().copied().filter(is_away);
        let first = away.next()?;
        let Some(second) = away.next() else {
            let single = self.get(first)?;
            cx.on_stream(self.stream, || self.gather_alone(cx, single));
            single.status.set(Status::Coming);
            drop(single.coming.replace(Some(Coming::Alone)));
            return Some(single.numel);
        };
        let members: Members = [first, second].into_iter().chain(away).collect();
        let sum = |numels: &mut dyn Iterator<Item = u64>| numels.fold(0u64, u64::saturating_add);
        let numel = sum(&mut members.iter().filter_map(|index| self.get(*index)).map(|parameter| parameter.numel));
        self.gather_together(cx, members);
        Some(numel)
    }

    /// Several of which none is there.
    fn gather_together(&self, cx: &Rc<Context>, mut members: Members) {
        members.sort_unstable();
        members.dedup();
        // `sort_dtypes`
        members.sort_by_key(|index| self.get(*index).map(|parameter| parameter.whole.dtype().name()));
        let parameters: SmallVec<[&Parameter; 4]> = members.iter().filter_map(|index| self.get(*index)).collect();
        let coming = if let [single] = parameters.as_slice() {
            cx.on_stream(self.stream, || self.gather_alone(cx, single));
            Coming::Alone
        } else {
            let flats = cx.on_stream(self.stream, || {
                let alike = parameters.chunk_by(|one, next| one.whole.dtype() == next.whole.dtype());
                let gathered = alike.map(|alike| {
                    let dtype = alike.first().map_or(DType::Float32, |p| p.whole.dtype());
                    let part = alike.iter().fold(0u64, |sum, p| sum.saturating_add(p.part));
                    let flat = self.gathered(cx, part, dtype);
                    let parts: Vec<Tensor> = alike.iter().filter_map(|p| self.fetched(cx, p)).collect();
                    drop(parts);
                    flat
                });
                gathered.collect()
            });
            Coming::Together(Rc::new(Gathering { members: members.clone(), flats, complete: Cell::new(false) }))
        };
        for parameter in parameters {
            parameter.status.set(Status::Coming);
            drop(parameter.coming.replace(Some(coming.clone())));
        }
    }

    /// What the parts of one parameter are gathered into.
    fn gathered_alone(&self, cx: &Rc<Context>, parameter: &Parameter) -> Tensor {
        let make = || self.gathered(cx, parameter.part, parameter.whole.dtype());
        parameter.moulds.gathered.make(cx, make)
    }

    /// All parts of one parameter, which becomes a view of them.
    fn gather_alone(&self, cx: &Rc<Context>, parameter: &Parameter) {
        let flat = self.gathered_alone(cx, parameter);
        drop(self.fetched(cx, parameter));
        drop(parameter.bytes.replace(Some(flat)));
    }

    /// One parameter is gathered and let go of at once.
    pub fn gather_once(&self, cx: &Rc<Context>, parameter: &Parameter) {
        let flat = self.gathered_alone(cx, parameter);
        drop(self.fetched(cx, parameter));
        drop(flat);
    }

    /// `handle.wait()`, where the parameter is being gathered: all that were gathered with it are whole now.
    pub fn wait(&self, cx: &Rc<Context>, index: usize) {
        let Some(parameter) = self.get(index) else { return };
        let gathering = match parameter.coming.take() {
            None => return,
            Some(Coming::Alone) => return parameter.status.set(Status::Here),
            Some(Coming::Together(gathering)) => gathering,
        };
        if gathering.complete.replace(true) {
            return;
        }
        for parameter in gathering.members.iter().filter_map(|member| self.get(*member)) {
            let dtype = parameter.whole.dtype();
            let cat = || ops::rearrangement(cx, Rearrangement::Cat, parameter.whole.dims(), dtype);
            let here = || cx.counting_as(Kind::Parameter, || cx.put_down_to(self.module, cat));
            let copied = cx.on_stream(self.stream, || parameter.moulds.copied.make(cx, here));
            drop(parameter.bytes.replace(Some(copied)));
            parameter.status.set(Status::Here);
        }
    }

    /// Waits for all that is being gathered, and releases it; calls `released` with the numbers of each.
    pub fn settle(&self, cx: &Rc<Context>, released: &mut dyn FnMut(u64)) {
        let is_coming = |index: &usize| self.get(*index).is_some_and(|parameter| parameter.coming.borrow().is_some());
        let waiting: Vec<usize> = (0..self.all.len()).filter(is_coming).collect();
        for index in waiting {
            self.wait(cx, index);
            self.release(index, released);
        }
    }

    /// `__release_param`, unless a module still uses it.
    pub fn release(&self, index: usize, released: &mut dyn FnMut(u64)) {
        let Some(parameter) = self.get(index) else { return };
        if parameter.status.get() == Status::Here && parameter.used_by.borrow().is_empty() {
            drop(parameter.bytes.take());
            parameter.status.set(Status::Away);
            released(parameter.numel);
        }
    }

    /// `release_and_reset_all`.
    pub fn release_all(&self, cx: &Rc<Context>, released: &mut dyn FnMut(u64)) {
        for (index, parameter) in self.all.iter().enumerate() {
            self.wait(cx, index);
            parameter.used_by.borrow_mut().clear();
            self.release(index, released);
        }
    }

    /// `param.all_gather(param_list)`: at once, on the stream that computes, each by itself.
    pub fn gather_now(&self, cx: &Rc<Context>, wanted: &[usize]) {
        let away: SmallVec<[&Parameter; 4]> =
            wanted.iter().filter_map(|i| self.get(*i)).filter(|p| p.is_away()).collect();
        match away.as_slice() {
            [single] => self.gather_alone(cx, single),
            several => {
                let parts: Vec<Tensor> = several.iter().filter_map(|p| self.fetched(cx, p)).collect();
                for parameter in several {
                    drop(parameter.bytes.replace(Some(self.gathered_alone(cx, parameter))));
                }
                drop(parts);
            }
        }
        for parameter in away {
            parameter.status.set(Status::Here);
        }
    }

    /// The optimizer stepped in the machine's memory: parts that lie on the card are written anew.
    pub fn come_back(&self, cx: &Rc<Context>) {
        for parameter in self.all.iter().filter(|p| !self.offloaded && p.whole.requires_grad()) {
            ops::transfer(cx, Transfer::ToCard, parameter.part, 1, parameter.whole.dtype());
        }
    }

    /// Which parameter this is.
    pub fn place(&self, tensor: &Tensor) -> Option<usize> {
        let id = tensor.storage_id();
        // What is listed twice is found where it comes last.
        let behind = self.places.partition_point(|(known, _)| *known <= id);
        self.places.get(behind.checked_sub(1)?).filter(|(known, _)| *known == id).map(|(_, place)| *place)
    }

    /// What a parameter, or a view of it, has in bytes at the moment.
    pub fn bytes_of(&self, tensor: &Tensor) -> Option<Tensor> {
        let bytes = self.get(self.place(tensor)?)?.bytes.borrow().clone()?;
        Some(bytes.view_as(tensor.geometry().clone()))
    }

    /// A parameter has other data now: what was gathered for it goes.
    pub fn replaced(&self, tensor: &Tensor) {
        if let Some(parameter) = self.place(tensor).and_then(|index| self.get(index)) {
            drop(parameter.bytes.take());
        }
    }
}
