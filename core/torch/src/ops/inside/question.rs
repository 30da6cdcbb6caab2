//! What cuDNN is asked for a convolution, and what it answered: its library can be asked without a card.
//!
//! Since 9.8 cuDNN plans a convolution for a card that is described to it, documented as deviceless ahead-of-time compilation. Who has the
//! library can so be told the workspace of each convolution of a run; the engine says which those are, and counts with what it is told.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::convolution::Product;
use crate::tensor::DType;

/// The most dimensions that a convolution has: samples, channels, and a volume's three.
const MOST: usize = 5;
/// Dimensions that are no places: samples and channels.
const OTHERS: usize = 2;

/// Sizes of what a convolution reads and makes, and how its filters move. A line is an image of height 1, as PyTorch has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    rank: usize,
    tensors: [[u64; MOST]; 3],
    stride: [u64; MOST - OTHERS],
    padding: [u64; MOST - OTHERS],
}

impl Shape {
    /// Of an input and a weight with which something of the sizes `made` comes out, with this stride and padding along the last
    /// dimension. The others move as it does; where they do not, by how many places and with what padding follows from what comes out: by
    /// as many with another padding, else by one. `None` where neither is so, and of what is no line, image or volume.
    pub fn of([x, weight]: [&[u64]; 2], made: &[u64], [stride, padding]: [u64; 2]) -> Option<Self> {
        let rank = x.len();
        if !(OTHERS < rank && rank <= MOST) || weight.len() != rank || made.len() != rank || stride == 0 {
            return None;
        }
        let mut shape = Self { rank, tensors: [[1; MOST]; 3], stride: [1; MOST - OTHERS], padding: [0; MOST - OTHERS] };
        // The height of a line stands before its places.
        let lifted = usize::from(rank == OTHERS + 1);
        shape.rank += lifted;
        for (sizes, of) in shape.tensors.iter_mut().zip([x, weight, made]) {
            let places = OTHERS + lifted;
            sizes[..OTHERS].copy_from_slice(&of[..OTHERS]);
            sizes[places..places + rank - OTHERS].copy_from_slice(&of[OTHERS..]);
        }
        for at in OTHERS..rank {
            let [x, weight, made] = [x[at], weight[at], made[at]];
            let comes = |(stride, padding): &(u64, u64)| {
                let moves = x.checked_add(padding.checked_mul(2)?)?.checked_sub(weight)?;
                (moves / stride + 1 == made).then_some((*stride, *padding))
            };
            // The least padding with which as many come out; more than a filter is none.
            let least = |stride: u64| {
                let reached = made.checked_sub(1)?.checked_mul(stride)?.checked_add(weight)?;
                let padding = reached.saturating_sub(x).div_ceil(2);
                (padding < weight).then_some((stride, padding))
            };
            let likely = [Some((stride, padding)), least(stride), least(1)];
            let place = at - OTHERS + lifted;
            (shape.stride[place], shape.padding[place]) = likely.iter().flatten().find_map(comes)?;
        }
        Some(shape)
    }

    /// Of an input, a weight and what comes out, none of them a line, and how filters move along each dimension that has places. `None` of
    /// numbers that do not belong together.
    pub fn told(tensors: [&[u64]; 3], stride: &[u64], padding: &[u64]) -> Option<Self> {
        let rank = stride.len() + OTHERS;
        let fits = OTHERS + 1 < rank && rank <= MOST && padding.len() == stride.len();
        if !fits || tensors.iter().any(|sizes| sizes.len() != rank) {
            return None;
        }
        let mut shape = Self { rank, tensors: [[1; MOST]; 3], stride: [1; MOST - OTHERS], padding: [0; MOST - OTHERS] };
        for (sizes, of) in shape.tensors.iter_mut().zip(tensors) {
            sizes[..rank].copy_from_slice(of);
        }
        shape.stride[..stride.len()].copy_from_slice(stride);
        shape.padding[..padding.len()].copy_from_slice(padding);
        Some(shape)
    }

    fn places(&self) -> usize {
        self.rank - OTHERS
    }

    /// Sizes of the input, the weight and the output, in this order: samples or filters, channels of a group, places.
    pub fn tensors(&self) -> [&[u64]; 3] {
        self.tensors.each_ref().map(|sizes| &sizes[..self.rank])
    }

    /// By how many places filters move, for each dimension that has places.
    pub fn stride(&self) -> &[u64] {
        &self.stride[..self.places()]
    }

    /// Places that are added at either end, for each dimension that has places.
    pub fn padding(&self) -> &[u64] {
        &self.padding[..self.places()]
    }
}

/// One question: the workspace of one of a convolution's three products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question {
    /// Which.
    pub product: Product,
    /// Of what.
    pub shape: Shape,
    /// Whether all three tensors have their channels last; else they are row-major.
    pub last: bool,
    /// The dtype of all three.
    pub dtype: DType,
}

impl Question {
    /// What the products are called where cuDNN is asked.
    pub const PRODUCTS: [(&str, Product); 3] =
        [("forward", Product::Forward), ("input", Product::Input), ("weight", Product::Weight)];
    /// What the dtypes are called there; of others it is not asked.
    pub const DTYPES: [(&str, DType); 3] =
        [("fp32", DType::Float32), ("fp16", DType::Float16), ("bf16", DType::BFloat16)];

    /// The product and the dtype, as they are called there.
    pub fn names(&self) -> [&'static str; 2] {
        let product = Self::PRODUCTS.iter().find(|(_, product)| *product == self.product);
        let dtype = Self::DTYPES.iter().find(|(_, dtype)| *dtype == self.dtype);
        [product.map_or("", |(name, _)| name), dtype.map_or("", |(name, _)| name)]
    }
}

/// What was asked in a run, and what cuDNN answered.
#[derive(Debug, Default)]
pub struct Answers {
    /// Bytes; `None` of what it does not know.
    known: RefCell<BTreeMap<Question, Option<u64>>>,
    /// Not answered yet.
    open: RefCell<Vec<Question>>,
    /// The version of the library that answered.
    version: RefCell<String>,
}

impl Answers {
    /// What cuDNN answered, if anything. A question that is new is noted.
    pub(crate) fn to(&self, question: Question) -> Option<u64> {
        if let Some(&answer) = self.known.borrow().get(&question) {
            return answer;
        }
        let mut open = self.open.borrow_mut();
        if !open.contains(&question) {
            open.push(question);
        }
        None
    }

    /// Notes which library answers: its version, as `9.19.0`.
    pub fn name(&self, version: String) {
        self.version.replace(version);
    }

    /// The version of the library that answered; empty where none did.
    pub fn version(&self) -> String {
        self.version.borrow().clone()
    }

    /// Takes out the questions that nobody answered, in the order they came up in.
    pub fn take_open(&self) -> Vec<Question> {
        self.open.take()
    }

    /// Bytes of a workspace; `None` where cuDNN has no answer, which is not asked again.
    pub fn tell(&self, question: Question, bytes: Option<u64>) {
        self.known.borrow_mut().insert(question, bytes);
    }

    /// How many questions have an answer, and how many have none although cuDNN was asked.
    pub fn counts(&self) -> [usize; 2] {
        let known = self.known.borrow();
        let answered = known.values().filter(|answer| answer.is_some()).count();
        [answered, known.len() - answered]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_image_of_height_one() {
        let shape = Shape::of([&[2, 80, 3000], &[384, 80, 3]], &[2, 384, 1500], [2, 1]).unwrap();
        assert_eq!(shape.tensors(), [&[2, 80, 1, 3000][..], &[384, 80, 1, 3], &[2, 384, 1, 1500]]);
        assert_eq!((shape.stride(), shape.padding()), (&[1, 2][..], &[0, 1][..]));
        assert_eq!(Shape::told(shape.tensors(), shape.stride(), shape.padding()), Some(shape));
        assert_eq!(Shape::told(shape.tensors(), &[2], &[1]), None);
    }

    /// Inception's filters of 7 x 1, padded along their height alone.
    #[test]
    fn padding_that_is_not_told_follows_from_what_comes_out() {
        let shape = Shape::of([&[2, 768, 17, 17], &[192, 768, 7, 1]], &[2, 192, 17, 17], [1, 0]).unwrap();
        assert_eq!((shape.stride(), shape.padding()), (&[1, 1][..], &[3, 0][..]));
        // A volume's filters that move by two places of an image, and by one image.
        let volume = Shape::of([&[2, 64, 16, 56, 56], &[128, 64, 1, 3, 3]], &[2, 128, 16, 28, 28], [2, 1]).unwrap();
        assert_eq!((volume.stride(), volume.padding()), (&[1, 2, 2][..], &[0, 1, 1][..]));
        assert_eq!(Shape::of([&[2, 8, 64, 64], &[8, 8, 1, 1]], &[2, 8, 16, 32], [2, 0]), None);
        assert_eq!(Shape::of([&[2, 8], &[8, 8]], &[2, 8], [1, 0]), None);
        // Sizes of a file that means harm are no work.
        let huge = u64::MAX;
        assert_eq!(Shape::of([&[1, 1, huge], &[1, 1, huge]], &[1, 1, 3], [1, huge]), None);
        assert_eq!(Shape::of([&[1, 1, 8], &[1, 1, huge]], &[1, 1, huge], [huge, 0]), None);
    }

    #[test]
    fn a_question_is_asked_once() {
        let shape = Shape::of([&[2, 8, 16, 16], &[8, 8, 3, 3]], &[2, 8, 16, 16], [1, 1]).unwrap();
        let ask = |product| Question { product, shape, last: false, dtype: DType::Float32 };
        let answers = Answers::default();
        assert_eq!(answers.to(ask(Product::Input)), None);
        assert_eq!(answers.to(ask(Product::Forward)), None);
        assert_eq!(answers.to(ask(Product::Input)), None);
        assert_eq!(answers.take_open(), [ask(Product::Input), ask(Product::Forward)]);
        answers.tell(ask(Product::Input), Some(7));
        answers.tell(ask(Product::Forward), None);
        assert_eq!((answers.to(ask(Product::Input)), answers.to(ask(Product::Forward))), (Some(7), None));
        assert!(answers.take_open().is_empty());
        assert_eq!(answers.counts(), [1, 1]);
    }
}
