//! A segment: frames, then an index that says which runes are in which frame, so that a page can be read
//! without the rest.
//!
//! At the very end stand the length of the index, its checksum (both four bytes, little-endian) and `"IRS1"`.

use crate::error::ArchiveError;
use crate::frame;
use instar_core::id::SessionId;
use instar_core::rune::{Hash, Rune, Seal};
use serde::{Deserialize, Serialize};
use std::ops::Range;

const MAGIC: &[u8; 4] = b"IRS1";
const TRAILER: usize = 12;
/// A frame is begun anew after so many runes, or so many bytes before they are compressed.
const FRAME_RUNES: usize = 200;
const FRAME_BYTES: usize = 256 << 10;

/// Where a frame is and what it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) at: u64,
    pub(crate) bytes: u64,
}

impl Entry {
    pub(crate) fn range(&self) -> Range<u64> {
        self.at..self.at.saturating_add(self.bytes)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Index {
    pub(crate) session: SessionId,
    pub(crate) frames: Vec<Entry>,
    /// Number and hash; only where a whole log travels in one segment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    seals: Vec<(i64, String)>,
}

/// Puts a segment together, rune by rune.
pub struct Segment {
    index: Index,
    bytes: Vec<u8>,
    raw: Vec<u8>,
    /// First and last rune of the frame that is being filled.
    filling: Option<(i64, i64)>,
    in_frame: usize,
    pub(crate) runes: u64,
}

impl Segment {
    pub fn new(session: SessionId) -> Segment {
        let index = Index { session, frames: Vec::new(), seals: Vec::new() };
        Segment { index, bytes: Vec::new(), raw: Vec::new(), filling: None, in_frame: 0, runes: 0 }
    }

    pub fn push(&mut self, rune: &Rune) -> Result<(), ArchiveError> {
        frame::line(rune, &mut self.raw).map_err(unwritable)?;
        let first = self.filling.map_or(rune.seq, |(first, _)| first);
        self.filling = Some((first, rune.seq));
        (self.in_frame, self.runes) = (self.in_frame + 1, self.runes + 1);
        if self.in_frame >= FRAME_RUNES || self.raw.len() >= FRAME_BYTES {
            self.close_frame()?;
        }
        Ok(())
    }

    pub fn seal(&mut self, seal: Seal) {
        self.index.seals.push((seal.seq, seal.hash.to_hex()));
    }

    fn close_frame(&mut self) -> Result<(), ArchiveError> {
        let Some((first, last)) = self.filling.take() else { return Ok(()) };
        let frame = frame::encode(&self.raw).map_err(unwritable)?;
        let (at, bytes) = (self.bytes.len() as u64, frame.len() as u64);
        self.index.frames.push(Entry { first, last, at, bytes });
        self.bytes.extend_from_slice(&frame);
        self.raw.clear();
        self.in_frame = 0;
        Ok(())
    }

    /// How large it has become.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn finish(mut self) -> Result<Vec<u8>, ArchiveError> {
        self.close_frame()?;
        let index = serde_json::to_vec(&self.index).map_err(unwritable)?;
        let length = u32::try_from(index.len()).map_err(unwritable)?;
        self.bytes.extend_from_slice(&index);
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(&frame::checksum(&index).to_le_bytes());
        self.bytes.extend_from_slice(MAGIC);
        Ok(self.bytes)
    }

    /// Everything that a segment holds: its runes, each intact, and the seals that came along.
    pub fn read(bytes: &[u8]) -> Result<(SessionId, Vec<Rune>, Vec<Seal>), ArchiveError> {
        let no = |why: &str| ArchiveError::NoSegment(why.to_owned());
        let index = index(bytes).map_err(no)?;
        let mut runes = Vec::new();
        for entry in &index.frames {
            let range = usize::try_from(entry.range().start)
                .and_then(|start| usize::try_from(entry.range().end).map(|end| start..end))
                .map_err(|_| no("its index is wrong"))?;
            let frame = bytes.get(range).ok_or_else(|| no("its index is wrong"))?;
            let raw = frame::decode(frame).map_err(no)?;
            runes.extend(frame::runes(&raw, index.session).ok_or_else(|| no("a rune is not as it was written"))?);
        }
        let seals = index.seals.iter().map(|(seq, hash)| Hash::from_hex(hash).map(|hash| Seal { seq: *seq, hash }));
        let seals = seals.collect::<Option<_>>().ok_or_else(|| no("a seal is no hash"))?;
        Ok((index.session, runes, seals))
    }
}

fn unwritable(error: impl std::fmt::Display) -> ArchiveError {
    ArchiveError::NoSegment(format!("a rune cannot be written: {error}"))
}

/// How many bytes at the end of a segment hold its index; told by its last ones.
pub(crate) fn tail(end: &[u8]) -> Result<usize, &'static str> {
    let at = end.len().checked_sub(TRAILER).ok_or("ends too soon")?;
    let trailer = &end[at..];
    if &trailer[8..] != MAGIC {
        return Err("does not end like a segment");
    }
    let length = trailer[..4].try_into().map(u32::from_le_bytes).unwrap_or_default();
    Ok(length as usize + TRAILER)
}

/// Read from the end of a segment, or from all of it.
pub(crate) fn index(end: &[u8]) -> Result<Index, &'static str> {
    let from = end.len().checked_sub(tail(end)?).ok_or("has an index that is longer than itself")?;
    let (index, trailer) = end[from..].split_at(end.len() - from - TRAILER);
    let sum = trailer[4..8].try_into().map(u32::from_le_bytes).unwrap_or_default();
    if frame::checksum(index) != sum {
        return Err("has an index without its checksum");
    }
    serde_json::from_slice(index).map_err(|_| "has an index that cannot be read")
}
