//! Programs that look libibverbs' functions up at run time (`dlopen`, then `dlsym` or `dlvsym`), as NCCL does.
//!
//! Problem: a look-up by a library's handle finds that library's function, past every preload library. Method: `dlsym`
//! and `dlvsym` themselves are replaced. A look-up of a name that begins with `ibv_` or `verbs_` gets our function if the
//! loader's answer is the original of one of ours. Every other look-up, and each one by `RTLD_NEXT`, jumps to the
//! loader's own function, so the loader sees its caller's address. The loader's functions are found by reading the
//! tables of the loaded objects after this one, since a look-up would find ours. Limits: x86-64 and aarch64; a program that
//! reads those tables itself is not caught. Source: dlsym(3), dl_iterate_phdr(3), elf(5); the GNU hash table as in the
//! documentation of the GNU linker.

use crate::exports;
use crate::originals::{Originals, is_past_ours};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// `dlsym`.
type Find = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
/// `dlvsym`.
type FindVersion = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// Our function in place of `found`, if `found` is the original of the name.
fn ours(originals: &Originals, name: &CStr, found: *mut c_void) -> *mut c_void {
    macro_rules! pairs {
        ($($field:ident => $function:ident),* $(,)?) => {
            [$((
                stringify!($function),
                originals.$field as *const c_void,
                exports::$function as *const c_void,
            )),*]
        };
    }
    let pairs = pairs! {
        open_device => ibv_open_device,
        close_device => ibv_close_device,
        create_cq => ibv_create_cq,
        resize_cq => ibv_resize_cq,
        destroy_cq => ibv_destroy_cq,
        get_cq_event => ibv_get_cq_event,
        create_qp => ibv_create_qp,
        modify_qp => ibv_modify_qp,
        query_qp => ibv_query_qp,
        destroy_qp => ibv_destroy_qp,
        destroy_ah => ibv_destroy_ah,
    };
    let matches = |(known, original, _): &&(&str, *const c_void, *const c_void)| {
        known.as_bytes() == name.to_bytes() && *original == found.cast_const()
    };
    match pairs.iter().find(matches) {
        Some((_, _, function)) => function.cast_mut(),
        None => found,
    }
}

/// Looks a name of libibverbs up with `find`, which is the loader's function.
fn look_up(name: *const c_char, find: impl FnOnce() -> *mut c_void) -> *mut c_void {
    if is_past_ours() {
        return find();
    }
    // The look-up comes last: `dlerror` must tell of it.
    let originals = exports::originals();
    let found = find();
    match originals.filter(|_| !found.is_null()) {
        Some(originals) => {
            // SAFETY: the loader has read the terminated name.
            let name = unsafe { CStr::from_ptr(name) };
            ours(&originals, name, found)
        }
        None => found,
    }
}

unsafe extern "C" fn find(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    let Some(original) = loaders(&DLSYM, c"dlsym") else {
        return std::ptr::null_mut();
    };
    // SAFETY: the loader's function of that name.
    let original = unsafe { std::mem::transmute::<usize, Find>(original) };
    // SAFETY: the caller's arguments.
    look_up(name, || unsafe { original(handle, name) })
}

unsafe extern "C" fn find_version(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    let Some(original) = loaders(&DLVSYM, c"dlvsym") else {
        return std::ptr::null_mut();
    };
    // SAFETY: the loader's function of that name.
    let original = unsafe { std::mem::transmute::<usize, FindVersion>(original) };
    // SAFETY: the caller's arguments.
    look_up(name, || unsafe { original(handle, name, version) })
}

/// Addresses of the loader's functions; zero before the first use.
static DLSYM: AtomicUsize = AtomicUsize::new(0);
static DLVSYM: AtomicUsize = AtomicUsize::new(0);

extern "C" fn loaders_dlsym() -> usize {
    loaders(&DLSYM, c"dlsym").unwrap_or_else(missing)
}

extern "C" fn loaders_dlvsym() -> usize {
    loaders(&DLVSYM, c"dlvsym").unwrap_or_else(missing)
}

/// No C library without its loader's functions can have loaded this one.
fn missing() -> usize {
    std::process::abort()
}

fn loaders(place: &AtomicUsize, name: &CStr) -> Option<usize> {
    match place.load(Ordering::Relaxed) {
        0 => {
            let found = objects::defined_after_us(name)?;
            place.store(found, Ordering::Relaxed);
            Some(found)
        }
        known => Some(known),
    }
}

/// A function of this name that lets the loader's own one run in its place, with its caller's address, unless the name
/// that is looked up begins as those of libibverbs do and the handle is not `RTLD_NEXT`.
macro_rules! replaces {
    ($(#[$about:meta])* $name:ident ( $($argument:ident : $ty:ty),* ), $place:ident, $find:ident, $loaders:ident) => {
        $(#[$about])*
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        #[cfg(target_arch = "x86_64")]
        pub(crate) unsafe extern "C" fn $name($($argument: $ty),*) -> *mut c_void {
            core::arch::naked_asm!(
                "endbr64",
                "cmp rdi, -1", // RTLD_NEXT
                "je 2f",
                "cmp byte ptr [rsi], 'v'",
                "je 3f",
                "cmp byte ptr [rsi], 'i'",
                "jne 2f",
                "cmp byte ptr [rsi + 1], 'b'",
                "jne 2f",
                "cmp byte ptr [rsi + 2], 'v'",
                "jne 2f",
                "cmp byte ptr [rsi + 3], '_'",
                "jne 2f",
                "jmp {find}",
                "3:",
                "cmp byte ptr [rsi + 1], 'e'",
                "jne 2f",
                "cmp byte ptr [rsi + 2], 'r'",
                "jne 2f",
                "cmp byte ptr [rsi + 3], 'b'",
                "jne 2f",
                "jmp {find}",
                "2:",
                "mov rax, [rip + {place}@GOTPCREL]",
                "mov rax, [rax]",
                "test rax, rax",
                "jz 4f",
                "jmp rax",
                // Three pushes align the stack for the call.
                "4:",
                "push rdi",
                "push rsi",
                "push rdx",
                "call {loaders}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "jmp rax",
                find = sym $find,
                place = sym $place,
                loaders = sym $loaders,
            )
        }

        $(#[$about])*
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        #[cfg(target_arch = "aarch64")]
        pub(crate) unsafe extern "C" fn $name($($argument: $ty),*) -> *mut c_void {
            core::arch::naked_asm!(
                "hint #34", // bti c
                "cmn x0, #1", // RTLD_NEXT
                "b.eq 2f",
                "ldrb w9, [x1]",
                "cmp w9, #'v'",
                "b.eq 3f",
                "cmp w9, #'i'",
                "b.ne 2f",
                "ldrb w9, [x1, #1]",
                "cmp w9, #'b'",
                "b.ne 2f",
                "ldrb w9, [x1, #2]",
                "cmp w9, #'v'",
                "b.ne 2f",
                "ldrb w9, [x1, #3]",
                "cmp w9, #'_'",
                "b.ne 2f",
                "b {find}",
                "3:",
                "ldrb w9, [x1, #1]",
                "cmp w9, #'e'",
                "b.ne 2f",
                "ldrb w9, [x1, #2]",
                "cmp w9, #'r'",
                "b.ne 2f",
                "ldrb w9, [x1, #3]",
                "cmp w9, #'b'",
                "b.ne 2f",
                "b {find}",
                "2:",
                "adrp x16, :got:{place}",
                "ldr x16, [x16, :got_lo12:{place}]",
                "ldr x16, [x16]",
                "cbz x16, 4f",
                "br x16",
                // Frame pointer, return address and the arguments; the stack stays aligned.
                "4:",
                "stp x29, x30, [sp, #-48]!",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "str x2, [sp, #32]",
                "bl {loaders}",
                "mov x16, x0",
                "ldr x2, [sp, #32]",
                "ldp x0, x1, [sp, #16]",
                "ldp x29, x30, [sp], #48",
                "br x16",
                find = sym $find,
                place = sym $place,
                loaders = sym $loaders,
            )
        }
    };
}

replaces! {
    /// `dlsym`.
    ///
    /// # Safety
    /// See `dlsym(3)`.
    dlsym(handle: *mut c_void, name: *const c_char), DLSYM, find, loaders_dlsym
}

replaces! {
    /// `dlvsym`.
    ///
    /// # Safety
    /// See `dlvsym(3)`.
    dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char), DLVSYM, find_version, loaders_dlvsym
}

/// The symbol tables of loaded objects.
mod objects {
    use super::{CStr, c_char, c_int, c_void};

    /// Entries of a dynamic section, by their tags.
    const STRINGS: i64 = 5;
    const SYMBOLS: i64 = 6;
    const GNU_HASH: i64 = 0x6fff_fef5;
    /// Numbers before the Bloom filter of a hash table.
    const HASH_HEADER: usize = 4;

    struct Search<'a> {
        name: &'a CStr,
        /// Whether the objects that follow come after this one.
        passed: bool,
        found: usize,
    }

    /// Address of the first function of this name in an object that was loaded after ours.
    pub(super) fn defined_after_us(name: &CStr) -> Option<usize> {
        let mut search = Search {
            name,
            passed: false,
            found: 0,
        };
        // SAFETY: the callback has the search alone during the call.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
        (search.found != 0).then_some(search.found)
    }

    unsafe extern "C" fn visit(
        object: *mut libc::dl_phdr_info,
        _: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes an object of its list, with the list locked, and our data.
        unsafe {
            let (object, search) = (&*object, &mut *data.cast::<Search<'_>>());
            let headers =
                std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum));
            let base = object.dlpi_addr as usize;
            if !search.passed {
                let here = defined_after_us as *const () as usize;
                search.passed = headers.iter().any(|header| {
                    let start = base.wrapping_add(header.p_vaddr as usize);
                    header.p_type == libc::PT_LOAD
                        && (start..start + header.p_memsz as usize).contains(&here)
                });
                return 0;
            }
            let dynamic = headers
                .iter()
                .find(|header| header.p_type == libc::PT_DYNAMIC);
            let Some(dynamic) = dynamic else { return 0 };
            let dynamic = base.wrapping_add(dynamic.p_vaddr as usize) as *const [i64; 2];
            search.found = defined(base, dynamic, search.name).unwrap_or(0);
            c_int::from(search.found != 0)
        }
    }

    /// Address of the function `name` that the object defines.
    ///
    /// # Safety
    /// `base` and `dynamic` are those of a loaded object.
    unsafe fn defined(base: usize, dynamic: *const [i64; 2], name: &CStr) -> Option<usize> {
        let (mut strings, mut symbols, mut hash) = (0, 0, 0);
        // SAFETY: the loader checked the tables when it loaded the object; a zero tag ends the dynamic section. The C
        // library stores addresses in it, or offsets in an object that it maps read-only (the vDSO).
        unsafe {
            let absolute = |value: i64| match value as usize {
                offset if offset < base => base + offset,
                address => address,
            };
            let mut entry = dynamic;
            loop {
                let [tag, value] = *entry;
                match tag {
                    0 => break,
                    STRINGS => strings = absolute(value),
                    SYMBOLS => symbols = absolute(value),
                    GNU_HASH => hash = absolute(value),
                    _ => {}
                }
                entry = entry.add(1);
            }
            if strings == 0 || symbols == 0 || hash == 0 {
                return None;
            }
            let (strings, symbols) = (strings as *const c_char, symbols as *const libc::Elf64_Sym);
            let hash = hash as *const u32;
            let [buckets, first, bloom] = [0, 1, 2].map(|at| *hash.add(at) as usize);
            let table = hash.add(HASH_HEADER + bloom * 2);
            let wanted = gnu_hash(name);
            let mut at = *table.add(wanted as usize % buckets.max(1)) as usize;
            if buckets == 0 || at < first {
                return None;
            }
            let chains = table.add(buckets);
            loop {
                let link = *chains.add(at - first);
                let symbol = &*symbols.add(at);
                let is_defined = symbol.st_shndx != 0 && symbol.st_info & 0xf == FUNCTION;
                if link | 1 == wanted | 1
                    && is_defined
                    && CStr::from_ptr(strings.add(symbol.st_name as usize)) == name
                {
                    return Some(base.wrapping_add(symbol.st_value as usize));
                }
                if link & 1 != 0 {
                    return None;
                }
                at += 1;
            }
        }
    }

    /// `STT_FUNC`.
    const FUNCTION: u8 = 2;

    fn gnu_hash(name: &CStr) -> u32 {
        let start = 5_381u32;
        name.to_bytes().iter().fold(start, |hash, &byte| {
            hash.wrapping_mul(33).wrapping_add(u32::from(byte))
        })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_loaders_own_function_is_found() {
            assert_eq!(gnu_hash(c"printf"), 0x156b_2bb8);
            let found = defined_after_us(c"dladdr").expect("every C library has it");
            assert_eq!(found, libc::dladdr as *const () as usize);
            assert_eq!(defined_after_us(c"no_such_function"), None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_names_get_the_loaders_answer() {
        // SAFETY: terminated names.
        unsafe {
            let found = dlsym(libc::RTLD_DEFAULT, c"getpid".as_ptr());
            assert_eq!(found.addr(), libc::getpid as *const () as usize);
            for name in [c"", c"i", c"ibv", c"v", c"ver", c"ibv_no_such_function"] {
                assert!(
                    dlsym(libc::RTLD_DEFAULT, name.as_ptr()).is_null(),
                    "{name:?}"
                );
            }
            // The version of the architecture's first C library.
            let version = match cfg!(target_arch = "aarch64") {
                true => c"GLIBC_2.17",
                false => c"GLIBC_2.2.5",
            };
            let version = version.as_ptr();
            let found = dlvsym(libc::RTLD_NEXT, c"getpid".as_ptr(), version);
            assert_eq!(found.addr(), libc::getpid as *const () as usize);
        }
    }
}
