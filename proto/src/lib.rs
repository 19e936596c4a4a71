//! The messages on the bus, generated from `instar/v1/*.proto`.
//!
//! The `.proto` files are the public contract; this crate adds nothing but the few conversions that
//! generated code lacks. It must not know subjects, streams or what a message leads to.

pub mod v1 {
    include!(concat!(env!("OUT_DIR"), "/instar.v1.rs"));

    impl From<Delta> for Live {
        fn from(delta: Delta) -> Self {
            Self { event: Some(live::Event::Delta(delta)) }
        }
    }

    impl From<Progress> for Live {
        fn from(progress: Progress) -> Self {
            Self { event: Some(live::Event::Progress(progress)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::v1::{Move, Rune};
    use prost::Message;

    #[test]
    fn a_rune_survives_the_wire_with_its_payload_byte_for_byte() {
        let rune = Rune {
            id: "run_1".into(),
            session_id: "ses_1".into(),
            seq: 7,
            kind: "turn.completed".into(),
            payload: r#"{"b": 1,  "a":2.0}"#.into(),
            moves: vec![Move {
                row: "turn".into(),
                entity: "trn_1".into(),
                from: "streaming".into(),
                to: "completed".into(),
            }],
            at: 1_790_000_000_000_000,
            ..Rune::default()
        };
        assert_eq!(Rune::decode(rune.encode_to_vec().as_slice()), Ok(rune));
    }
}
