//! A log goes into a folder and comes out again; damage shows where it is, and only there.

use instar_archive::{Archive, ArchiveError, Manifest, Options, Segment};
use instar_core::id::{CommandId, Entity, Kind, RuneId, SessionId};
use instar_core::rune::{Actor, Draft, Moved, Rune, Seal, chain};
use serde_json::value::RawValue;
use std::path::PathBuf;
use uuid::Uuid;

fn session() -> SessionId {
    SessionId::from(Uuid::from_u128(7))
}

fn rune(seq: i64) -> Rune {
    let entity = Entity::new(Kind::Session, session().uuid());
    // Text that does not compress away, spread over lines, with what JSON escapes.
    let noise: String = (0..40).map(|n| format!("{:x}", (seq * 7919 + n * 104_729) % 1_000_003)).collect();
    let payload = RawValue::from_string(format!("{{\n \"reason\": \"é \\n {noise}\" }}")).unwrap();
    let mut draft = Draft::raw("session.paused", entity, payload).unwrap();
    draft.moves = vec![Moved { row: "S6".into(), entity, from: Some("active".into()), to: "paused".into() }];
    let (id, command) = (RuneId::from(Uuid::from_u128(seq as u128)), CommandId::from(Uuid::from_u128(9)));
    let actor = Actor::system("test");
    let hash = draft.hash(id, session(), &actor, 0, None, seq, command);
    let Draft { kind, visibility, payload, moves, .. } = draft;
    let (session_id, kind) = (session(), kind.to_owned());
    Rune {
        id,
        session_id,
        seq,
        kind,
        entity,
        agent_id: None,
        turn_id: None,
        actor,
        visibility,
        payload,
        moves,
        epoch: 0,
        traceparent: None,
        at_us: seq,
        hash,
        command_id: command,
    }
}

struct Kit {
    folder: tempfile::TempDir,
    archive: Archive,
    runes: Vec<Rune>,
    manifest: Manifest,
}

async fn kit(runes: i64) -> Kit {
    let folder = tempfile::tempdir().unwrap();
    let url = folder.path().join("deep/archive").display().to_string();
    let archive = Archive::open(&Options { url, ..Options::default() }).unwrap();
    let runes: Vec<Rune> = (1..=runes).map(rune).collect();
    let mut writing = archive.begin(session());
    for page in runes.chunks(777) {
        writing.push(page).await.unwrap().unwrap();
    }
    let manifest = writing.finish().await.unwrap();
    Kit { folder, archive, runes, manifest }
}

impl Kit {
    fn file(&self, part: usize) -> PathBuf {
        self.folder.path().join("deep/archive").join(&self.manifest.segments[part].object)
    }

    fn spoil(&self, part: usize, at: usize) {
        let mut bytes = std::fs::read(self.file(part)).unwrap();
        bytes[at] ^= 1;
        std::fs::write(self.file(part), bytes).unwrap();
    }
}

#[tokio::test]
async fn every_page_of_a_long_log_is_as_it_was_written() {
    let kit = kit(90_000).await;
    assert!(kit.manifest.segments.len() > 1, "one segment only");
    let sealed = chain(Seal::EMPTY, kit.runes.iter().map(|rune| (rune.seq, rune.hash))).unwrap();
    assert_eq!((kit.manifest.head_seq, &kit.manifest.final_hash), (90_000, &sealed.hash.to_hex()));
    let border = kit.manifest.segments[0].last;
    for (after, limit) in [(0, 1), (0, 500), (199, 2), (200, 200), (border - 3, 10), (89_990, 200), (90_000, 5)] {
        let page = kit.archive.page(&kit.manifest, after, limit).await.unwrap();
        let wanted = &kit.runes[after as usize..Ord::min(after as usize + limit, 90_000)];
        assert_eq!(page.len(), wanted.len(), "after {after}");
        for (found, wanted) in page.iter().zip(wanted) {
            assert_eq!((found.seq, found.hash, found.payload.get()), (wanted.seq, wanted.hash, wanted.payload.get()));
        }
    }
}

#[tokio::test]
async fn writing_it_again_writes_the_same_and_what_another_left_is_removed() {
    let kit = kit(1_000).await;
    let mut writing = kit.archive.begin(session());
    writing.push(&kit.runes).await.unwrap().unwrap();
    assert_eq!(writing.finish().await.unwrap(), kit.manifest);
    let left = kit.file(0).with_file_name("000000000001-0000.seg");
    std::fs::write(&left, b"left").unwrap();
    kit.archive.tidy(&kit.manifest).await.unwrap();
    assert!(!left.exists() && kit.file(0).exists());
    assert_eq!(kit.archive.page(&kit.manifest, 998, 10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_damaged_frame_says_which_runes_are_lost_and_the_others_can_be_read() {
    let kit = kit(1_000).await;
    kit.spoil(0, 40);
    let Err(ArchiveError::Damaged { first, last, .. }) = kit.archive.page(&kit.manifest, 0, 10).await else {
        panic!("it was read");
    };
    assert_eq!((first, last), (1, 200));
    let page = kit.archive.page(&kit.manifest, 200, 1_000).await.unwrap();
    assert_eq!((page[0].seq, page.len()), (201, 800));
    // What lies before the damage comes first.
    let kit = self::kit(1_000).await;
    let middle = std::fs::metadata(kit.file(0)).unwrap().len() as usize / 2;
    kit.spoil(0, middle);
    let page = kit.archive.page(&kit.manifest, 0, 1_000).await.unwrap();
    assert!(page.len() >= 200 && page.len() < 1_000, "{}", page.len());
    let lost = kit.archive.page(&kit.manifest, page.len() as i64, 10).await.unwrap_err().to_string();
    assert!(lost.contains("does not have its checksum") && lost.contains("put the object back"), "{lost}");
}

#[tokio::test]
async fn a_segment_that_is_gone_cut_off_or_another_is_damaged_as_a_whole() {
    for damage in 0..4 {
        let kit = kit(1_000).await;
        let bytes = std::fs::read(kit.file(0)).unwrap();
        match damage {
            0 => std::fs::remove_file(kit.file(0)).unwrap(),
            1 => std::fs::write(kit.file(0), &bytes[..bytes.len() / 2]).unwrap(),
            2 => kit.spoil(0, bytes.len() - 30),
            _ => std::fs::write(kit.file(0), b"").unwrap(),
        }
        let Err(ArchiveError::Damaged { first, last, .. }) = kit.archive.page(&kit.manifest, 5, 10).await else {
            panic!("damage {damage} was read over");
        };
        assert_eq!((first, last), (1, 1_000), "damage {damage}");
    }
}

#[tokio::test]
async fn a_hole_or_a_changed_rune_is_not_archived() {
    let kit = kit(5).await;
    let mut hole = kit.archive.begin(session());
    assert_eq!(hole.push(&[rune(1), rune(3)]).await.unwrap(), Err(2));
    let mut changed = kit.archive.begin(session());
    let forged = Rune { at_us: 99, ..rune(1) };
    assert_eq!(changed.push(&[forged]).await.unwrap(), Err(1));
}

#[test]
fn a_segment_travels_with_its_seals() {
    let mut segment = Segment::new(session());
    let seal = chain(Seal::EMPTY, [(1, rune(1).hash)]).unwrap();
    segment.push(&rune(1)).unwrap();
    segment.seal(seal);
    let bytes = segment.finish().unwrap();
    let (id, runes, seals) = Segment::read(&bytes).unwrap();
    assert_eq!((id, runes.len(), seals), (session(), 1, vec![seal]));
    for wrong in [&bytes[1..], &bytes[..bytes.len() - 1], b"", b"hello, this is no segment"] {
        Segment::read(wrong).unwrap_err();
    }
}

#[test]
fn what_is_no_place_for_archives_is_refused() {
    for url in ["", "ftp://host/folder", "file://"] {
        let refused = Archive::open(&Options { url: url.into(), ..Options::default() }).unwrap_err().to_string();
        assert!(refused.contains("s3://bucket/prefix"), "{refused}");
    }
}
