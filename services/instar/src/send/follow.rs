//! A turn as it is heard of in the events of its session: what to print, and when it is over.

use super::answer::Answer;
use crate::describe;
use crate::failure::Failure;
use crate::output;
use instar_client::{Event, Rune, Sent};
use serde_json::Value;
use std::collections::HashMap;
use std::io::IsTerminal;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Completed,
    /// With an error, or interrupted.
    Failed,
}

pub(crate) struct Follow {
    agent: String,
    message: String,
    turn: Option<String>,
    answer: Answer,
    /// Names of the tools that calls are of.
    tools: HashMap<String, String>,
    aloud: bool,
    terminal: bool,
}

impl Follow {
    pub(crate) fn new(agent: &str, sent: &Sent, aloud: bool) -> Follow {
        Follow {
            agent: agent.to_owned(),
            message: sent.message_id.clone(),
            turn: sent.turn_id.clone(),
            answer: Answer::default(),
            tools: HashMap::new(),
            aloud,
            terminal: std::io::stdout().is_terminal(),
        }
    }

    pub(crate) fn turn(&self) -> Option<&str> {
        self.turn.as_deref()
    }

    /// A turn of the agent began and did not say for which messages: it may be ours.
    pub(crate) fn wants_turn(&self, event: Option<&Event>) -> bool {
        let Some(Event::Rune(rune)) = event else { return false };
        let begins = rune.kind == "turn.started" && rune.agent_id.as_deref() == Some(&self.agent);
        self.turn.is_none() && begins
    }

    pub(crate) fn adopt(&mut self, turn: Option<String>) {
        self.turn = self.turn.take().or(turn);
    }

    /// The end, once it has come.
    pub(crate) fn hear(&mut self, event: Event) -> Result<Option<End>, Failure> {
        match event {
            Event::Delta(delta) if Some(&delta.turn_id) == self.turn.as_ref() => {
                let kind = delta.rest.get("kind").and_then(Value::as_str).unwrap_or("text");
                if matches!(kind, "" | "text") {
                    let new = self.answer.piece(delta.index, &delta.text);
                    self.print(&new)?;
                }
                Ok(None)
            }
            Event::Rune(rune) => {
                self.recognise(&rune);
                let mine =
                    self.turn.is_some() && (rune.turn_id == self.turn || Some(&rune.entity_id) == self.turn.as_ref());
                if mine { self.rune(&rune) } else { Ok(None) }
            }
            Event::Delta(_) | Event::Progress(_) | Event::Gap(_) => Ok(None),
        }
    }

    /// A turn that is queued later names the messages it answers.
    fn recognise(&mut self, rune: &Rune) {
        if self.turn.is_none() && rune.kind == "turn.queued" {
            let payload = rune.payload();
            let ids = payload.get("message_ids").and_then(Value::as_array);
            if ids.is_some_and(|ids| ids.iter().any(|id| id.as_str() == Some(&self.message))) {
                self.turn = Some(rune.entity_id.clone());
            }
        }
    }

    fn rune(&mut self, rune: &Rune) -> Result<Option<End>, Failure> {
        match rune.kind.as_str() {
            "turn.assistant_final" => self.whole(rune.text("content"))?,
            "turn.tool_calls_received" => {
                self.whole(rune.text("content"))?;
                self.line()?;
            }
            "turn.completed" => {
                if self.answer.is_empty() {
                    self.whole(rune.text("final_output"))?;
                }
                self.line()?;
                if let Some(why) = rune.text("finish_reason").and_then(|why| cut_short(&why)) {
                    output::note(why);
                }
                return Ok(Some(End::Completed));
            }
            "turn.interrupted" | "turn.error" => {
                self.line()?;
                output::note(&format!("{}: {}", &rune.kind["turn.".len()..], describe::rune(rune)));
                return Ok(Some(End::Failed));
            }
            "turn.recovered" => {
                self.line()?;
                output::note("· its worker was lost; another one begins the answer again");
            }
            _ => self.call(rune),
        }
        Ok(None)
    }

    fn call(&mut self, rune: &Rune) {
        let call = &rune.entity_id;
        let name = self.tools.get(call).cloned().unwrap_or_else(|| call.clone());
        match rune.kind.as_str() {
            "tool.call" => {
                self.tools.insert(call.clone(), rune.text("tool_name").unwrap_or_default());
                output::note(&format!("· {}", describe::rune(rune)));
            }
            "tool.approval_requested" => {
                output::note(&format!("? {name} waits for a word: instar approve {call}, or deny {call} --reason …"));
            }
            "tool.approved" => output::note(&format!("· {name} approved {}", describe::rune(rune))),
            "tool.result" => output::note(&format!("· {name}: {}", describe::rune(rune))),
            _ => {}
        }
    }

    fn whole(&mut self, text: Option<String>) -> Result<(), Failure> {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(()) };
        let new = self.answer.whole(&text);
        self.print(&new)
    }

    fn line(&mut self) -> Result<(), Failure> {
        let end = self.answer.end();
        self.print(end)
    }

    fn print(&self, text: &str) -> Result<(), Failure> {
        match (self.aloud, self.terminal) {
            (false, _) => Ok(()),
            (true, true) => Ok(output::say(&output::clean(text))?),
            (true, false) => Ok(output::say(text)?),
        }
    }
}

/// What is said of an answer that the model did not end by itself.
fn cut_short(finish_reason: &str) -> Option<&'static str> {
    match finish_reason {
        "length" => Some("the answer is cut off: the model may not say more at once (max_tokens)"),
        "context_window" => Some("the answer is cut off: the conversation fills what the model can read"),
        "refusal" => Some("the model or its provider declined to answer"),
        "pause" => Some("the provider paused too often; the answer is what it had said by then"),
        "provider_calls_max" => Some("the turn ended because the model was called as often as a turn may"),
        _ => None,
    }
}
