//! A frame: some runes, compressed, behind a header with the checksum (CRC32C) of what follows it.
//!
//! `"IRF1"`, then as little-endian numbers of four bytes: the checksum, the length of the compressed part,
//! the length before it was compressed.

use crate::kept::Kept;
use crc::{CRC_32_ISCSI, Crc};
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use instar_core::id::SessionId;
use instar_core::rune::Rune;
use std::io::{Read, Write};

const MAGIC: &[u8; 4] = b"IRF1";
const HEADER: usize = 16;
/// No frame is larger: a damaged length must not make a reader take all memory.
const RAW_BYTES_MAX: usize = 64 << 20;
static CRC32C: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    CRC32C.checksum(bytes)
}

pub(crate) fn encode(raw: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(raw)?;
    let body = encoder.finish()?;
    let mut frame = Vec::with_capacity(HEADER + body.len());
    frame.extend_from_slice(MAGIC);
    for number in [checksum(&body), length(&body)?, length(raw)?] {
        frame.extend_from_slice(&number.to_le_bytes());
    }
    frame.extend_from_slice(&body);
    Ok(frame)
}

fn length(bytes: &[u8]) -> std::io::Result<u32> {
    u32::try_from(bytes.len()).map_err(std::io::Error::other)
}

/// What was put in, or what is wrong with it.
pub(crate) fn decode(frame: &[u8]) -> Result<Vec<u8>, &'static str> {
    let Some((header, body)) = frame.split_at_checked(HEADER) else { return Err("ends too soon") };
    let number = |at: usize| header[at..at + 4].try_into().map(u32::from_le_bytes).unwrap_or_default();
    let (sum, stored, raw) = (number(4), number(8) as usize, number(12) as usize);
    if &header[..4] != MAGIC || stored != body.len() || raw > RAW_BYTES_MAX {
        return Err("is not of the form of a frame");
    }
    if checksum(body) != sum {
        return Err("does not have its checksum");
    }
    let mut decoded = Vec::with_capacity(raw);
    let read = DeflateDecoder::new(body).take(raw as u64 + 1).read_to_end(&mut decoded);
    match read {
        Ok(read) if read == raw => Ok(decoded),
        _ => Err("cannot be decompressed"),
    }
}

/// The line of a rune.
pub(crate) fn line(rune: &Rune, to: &mut Vec<u8>) -> serde_json::Result<()> {
    serde_json::to_writer(&mut *to, &Kept::of(rune))?;
    to.push(b'\n');
    Ok(())
}

/// The runes of a decoded frame, each of which must still have its hash.
pub(crate) fn runes(raw: &[u8], session: SessionId) -> Option<Vec<Rune>> {
    let lines = raw.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice::<Kept>(line).ok()?.into_rune(session)).collect()
}
