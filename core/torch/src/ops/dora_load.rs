//! What passes on the card while DoRA measures the rows of a quantized linear (peft's `DoraLinearLayer.update_layer`).

use super::quantized_load::{Load, Quantized};
use crate::Op;
use crate::tensor::DType;

impl Load<'_> {
    /// Everything up to the norms of a linear, quantized or whole, for adapters in `dtype` whose matrices and lengths are so many numbers.
    /// Answers what goes when the norms are there, in that order: the copy of the layer, the weight, the product, and what the norms' graph
    /// kept. The first product has cuBLAS take its workspace.
    pub fn measure(
        &mut self,
        linear: Option<&Quantized>,
        [a, b, rows]: [u64; 3],
        dtype: DType,
        workspace: Option<u32>,
    ) -> Vec<u32> {
        let rank = (b / rows.max(1)).max(1);
        let numbers = (a / rank).saturating_mul(rows);
        let is_half = dtype == DType::Float16;
        // `lora_A.float()`, `lora_B.float()`: float16 multiplies badly on a CPU.
        let wide = [a, b].map(|numbers| is_half.then(|| self.passes(Op::ToCopy, numbers, DType::Float32)));
        // FSDP is at odds with the layer itself.
        let copied = linear.filter(|linear| linear.is_four_bit);
        let mut left = copied.map(|linear| self.copy(linear)).unwrap_or_default();
        left.extend(linear.map(|linear| self.dequantized(linear, dtype)));
        let mut product = self.passes(Op::Mm, numbers, if is_half { DType::Float32 } else { dtype });
        self.comes(workspace);
        if is_half {
            let narrow = self.passes(Op::ToCopy, numbers, dtype);
            self.goes(std::mem::replace(&mut product, narrow));
        }
        left.push(product);
        // `weight + scaling * lora_weight`, which the norm keeps.
        let scaled = self.passes(Op::MulTensor, numbers, dtype);
        left.push(self.passes(Op::AddTensor, numbers, dtype));
        self.goes(scaled);
        left.extend(wide.into_iter().flatten());
        left
    }

    /// `deepcopy(base_layer)` of a four-bit layer: its weight's state, the packed numbers, the bias, and the state once more, which the
    /// layer has by itself.
    fn copy(&mut self, linear: &Quantized) -> Vec<u32> {
        let mut made = Vec::new();
        let state: Vec<u64> = match linear.bytes[..] {
            [_, absmax, code] => vec![absmax, code],
            [_, code, offset, absmax, second, .., map] => vec![absmax, code, offset, second, map],
            _ => Vec::new(),
        };
        let data = linear.bytes.first().copied();
        for bytes in state.iter().copied().chain(data) {
            made.push(self.copied(bytes));
        }
        // A parameter is cloned.
        made.extend(linear.bias.map(|bytes| self.passes(Op::Clone, bytes, DType::UInt8)));
        for bytes in state {
            made.push(self.copied(bytes));
        }
        made
    }

    /// `Tensor.__deepcopy__`: a copy of the storage, and `self.new_empty([])`, which then takes it.
    fn copied(&mut self, bytes: u64) -> u32 {
        let copy = self.passes(Op::Clone, bytes, DType::UInt8);
        let one = self.passes(Op::NewEmpty, 1, DType::UInt8);
        self.goes(one);
        copy
    }

    /// `dequantize_module_weight`.
    fn dequantized(&mut self, linear: &Quantized, dtype: DType) -> u32 {
        let numbers = linear.numbers();
        let before = match linear.bytes[..] {
            [_, _, _, blocks, ..] if linear.is_four_bit => {
                Some(self.passes(Op::DequantizeBlockwise, blocks, DType::Float32))
            }
            _ if linear.is_four_bit => None,
            _ => Some(self.passes(Op::MulTensor, numbers, dtype)),
        };
        let weight = self.passes(if linear.is_four_bit { Op::Dequantize4bit } else { Op::MulTensor }, numbers, dtype);
        if let Some(before) = before {
            self.goes(before);
        }
        weight
    }
}
