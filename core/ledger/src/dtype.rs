//! Element types.

/// A PyTorch dtype, as far as size and promotion go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DType {
    /// `torch.bool`, one byte an element.
    Bool,
    /// `torch.uint8`: two four-bit numbers, or a scale in eight bits.
    UInt8,
    /// `torch.int8`.
    Int8,
    /// `torch.int32`.
    Int32,
    /// `torch.int64`.
    Int64,
    /// `torch.uint64` (random number state).
    UInt64,
    /// `torch.float16`.
    Float16,
    /// `torch.bfloat16`.
    BFloat16,
    /// `torch.float32`.
    Float32,
    /// `torch.float64`.
    Float64,
    /// `torch.complex64`: two float32.
    Complex64,
}

impl DType {
    /// All of them, by number.
    pub const ALL: [Self; 11] = [
        Self::Bool,
        Self::UInt8,
        Self::Int8,
        Self::Int32,
        Self::Int64,
        Self::UInt64,
        Self::Float16,
        Self::BFloat16,
        Self::Float32,
        Self::Float64,
        Self::Complex64,
    ];

    /// Bytes an element takes.
    pub const fn size(self) -> u64 {
        match self {
            Self::Bool | Self::UInt8 | Self::Int8 => 1,
            Self::Float16 | Self::BFloat16 => 2,
            Self::Float32 | Self::Int32 => 4,
            Self::Int64 | Self::UInt64 | Self::Float64 | Self::Complex64 => 8,
        }
    }

    /// PyTorch's name without the `torch.`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::UInt8 => "uint8",
            Self::Int8 => "int8",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::UInt64 => "uint64",
            Self::Float16 => "float16",
            Self::BFloat16 => "bfloat16",
            Self::Float32 => "float32",
            Self::Float64 => "float64",
            Self::Complex64 => "complex64",
        }
    }

    /// `is_floating_point`.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::Float16 | Self::BFloat16 | Self::Float32 | Self::Float64)
    }

    /// float16 or bfloat16.
    pub const fn is_half(self) -> bool {
        matches!(self, Self::Float16 | Self::BFloat16)
    }

    /// `torch.promote_types` for two tensors that both have dimensions.
    pub fn promote(self, other: Self) -> Self {
        if self == other {
            return self;
        }
        match (self.is_float(), other.is_float()) {
            (true, false) => self,
            (false, true) => other,
            (true, true) if self == Self::Float64 || other == Self::Float64 => Self::Float64,
            // Any two others among the floats meet in float32.
            (true, true) => Self::Float32,
            (false, false) => {
                if self.size() >= other.size() {
                    self
                } else {
                    other
                }
            }
        }
    }
}
