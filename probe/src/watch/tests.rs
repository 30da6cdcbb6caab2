//! What a person sees: on wide and narrow screens, with and without colour.
