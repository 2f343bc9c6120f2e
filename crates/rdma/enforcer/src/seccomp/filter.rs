//! The filter that stops verbs calls and nothing else.
//!
//! Problem: control verbs go through one ioctl, `RDMA_VERBS_IOCTL`, and a filter may see system call numbers and
//! arguments, but no memory. Method: a classic BPF program per machine architecture: for each calling convention the
//! kernel knows there, is it `ioctl`, and is the low half of the second argument the command? The kernel takes the
//! command as 32 bits, so the upper half must not be compared: a tenant could set it. Everything else is allowed by the
//! filter itself, at the cost of a few instructions. `write` is never trapped (see `docs/internals/enforce.md` on the
//! old interface of uverbs).
//!
//! Units: none. Limits: x86-64 and 64-bit Arm with their 32-bit conventions. Source: seccomp(2), `rdma/rdma_user_ioctl.h`.

/// `RDMA_VERBS_IOCTL`: every control verb of libibverbs.
pub const RDMA_VERBS_IOCTL: u32 = 0xc018_1b01;

/// One instruction of classic BPF, as the kernel lays it out (`struct sock_filter`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    /// What to do.
    pub code: u16,
    /// Instructions to skip when a comparison holds.
    pub jump_true: u8,
    /// Instructions to skip when it does not.
    pub jump_false: u8,
    /// Operand.
    pub operand: u32,
}

/// A calling convention and its numbers for `ioctl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convention {
    /// `AUDIT_ARCH_...`
    pub architecture: u32,
    /// System call numbers.
    pub numbers: &'static [u32],
}

/// x86-64 (with x32, whose numbers have bit 30) and i386.
const X86_64: &[Convention] = &[
    Convention {
        architecture: 0xc000_003e,
        numbers: &[16, 0x4000_0000 | 514],
    },
    Convention {
        architecture: 0x4000_0003,
        numbers: &[54],
    },
];

/// 64-bit and 32-bit Arm.
const AARCH64: &[Convention] = &[
    Convention {
        architecture: 0xc000_00b7,
        numbers: &[29],
    },
    Convention {
        architecture: 0x4000_0028,
        numbers: &[54],
    },
];

/// The conventions of this machine; none where verbs calls cannot be distinguished.
pub fn conventions() -> Option<&'static [Convention]> {
    match std::env::consts::ARCH {
        "x86_64" => Some(X86_64),
        "aarch64" => Some(AARCH64),
        _ => None,
    }
}

/// Loads 32 bits of `struct seccomp_data`.
const LOAD: u16 = 0x20;
/// Compares with the operand.
const EQUAL: u16 = 0x15;
/// Ends the program.
const RETURN: u16 = 0x06;
/// `SECCOMP_RET_ALLOW`.
pub const ALLOW: u32 = 0x7fff_0000;
/// `SECCOMP_RET_USER_NOTIF`.
pub const NOTIFY: u32 = 0x7fc0_0000;
/// Offsets in `struct seccomp_data`. Both architectures are little-endian: the low half comes first.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const SECOND_ARGUMENT_LOW: u32 = 24;

/// The program that notifies of `ioctl` with `command` under any of `conventions`, and allows everything else.
///
/// ```
/// use isolane_rdma_enforcer::seccomp::filter::{RDMA_VERBS_IOCTL, conventions, program};
/// if let Some(conventions) = conventions() {
///     assert!(program(conventions, RDMA_VERBS_IOCTL).len() < 32);
/// }
/// ```
pub fn program(conventions: &[Convention], command: u32) -> Vec<Instruction> {
    let instruction = |code, operand| Instruction {
        code,
        jump_true: 0,
        jump_false: 0,
        operand,
    };
    let compare = |operand, jump_true: usize, jump_false: usize| Instruction {
        code: EQUAL,
        jump_true: u8::try_from(jump_true).expect("a program of a few instructions"),
        jump_false: u8::try_from(jump_false).expect("a program of a few instructions"),
        operand,
    };
    let mut blocks: Vec<Vec<Instruction>> = Vec::new();
    for convention in conventions {
        let numbers = convention.numbers.len();
        let mut block = vec![
            instruction(LOAD, ARCHITECTURE),
            // Past the load, the numbers and the return below.
            compare(convention.architecture, 0, numbers + 5),
            instruction(LOAD, NUMBER),
        ];
        for (index, &number) in convention.numbers.iter().enumerate() {
            let last = index + 1 == numbers;
            block.push(compare(
                number,
                numbers - 1 - index,
                if last { 3 } else { 0 },
            ));
        }
        block.extend([
            instruction(LOAD, SECOND_ARGUMENT_LOW),
            compare(command, 0, 1),
            instruction(RETURN, NOTIFY),
            instruction(RETURN, ALLOW),
        ]);
        blocks.push(block);
    }
    blocks.push(vec![instruction(RETURN, ALLOW)]);
    blocks.concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a filter sees: `struct seccomp_data`.
    #[derive(Clone, Copy, Debug)]
    struct Data {
        number: u32,
        architecture: u32,
        second: u64,
    }

    /// Runs a program as the kernel would.
    fn run(program: &[Instruction], data: &Data) -> u32 {
        let (mut accumulator, mut at) = (0, 0);
        loop {
            let instruction = program[at];
            at += 1;
            match instruction.code {
                LOAD => {
                    accumulator = match instruction.operand {
                        NUMBER => data.number,
                        ARCHITECTURE => data.architecture,
                        SECOND_ARGUMENT_LOW => data.second as u32,
                        other => panic!("offset {other}"),
                    }
                }
                EQUAL => {
                    let holds = accumulator == instruction.operand;
                    at += usize::from(if holds {
                        instruction.jump_true
                    } else {
                        instruction.jump_false
                    });
                }
                RETURN => return instruction.operand,
                other => panic!("code {other:#x}"),
            }
        }
    }

    fn expected(conventions: &[Convention], data: &Data) -> u32 {
        let traps = conventions.iter().any(|convention| {
            convention.architecture == data.architecture
                && convention.numbers.contains(&data.number)
                && data.second as u32 == RDMA_VERBS_IOCTL
        });
        if traps { NOTIFY } else { ALLOW }
    }

    fn often(values: Vec<u32>) -> impl Strategy<Value = u32> {
        prop_oneof![4 => proptest::sample::select(values), 1 => any::<u32>()]
    }

    proptest! {
        /// Against the sentence that describes it, with numbers and arguments that often match in part.
        #[test]
        fn only_the_verbs_ioctl_is_trapped(
            architecture in often(vec![0xc000_003e, 0x4000_0003, 0xc000_00b7, 0x4000_0028]),
            number in often(vec![16, 54, 29, 1, 0x4000_0000 | 514, 0x4000_0010]),
            low in often(vec![RDMA_VERBS_IOCTL, 0x5401]),
            high in often(vec![0]),
        ) {
            let data = Data { number, architecture, second: u64::from(high) << 32 | u64::from(low) };
            for conventions in [X86_64, AARCH64] {
                prop_assert_eq!(run(&program(conventions, RDMA_VERBS_IOCTL), &data), expected(conventions, &data));
            }
        }
    }

    #[test]
    fn a_command_with_a_dirty_upper_half_is_trapped() {
        let data = Data {
            number: 16,
            architecture: 0xc000_003e,
            second: 1 << 40 | u64::from(RDMA_VERBS_IOCTL),
        };
        assert_eq!(run(&program(X86_64, RDMA_VERBS_IOCTL), &data), NOTIFY);
    }

    #[test]
    fn a_write_is_never_trapped() {
        for (number, architecture) in [(1, 0xc000_003e), (4, 0x4000_0003), (20, 0xc000_003e)] {
            let data = Data {
                number,
                architecture,
                second: RDMA_VERBS_IOCTL.into(),
            };
            assert_eq!(run(&program(X86_64, RDMA_VERBS_IOCTL), &data), ALLOW);
        }
    }
}
