//! The ways in which a value may be written by whoever repeats it.

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const ENTITIES: [(u8, &[&str]); 5] = [
    (b'&', &["&amp;", "&#38;", "&#x26;"]),
    (b'<', &["&lt;", "&#60;", "&#x3c;"]),
    (b'>', &["&gt;", "&#62;", "&#x3e;"]),
    (b'"', &["&quot;", "&#34;", "&#x22;"]),
    (b'\'', &["&#39;", "&#x27;", "&apos;"]),
];

/// What must stand in any text that holds this in base 64 or in hexadecimal, whatever is before and
/// after it.
pub(super) fn blocks(value: &[u8]) -> Vec<Vec<u8>> {
    let mut forms = Vec::new();
    for alphabet in [STANDARD, URL_SAFE] {
        for before in 0..3 {
            forms.push(base64_inside(value, before, alphabet));
        }
    }
    for digits in [b"0123456789abcdef", b"0123456789ABCDEF"] {
        forms.push(value.iter().flat_map(|b| [digits[usize::from(b >> 4)], digits[usize::from(b & 15)]]).collect());
    }
    forms.sort();
    forms.dedup();
    forms
}

/// The characters that depend on the value alone when so many bytes are before it in its group of three.
fn base64_inside(value: &[u8], before: usize, alphabet: &[u8; 64]) -> Vec<u8> {
    let bit = |at: usize| {
        let byte = value.get(at / 8).copied().unwrap_or_default();
        usize::from(byte >> (7 - at % 8) & 1)
    };
    // The first whole group of six bits after those that the bytes before it share.
    let first = match before {
        0 => 0,
        1 => 4,
        _ => 2,
    };
    let whole = (value.len() * 8 - first) / 6;
    (0..whole).map(|n| alphabet[(0..6).fold(0, |six, i| six << 1 | bit(first + n * 6 + i))]).collect()
}

/// The longest writing of one byte, such as `\u0041`.
pub(super) const ESCAPE_BYTES_MAX: usize = 6;

/// Whether an escape may begin with this byte.
pub(super) fn escapes(byte: u8) -> bool {
    matches!(byte, b'%' | b'\\' | b'&' | b'+')
}

/// Bytes that the text, which begins like an escape, may begin with: none that it does is missing, and none is there
/// twice.
pub(super) fn meant(text: &[u8]) -> [Option<u8>; 6] {
    let digits = |from: usize| {
        let two = text.get(from..from + 2).and_then(|two| std::str::from_utf8(two).ok())?;
        u8::from_str_radix(two, 16).ok()
    };
    let mut bytes = [None; 6];
    let mut may = |byte: Option<u8>| {
        if let Some(free) = bytes.iter_mut().find(|one| one.is_none() || **one == byte) {
            *free = byte;
        }
    };
    may(text.first().copied());
    match text {
        [b'+', ..] => may(Some(b' ')),
        [b'%', ..] => may(digits(1)),
        [b'&', ..] => ENTITIES.iter().for_each(|(byte, _)| may(Some(*byte))),
        [b'\\', short, ..] => {
            may(digits(4).filter(|_| short.eq_ignore_ascii_case(&b'u')));
            may(Some(short.to_ascii_lowercase()));
            may(Some(short.to_ascii_uppercase()));
            may(match short.to_ascii_lowercase() {
                b'n' => Some(b'\n'),
                b'r' => Some(b'\r'),
                b't' => Some(b'\t'),
                b'b' => Some(8),
                b'f' => Some(12),
                _ => None,
            });
        }
        _ => {}
    }
    bytes
}

/// How one byte of the value begins a text.
pub(super) enum Unit {
    /// So many bytes of the text stand for it.
    Is(usize),
    /// The text ends within what may stand for it.
    Ends,
    No,
}

/// The byte written for itself.
pub(super) fn plain(text: &[u8], byte: u8) -> Unit {
    match text.first() {
        None => Unit::Ends,
        Some(found) if *found == byte => Unit::Is(1),
        Some(_) => Unit::No,
    }
}

/// The byte as URLs, forms, JSON and HTML write one that is special to them.
pub(super) fn escaped(text: &[u8], byte: u8) -> Unit {
    match text.first() {
        None => Unit::Ends,
        Some(b'+') if byte == b' ' => Unit::Is(1),
        Some(b'%') => one_of(text, &[&format!("%{byte:02x}")]),
        Some(b'\\') => {
            let short = match byte {
                b'\n' => 'n',
                b'\r' => 'r',
                b'\t' => 't',
                8 => 'b',
                12 => 'f',
                other => char::from(other),
            };
            match one_of(text, &[&format!("\\u{byte:04x}")]) {
                Unit::No if byte.is_ascii() => one_of(text, &[&format!("\\{short}")]),
                found => found,
            }
        }
        Some(b'&') => match ENTITIES.iter().find(|(known, _)| *known == byte) {
            Some((_, names)) => one_of(text, names),
            None => Unit::No,
        },
        Some(_) => Unit::No,
    }
}

/// Hexadecimal digits and names are the same in capitals.
fn one_of(text: &[u8], words: &[&str]) -> Unit {
    let begins = |word: &&&str| {
        let length = word.len().min(text.len());
        text[..length].eq_ignore_ascii_case(&word.as_bytes()[..length])
    };
    match words.iter().find(begins) {
        Some(word) if word.len() <= text.len() => Unit::Is(word.len()),
        Some(_) => Unit::Ends,
        None => Unit::No,
    }
}
