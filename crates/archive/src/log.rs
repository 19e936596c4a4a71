//! A log on its way into cold storage, and page by page out of it.

use crate::error::ArchiveError;
use crate::frame;
use crate::manifest::{Manifest, Part};
use crate::segment::{self, Entry, Index, Segment};
use crate::storage::{Options, Storage};
use instar_core::id::SessionId;
use instar_core::rune::{Rune, Seal, chain};
use sha2::{Digest, Sha256};

/// A segment is ended when it has become this large.
const SEGMENT_BYTES: usize = 8 << 20;
/// What is read of the end of a segment in the hope that its index is in it.
const TAIL_BYTES: u64 = 64 << 10;
const MANIFEST: &str = "manifest.json";

#[derive(Clone, Debug)]
pub struct Archive {
    storage: Storage,
}

/// A log that is being written. Its objects are named by what is in them, so that writing it again after a
/// crash writes the same ones.
pub struct Writing<'a> {
    archive: &'a Archive,
    session: SessionId,
    segment: Segment,
    first: i64,
    chain: Seal,
    parts: Vec<Part>,
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Archive {
    pub fn open(options: &Options) -> Result<Archive, ArchiveError> {
        Ok(Archive { storage: Storage::open(options)? })
    }

    pub fn begin(&self, session: SessionId) -> Writing<'_> {
        Writing { archive: self, session, segment: Segment::new(session), first: 1, chain: Seal::EMPTY, parts: vec![] }
    }

    /// Runes after a number, in order, `limit` at the most. What is damaged is an error that says up to where;
    /// what comes before it is given first.
    pub async fn page(&self, manifest: &Manifest, after: i64, limit: usize) -> Result<Vec<Rune>, ArchiveError> {
        let mut page = Vec::new();
        for part in manifest.segments.iter().filter(|part| part.last > after) {
            let index = match self.index(part, &manifest.session).await {
                Err(ArchiveError::Damaged { .. }) if !page.is_empty() => return Ok(page),
                index => index?,
            };
            for entry in index.frames.iter().filter(|entry| entry.last > after) {
                let runes = match self.frame(part, entry, index.session).await {
                    Err(ArchiveError::Damaged { .. }) if !page.is_empty() => return Ok(page),
                    runes => runes?,
                };
                page.extend(runes.into_iter().filter(|rune| rune.seq > after));
                if page.len() >= limit {
                    page.truncate(limit);
                    return Ok(page);
                }
            }
        }
        Ok(page)
    }

    async fn index(&self, part: &Part, session: &str) -> Result<Index, ArchiveError> {
        let damaged = |why: &str| damaged(part, why, part.first, part.last);
        let end = |bytes: u64| part.bytes.saturating_sub(bytes)..part.bytes;
        let tail = self.storage.get(&part.object, Some(end(TAIL_BYTES))).await?;
        let mut tail = tail.ok_or_else(|| damaged("is missing or too short"))?;
        let wanted = segment::tail(&tail).map_err(damaged)? as u64;
        if wanted > tail.len() as u64 {
            let more = self.storage.get(&part.object, Some(end(wanted.min(part.bytes)))).await?;
            tail = more.ok_or_else(|| damaged("is missing or too short"))?;
        }
        let index = segment::index(&tail).map_err(damaged)?;
        let whole = index.frames.first().is_some_and(|frame| frame.first == part.first)
            && index.frames.last().is_some_and(|frame| frame.last == part.last)
            && index.frames.windows(2).all(|two| two[0].last + 1 == two[1].first);
        if !whole || index.session.to_string() != session {
            return Err(damaged("is another segment than was written"));
        }
        Ok(index)
    }

    async fn frame(&self, part: &Part, entry: &Entry, session: SessionId) -> Result<Vec<Rune>, ArchiveError> {
        let damaged = |why: &str| damaged(part, why, entry.first, entry.last);
        let frame = self.storage.get(&part.object, Some(entry.range())).await?;
        let raw = frame::decode(&frame.ok_or_else(|| damaged("is missing or too short"))?).map_err(damaged)?;
        let runes = frame::runes(&raw, session).ok_or_else(|| damaged("has a rune that is not as it was written"))?;
        if !runes.iter().map(|rune| rune.seq).eq(entry.first..=entry.last) {
            return Err(damaged("has other runes than its index says"));
        }
        Ok(runes)
    }

    /// Removes objects of a session that its manifest does not name: what an attempt left that another
    /// version made.
    pub async fn tidy(&self, manifest: &Manifest) -> Result<(), ArchiveError> {
        for object in self.storage.list(&manifest.session).await? {
            let named = object.ends_with(MANIFEST) || manifest.segments.iter().any(|part| part.object == object);
            if !named {
                self.storage.delete(&object).await?;
            }
        }
        Ok(())
    }
}

fn damaged(part: &Part, why: &str, first: i64, last: i64) -> ArchiveError {
    ArchiveError::Damaged { object: part.object.clone(), why: why.to_owned(), first, last }
}

impl Writing<'_> {
    /// Takes the runes that come next. `Ok(Err(seq))`: the log has a hole or a changed rune there.
    pub async fn push(&mut self, runes: &[Rune]) -> Result<Result<(), i64>, ArchiveError> {
        for rune in runes {
            if !rune.is_intact() {
                return Ok(Err(rune.seq));
            }
            self.chain = match chain(self.chain, [(rune.seq, rune.hash)]) {
                Ok(next) => next,
                Err(missing) => return Ok(Err(missing)),
            };
            self.segment.push(rune)?;
            if self.segment.len() >= SEGMENT_BYTES {
                self.flush().await?;
            }
        }
        Ok(Ok(()))
    }

    /// Up to where it is written.
    pub fn chain(&self) -> Seal {
        self.chain
    }

    async fn flush(&mut self) -> Result<(), ArchiveError> {
        let full = std::mem::replace(&mut self.segment, Segment::new(self.session));
        if full.runes == 0 {
            return Ok(());
        }
        let bytes = full.finish()?;
        let (sha256, length) = (sha256(&bytes), bytes.len() as u64);
        let object = format!("{}/{:012}-{}.seg", self.session, self.first, &sha256[..16]);
        self.archive.put(&object, bytes, &sha256).await?;
        self.parts.push(Part { object, first: self.first, last: self.chain.seq, bytes: length, sha256 });
        self.first = self.chain.seq + 1;
        Ok(())
    }

    /// Writes what is left, and the manifest beside it.
    pub async fn finish(mut self) -> Result<Manifest, ArchiveError> {
        self.flush().await?;
        let manifest = Manifest {
            version: Manifest::VERSION,
            session: self.session.to_string(),
            head_seq: self.chain.seq,
            final_hash: self.chain.hash.to_hex(),
            segments: self.parts,
        };
        let bytes = serde_json::to_vec_pretty(&manifest).map_err(|e| ArchiveError::NoSegment(e.to_string()))?;
        let sum = sha256(&bytes);
        self.archive.put(&format!("{}/{MANIFEST}", self.session), bytes, &sum).await?;
        Ok(manifest)
    }
}

impl Archive {
    /// Written, and read back: nothing is deleted elsewhere on the word of a store alone.
    async fn put(&self, object: &str, bytes: Vec<u8>, sum: &str) -> Result<(), ArchiveError> {
        self.storage.put(object, bytes).await?;
        match self.storage.get(object, None).await? {
            Some(read) if sha256(&read) == sum => Ok(()),
            _ => Err(ArchiveError::Unfaithful(object.to_owned())),
        }
    }
}
