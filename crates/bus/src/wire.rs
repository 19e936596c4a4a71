//! What may travel: the message types of the contract, and when one of them is whole.
//!
//! Protobuf decodes many wrong bytes into an empty message. So each type says which fields a real
//! one always has, and garbage is found here instead of in a service.
//! Must not know: subjects, streams.

use bytes::Bytes;
use instar_proto::v1::{Control, DeadLetter, Live, Published, Rune, WorkTool, WorkTurn, live};
use prost::Message;

/// A message of the contract. Closed: the bus carries these and no others.
pub trait Wire: Message + Default + sealed::Sealed + 'static {
    /// Full name of the type, sent along so that a message on a wrong subject is noticed.
    const NAME: &'static str;

    /// The name of the first field that must not be empty and is.
    fn missing(&self) -> Option<&'static str>;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! wire {
    ($($type:ident { $($field:ident),* })*) => { $(
        impl sealed::Sealed for $type {}
        impl Wire for $type {
            const NAME: &'static str = concat!("instar.v1.", stringify!($type));
            fn missing(&self) -> Option<&'static str> {
                $(if self.$field.is_empty() { return Some(stringify!($field)); })*
                None
            }
        }
    )* };
}

wire! {
    Rune { id, session_id, kind }
    WorkTurn { session_id, agent_id, turn_id }
    Control { session_id, agent_id }
    DeadLetter { subject, reason }
    Published { runs }
}

impl sealed::Sealed for WorkTool {}
impl Wire for WorkTool {
    const NAME: &'static str = "instar.v1.WorkTool";

    fn missing(&self) -> Option<&'static str> {
        match self {
            // Of a step, or of a call, which need not be one of a turn.
            Self { session_id, .. } if session_id.is_empty() => Some("session_id"),
            Self { call_id, step_id, .. } if call_id.is_empty() && step_id.is_empty() => Some("call_id"),
            Self { class, .. } if class.is_empty() => Some("class"),
            _ => None,
        }
    }
}

impl sealed::Sealed for Live {}
impl Wire for Live {
    const NAME: &'static str = "instar.v1.Live";

    fn missing(&self) -> Option<&'static str> {
        match &self.event {
            None => Some("event"),
            Some(live::Event::Delta(delta)) if delta.turn_id.is_empty() => Some("delta.turn_id"),
            Some(live::Event::Progress(progress)) if progress.call_id.is_empty() => Some("progress.call_id"),
            Some(_) => None,
        }
    }
}

/// Reads a message, or says in a sentence why it can't be one. `name` is what the sender called it.
pub(crate) fn read<T: Wire>(payload: &Bytes, name: Option<&str>) -> Result<T, String> {
    if let Some(name) = name.filter(|name| *name != T::NAME) {
        return Err(format!("expected {}, but the sender called it {name}", T::NAME));
    }
    let value = T::decode(payload.clone()).map_err(|error| format!("not an {}: {error}", T::NAME))?;
    match value.missing() {
        Some(field) => Err(format!("not an {}: {field} is empty", T::NAME)),
        None => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn garbage_that_happens_to_decode_is_still_not_a_message() {
        let error = read::<WorkTurn>(&Bytes::new(), None).unwrap_err();
        assert_eq!(error, "not an instar.v1.WorkTurn: session_id is empty");
        assert!(read::<WorkTurn>(&Bytes::from_static(b"\xff\xff\xff"), None).is_err());
    }

    #[test]
    fn a_hint_to_runners_names_a_call_or_a_step() {
        let hint = |call: &str, step: &str| WorkTool {
            session_id: "s".into(),
            call_id: call.into(),
            step_id: step.into(),
            class: "x".into(),
            ..WorkTool::default()
        };
        assert_eq!([hint("c", "").missing(), hint("", "p").missing()], [None, None]);
        assert_eq!(hint("", "").missing(), Some("call_id"));
    }

    #[test]
    fn a_message_of_another_type_is_noticed() {
        let tool = WorkTool {
            session_id: "s".into(),
            turn_id: "t".into(),
            call_id: "c".into(),
            class: "x".into(),
            epoch: 1,
            ..WorkTool::default()
        };
        let payload = Bytes::from(tool.encode_to_vec());
        assert!(read::<WorkTurn>(&payload, Some(WorkTool::NAME)).is_err());
        assert_eq!(read::<WorkTool>(&payload, Some(WorkTool::NAME)), Ok(tool));
    }
}
