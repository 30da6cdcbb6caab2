//! cuDNN's convolutions: what they take as workspace.
//!
//! Which of its engines cuDNN takes is its own secret. What most of them need follows from how they read: tensor cores want the
//! channels last, so what lies in rows is copied there and the result back. The rule is read off 763 convolutions that were
//! measured on an H100 80GB HBM3 (PyTorch 2.11.0+cu130, cuDNN 9.19, `torch.backends.cudnn.benchmark` off, 2026-11-26), of which
//! `tests/corpus/convolutions.csv` has each with its three workspaces. What an engine holds beyond the copies, parts of a sum
//! that several blocks share, is not in it.

use std::rc::Rc;

use super::Scratch;
use super::question::{Question, Shape};
use crate::Op;
use crate::tensor::{Context, DType, Kernels};

/// Which of a convolution's three products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Product {
    /// The output.
    Forward,
    /// The gradient of the input.
    Input,
    /// The gradient of the weight.
    Weight,
}

/// One convolution, as cuDNN is asked for it.
#[derive(Clone, Copy, Debug)]
pub struct Convolved {
    /// Samples.
    pub samples: u64,
    /// Channels of input and output.
    pub channels: [u64; 2],
    /// Groups of channels.
    pub groups: u64,
    /// Pixels of an image, or places of a line, of input and output.
    pub pixels: [u64; 2],
    /// Numbers of a filter for one channel.
    pub taps: u64,
    /// Whether filters lie one over the other.
    pub overlapping: bool,
    /// Whether a filter reads one place, and every place.
    pub pointwise: bool,
    /// Whether what is given lies with its channels last.
    pub last: bool,
    /// The dtype of all three.
    pub dtype: DType,
    /// Whether such were measured: of images and lines, whose filters have no gaps and make no more of less.
    pub measured: bool,
    /// What cuDNN can be asked for, if it can: not of filters that have gaps, or make more of less.
    pub shape: Option<Shape>,
}

/// Sizes of an image, the most that was measured.
const IMAGES: usize = 4;

/// So many channels must be filtered one by one for cuDNN to be asked for it.
const CHANNELS: u64 = 32;
/// The flag that an engine which converts keeps besides.
const FLAG: u64 = 16;
/// Channels that a tensor core reads at a time, of half numbers and of float32.
const HALVES: u64 = 8;
const FLOATS: u64 = 4;
/// Filters of fewer channels than a vector go through the tensor cores where they read at least as many places as this: 7 x 7, 14 x
/// 14 and 16 x 16 were seen to, 3 x 3 and 4 x 4 were not.
const WIDE: u64 = 49;
/// Of filters that lie side by side, at least so many: 768 and 1024 were seen to, 96 to 224 were not.
const MANY: u64 = 768;

impl Convolved {
    /// Of an input and a weight with which something of the sizes `made` comes out, with this stride and padding along the last
    /// dimension. `last` says whether the channels of what is given lie last.
    pub fn of([x, weight]: [&[u64]; 2], made: &[u64], [stride, padding]: [u64; 2], last: bool, dtype: DType) -> Self {
        let product = |sizes: &[u64]| sizes.iter().skip(2).fold(1, |all: u64, &size| all.saturating_mul(size));
        let size = |sizes: &[u64], at: usize| sizes.get(at).copied().unwrap_or(1);
        let taps = product(weight);
        Self {
            samples: size(x, 0),
            channels: [size(x, 1), size(weight, 0)],
            groups: size(x, 1) / size(weight, 1).max(1),
            pixels: [product(x), product(made)],
            taps,
            overlapping: weight.last().is_some_and(|&side| side > stride),
            pointwise: stride == 1 && padding == 0 && taps == 1,
            last,
            dtype,
            measured: made.len() <= IMAGES,
            shape: Shape::of([x, weight], made, [stride, padding]),
        }
    }

    /// Whether there is a filter for each channel.
    fn is_depthwise(&self) -> bool {
        let [read, made] = self.channels;
        self.groups > 1 && self.groups == read && made.is_multiple_of(self.groups)
    }

    /// Whether PyTorch's own kernel runs it, of a filter for each channel, which makes the gradient of the weight first
    /// (`conv_depthwise2d_backward_out` in DepthwiseConv2d.cu).
    pub fn is_own_depthwise(&self) -> bool {
        self.is_depthwise() && !self.is_cudnns()
    }

    /// Whether cuDNN runs it. Of a filter for each channel PyTorch has kernels of its own, which it takes of what is row-major, but of many
    /// channels in float16 at some sizes (`use_cudnn_depthwise` in `Convolution.cpp`).
    pub fn is_cudnns(&self) -> bool {
        let worth = || self.dtype == DType::Float16 && self.channels[0] >= CHANNELS && self.is_worth_cudnn();
        !self.is_depthwise() || self.last || worth()
    }

    /// Whether a filter for each channel is cuDNN's in float16, as PyTorch found it faster
    /// (`check_cudnn_depthwise_workload_with_filter` in `Convolution.cpp`).
    fn is_worth_cudnn(&self) -> bool {
        let Some(shape) = self.shape else { return true };
        let ([&[samples, channels, height, width], &[.., tall, wide], _], &[down, along]) =
            (shape.tensors(), shape.stride())
        else {
            return true;
        };
        let line = height == 1;
        if !line && down != along {
            return false;
        }
        match (along, wide) {
            (1, _) if line => true,
            _ if tall != wide || width < 7 => false,
            (1, 1 | 3 | 5) => true,
            (2, 1) if samples == 1 => width <= 28,
            (2, 1) => samples <= 16 && channels >= 128 && width <= 7,
            (2, 3 | 5) => samples == 1 || channels >= 512 || channels >= 256 && width >= 28,
            _ => false,
        }
    }

    /// Whether it is a matrix product for each sample, of what lies in rows.
    fn is_product(&self) -> bool {
        self.groups == 1 && self.pointwise && !self.last
    }

    /// What cuDNN is asked for. Hopper's products of single places, and everywhere filters of one channel, it plans with the card
    /// itself only: there its answer without one is another than was measured.
    fn question(&self, product: Product, hopper: bool) -> Option<Question> {
        let known = Question::DTYPES.iter().any(|(_, dtype)| *dtype == self.dtype);
        let planned = known && self.is_cudnns() && !self.is_depthwise() && !(hopper && self.is_product());
        let shape = self.shape.filter(|_| planned)?;
        Some(Question { product, shape, last: self.last, dtype: self.dtype })
    }

    /// Bytes of the workspace.
    pub fn workspace(&self, product: Product) -> u64 {
        let Self { samples, channels: [read, made], groups, taps, last, dtype, .. } = *self;
        if !self.measured || self.is_depthwise() || !matches!(dtype, DType::Float32 | DType::Float16 | DType::BFloat16)
        {
            return 0;
        }
        let few = read / groups.max(1) < HALVES;
        let wide = taps >= WIDE;
        if last {
            let [input, weight, _] = self.copies(product);
            let filled =
                few && (product == Product::Weight || product == Product::Forward && (wide || !dtype.is_half()));
            return if filled { input.saturating_add(weight).saturating_add(FLAG) } else { 0 };
        }
        let [input, weight, output] = self.copies(product);
        let all = [input, weight, output, FLAG].iter().fold(0, |sum: u64, &copy| sum.saturating_add(copy));
        if self.is_product() {
            // A matrix product for each sample, where its rows begin at whole words.
            let row = self.pixels[0].saturating_mul(dtype.size());
            return match product {
                // The products of all samples, that are summed afterwards.
                Product::Weight if row.is_multiple_of(16) => {
                    samples.saturating_mul(read.saturating_mul(made).saturating_mul(DType::Float32.size()))
                }
                Product::Forward | Product::Input if row.is_multiple_of(8) => 0,
                _ => all,
            };
        }
        match product {
            Product::Forward if groups > 1 && taps == 1 => 0,
            Product::Forward | Product::Input if few && groups == 1 => {
                let patches = dtype.is_half() && made >= MANY;
                if wide && (self.overlapping || patches) { all } else { 0 }
            }
            _ => all,
        }
    }

    /// Bytes of input, weight and output with their channels last: a filter of one tap lies so already.
    fn copies(&self, product: Product) -> [u64; 3] {
        let Self { samples, channels: [read, made], groups, pixels, taps, dtype, .. } = *self;
        let groups = groups.max(1);
        let few = read / groups < HALVES;
        let vector = match dtype {
            _ if product == Product::Input && few => 1,
            DType::Float32 if groups == 1 => 1,
            DType::Float32 => FLOATS,
            // bfloat16 has no such engine.
            DType::Float16 if product == Product::Forward && few && self.overlapping => FLOATS,
            _ => HALVES,
        };
        let [read, made] = [read, made].map(|channels| (channels / groups).next_multiple_of(vector));
        let of = |sizes: &[u64]| {
            sizes.iter().fold(groups.saturating_mul(dtype.size()), |all, &size| all.saturating_mul(size))
        };
        let weight = if taps == 1 { 0 } else { of(&[read, made, taps]) };
        [of(&[samples, pixels[0], read]), weight, of(&[samples, pixels[1], made])]
    }
}

/// What cuDNN holds while it computes `product`: what it says itself, where it was asked; else measured on Hopper alone, and
/// nowhere with a search for the fastest algorithm.
pub fn convolution<'c>(cx: &'c Rc<Context>, op: Op, convolved: Convolved, product: Product) -> Option<Scratch<'c>> {
    if convolved.is_cudnns() {
        cx.runs(Op::CudnnConvolution.id());
    }
    let Kernels::Cuda(major, minor) = cx.machine().kernels else { return None };
    if !cx.convolves_by_heuristics() {
        return None;
    }
    let hopper = (major, minor) == (9, 0);
    let told = cx.cudnn_answers().and_then(|answers| answers.to(convolved.question(product, hopper)?));
    let measured = || if hopper { convolved.workspace(product) } else { 0 };
    let bytes = told.unwrap_or_else(measured);
    if bytes == 0 { None } else { Scratch::converted(cx, op, &[bytes], DType::UInt8) }
}
