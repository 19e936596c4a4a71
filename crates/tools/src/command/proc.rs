//! Reads the kernel's view of processes with system calls only, on memory of the stack.
//!
//! Runs in a fork without exec; see `supervisor`.

use std::os::fd::RawFd;

const PLACE_BYTES: usize = 64;
const ROOM_BYTES: usize = 2048;
/// In a folder's list as the kernel gives it: where an entry has its length, and where its name.
const LENGTH_AT: usize = 16;
const NAME_AT: usize = 19;

/// A path, made on the stack. What does not fit is cut off, and names nothing.
#[derive(Clone, Copy)]
pub(super) struct Place {
    bytes: [u8; PLACE_BYTES],
    length: usize,
}

impl Place {
    pub(super) fn new() -> Self {
        Self { bytes: [0; PLACE_BYTES], length: 0 }
    }

    pub(super) fn text(mut self, text: &[u8]) -> Self {
        text.iter().for_each(|byte| self.push(*byte));
        self
    }

    pub(super) fn number(mut self, number: i32) -> Self {
        let (mut digits, mut left) = ([0u8; 10], number.unsigned_abs());
        let mut used = 0;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (left % 10) as u8;
            left /= 10;
            used += 1;
            if left == 0 {
                break;
            }
        }
        digits.iter().skip(digits.len() - used).for_each(|digit| self.push(*digit));
        self
    }

    /// The last byte stays zero.
    fn push(&mut self, byte: u8) {
        if self.length < PLACE_BYTES - 1
            && let Some(place) = self.bytes.get_mut(self.length)
        {
            *place = byte;
            self.length += 1;
        }
    }
}

/// Of a file with numbers in decimal and spaces between.
pub(super) fn each_number(file: &Place, mut told: impl FnMut(i32)) {
    let mut number = 0i32;
    let mut room = [0; ROOM_BYTES];
    let Some(opened) = Opened::new(file) else { return };
    while let Some(bytes) = opened.read(&mut room) {
        for byte in bytes {
            if byte.is_ascii_digit() {
                number = number.wrapping_mul(10).wrapping_add(i32::from(*byte - b'0'));
            } else if number > 0 {
                told(std::mem::take(&mut number));
            }
        }
    }
}

/// Of the entries of a folder those whose names are numbers.
pub(super) fn each_entry(folder: &Place, mut told: impl FnMut(i32)) {
    let mut room = [0; ROOM_BYTES];
    let Some(opened) = Opened::new(folder) else { return };
    while let Some(mut entries) = opened.list(&mut room) {
        while let (Some([a, b]), Some(name)) = (entries.get(LENGTH_AT..LENGTH_AT + 2), entries.get(NAME_AT..)) {
            if let Some(number) = number(name) {
                told(number);
            }
            let length = usize::from(u16::from_ne_bytes([*a, *b])).max(1);
            entries = entries.get(length..).unwrap_or_default();
        }
    }
}

/// None when there is no such process.
pub(super) fn parent_of(process: i32) -> Option<i32> {
    let mut room = [0; ROOM_BYTES];
    let opened = Opened::new(&Place::new().text(b"/proc/").number(process).text(b"/stat"))?;
    let line = opened.read(&mut room)?;
    // Number, name in brackets, state, parent. The name may have brackets itself.
    let name_end = line.iter().rposition(|byte| *byte == b')')?;
    number(line.get(name_end..)?.strip_prefix(b") ")?.get(2..)?)
}

/// The number under which /proc has this process, if it has it.
#[allow(unsafe_code)]
pub(super) fn own_number() -> Option<i32> {
    let mut room = [0u8; 16];
    // SAFETY: the room is on this stack; its last byte stays zero.
    let length = unsafe { libc::readlink(c"/proc/self".as_ptr(), room.as_mut_ptr().cast(), room.len() - 1) };
    if length > 0 { number(&room) } else { None }
}

/// Leading digits.
fn number(text: &[u8]) -> Option<i32> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    digits
        .fold(None, |number, byte| Some(number.unwrap_or(0i32).wrapping_mul(10).wrapping_add(i32::from(*byte - b'0'))))
}

struct Opened(RawFd);

#[allow(unsafe_code)]
impl Opened {
    fn new(place: &Place) -> Option<Self> {
        // SAFETY: a text that ends with a zero and lives on.
        let fd = unsafe { libc::open(place.bytes.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC) };
        (fd >= 0).then_some(Self(fd))
    }

    /// None at the end.
    fn read<'a>(&self, room: &'a mut [u8; ROOM_BYTES]) -> Option<&'a [u8]> {
        // SAFETY: the room lives on and is as large as said.
        let length = unsafe { libc::read(self.0, room.as_mut_ptr().cast(), ROOM_BYTES) };
        room.get(..usize::try_from(length).ok().filter(|length| *length > 0)?)
    }

    fn list<'a>(&self, room: &'a mut [u8; ROOM_BYTES]) -> Option<&'a [u8]> {
        // SAFETY: as for `read`; the kernel writes whole entries.
        let length = unsafe { libc::syscall(libc::SYS_getdents64, self.0, room.as_mut_ptr(), ROOM_BYTES) };
        room.get(..usize::try_from(length).ok().filter(|length| *length > 0)?)
    }
}

#[allow(unsafe_code)]
impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this value's own.
        unsafe { libc::close(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_its_parts_and_never_too_long() {
        let place = Place::new().text(b"/proc/").number(40).text(b"/task/").number(i32::MAX).number(0);
        assert_eq!(&place.bytes[..place.length], b"/proc/40/task/21474836470");
        let long = Place::new().text(&[b'x'; 100]);
        assert_eq!((long.length, long.bytes[PLACE_BYTES - 1]), (PLACE_BYTES - 1, 0));
    }

    #[test]
    fn this_process_is_found_with_its_parent_and_its_threads() {
        let own = std::process::id() as i32;
        assert_eq!(own_number(), Some(own));
        assert_eq!(parent_of(own), Some(std::os::unix::process::parent_id() as i32));
        let mut threads = Vec::new();
        each_entry(&Place::new().text(b"/proc/self/task"), |thread| threads.push(thread));
        assert!(threads.contains(&own) && threads.len() > 1, "{threads:?}");
        assert_eq!(parent_of(i32::MAX), None);
    }
}
