//! The macros that define a C structure once and record the offsets of its fields.
//!
//! Problem: a hand-written layout that is off by four bytes works on one machine and corrupts memory on another.
//! Method: `structures!` and `constants!` make, beside the Rust items, tables of sizes, offsets and values under their
//! C names. A test gets the same figures from the C compiler and compares all of them.

/// Where the C compiler must put a field.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name in C.
    pub name: &'static str,
    /// Distance from the beginning of the structure in bytes.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
}

/// A structure and its fields.
#[derive(Clone, Copy, Debug)]
pub struct Structure {
    /// Tag in C.
    pub name: &'static str,
    /// Size in bytes.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
    /// Every field.
    pub fields: &'static [Field],
}

/// A constant and its value.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// Name in C.
    pub name: &'static str,
    /// Value.
    pub value: i64,
}

/// C structures of integers, raw pointers, optional function pointers, and arrays, structures and unions of them.
macro_rules! structures {
    ($( $(#[$meta:meta])* pub struct $name:ident {
        $( $(#[$field_meta:meta])* pub $field:ident : $ty:ty ),* $(,)?
    } )*) => {
        $(
            $(#[$meta])*
            #[repr(C)]
            pub struct $name { $( $(#[$field_meta])* pub $field: $ty ),* }

            impl Default for $name {
                /// All bytes zero.
                fn default() -> Self {
                    // SAFETY: the macro is given integers, raw pointers, optional function pointers and aggregates
                    // of them only (see its comment); zero is a value of each.
                    unsafe { std::mem::zeroed() }
                }
            }
        )*

        /// Sizes and offsets of the structures of this module.
        #[doc(hidden)]
        pub(crate) const STRUCTURES: &[$crate::layout::Structure] = &[ $( $crate::layout::Structure {
            name: stringify!($name),
            size: size_of::<$name>(),
            align: align_of::<$name>(),
            fields: &[ $( $crate::layout::Field {
                name: stringify!($field),
                offset: std::mem::offset_of!($name, $field),
                size: size_of::<$ty>(),
            } ),* ],
        } ),* ];
    };
}

/// C enumerations: a name for the type (an integer, since a newer library may know more values) and its values.
macro_rules! constants {
    ($( $(#[$meta:meta])* $name:ident = $ty:ty { $( $constant:ident = $value:expr ),* $(,)? } )*) => {
        $(
            $(#[$meta])*
            pub type $name = $ty;
            $( pub const $constant: $name = $value; )*
        )*

        /// Values of the constants of this module.
        #[doc(hidden)]
        pub(crate) const CONSTANTS: &[$crate::layout::Constant] = &[ $( $( $crate::layout::Constant {
            name: stringify!($constant),
            value: $constant as i64,
        } ),* ),* ];
    };
}

pub(crate) use constants;
pub(crate) use structures;
