//! `instar verify`: is this log one that Instar can have written, and is it still what was written?

use crate::failure::{FAILED, Failure};
use crate::log::Log;
use crate::output::{self, Format};
use clap::Args;
use instar_client::Client;
use instar_core::invariant::{self, Scope, Violation};
use instar_core::rune::{Hash, Seal, chain};
use serde_json::{Value, json};
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A session, or a file of JSON lines as `instar export` writes it (- for standard input)
    #[arg(value_name = "SESSION|FILE")]
    pub(crate) log: String,
    /// A seal that the log must come to, as an earlier `verify` printed it; may be repeated
    #[arg(long = "seal", value_name = "SEQ:HASH", value_parser = seal)]
    pub(crate) seals: Vec<Seal>,
}

fn seal(text: &str) -> Result<Seal, String> {
    let parsed = text.split_once(':').and_then(|(seq, hex)| Some((seq.parse().ok()?, Hash::from_hex(hex)?)));
    parsed.map(|(seq, hash)| Seal { seq, hash }).ok_or_else(|| "give number:hash, as verify prints it".to_owned())
}

impl Arguments {
    pub(crate) async fn run(
        self,
        client: impl FnOnce() -> Result<Client, Failure>,
        format: Format,
    ) -> Result<ExitCode, Failure> {
        let (mut log, _) = Log::read(&self.log, client).await?;
        let mut seals = std::mem::take(&mut log.seals);
        seals.extend(self.seals);
        seals.sort_by_key(|seal| seal.seq);
        // Two that disagree at one number cannot both be met, so that both are kept.
        seals.dedup();
        let verdict = Verdict::of(&log, seals);
        match format {
            Format::Table => output::say(&verdict.text())?,
            Format::Json | Format::Yaml => output::value(format, &verdict.json())?,
        }
        Ok(if verdict.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
    }
}

struct Verdict {
    session: String,
    runes: usize,
    intact: usize,
    complete: bool,
    /// Read over the API, where not everybody sees everything.
    served: bool,
    seals: usize,
    chain: Option<Seal>,
    violations: Vec<Violation>,
}

impl Verdict {
    fn of(log: &Log, seals: Vec<Seal>) -> Verdict {
        let head = log.session.as_ref().map(|session| session.head_seq).filter(|head| *head > 0);
        let (complete, count) = (log.is_complete(), seals.len());
        let scope = Scope { start: Seal::EMPTY, seals, head, complete };
        Verdict {
            session: log.name(),
            runes: log.runes.len(),
            intact: log.runes.iter().filter(|rune| rune.is_intact()).count(),
            complete,
            served: log.session.is_some(),
            seals: count,
            chain: chain(Seal::EMPTY, log.runes.iter().map(|rune| (rune.seq, rune.hash))).ok(),
            violations: invariant::check(&log.runes, scope),
        }
    }

    fn chain(&self) -> String {
        self.chain.map_or("broken".to_owned(), |seal| format!("{}:{}", seal.seq, seal.hash.to_hex()))
    }

    fn text(&self) -> String {
        let ended = if self.complete { "complete" } else { "still open" };
        let mut text = format!("log         {}, {} runes, {ended}\n", self.session, self.runes);
        text += &format!("hashes      {} of {} intact\n", self.intact, self.runes);
        text += &format!("chain       {} (held against {} seals)\n", self.chain(), self.seals);
        text += &format!("invariants  {} judged, {} violations\n", invariant::LIST.len(), self.violations.len());
        for violation in &self.violations {
            text += &format!("  {violation}\n");
        }
        if self.served && self.violations.iter().any(|violation| violation.id == "INV-SEGMENT-CONTIGUOUS") {
            text += "  runes may be missing because the key may not read them: use one of role operator or above\n";
        }
        text + if self.violations.is_empty() { "ok\n" } else { "NOT ok\n" }
    }

    fn json(&self) -> Value {
        let violations: Vec<Value> = self
            .violations
            .iter()
            .map(|v| json!({"id": v.id, "severity": v.severity, "seq": v.seq, "message": v.message}))
            .collect();
        json!({"session": self.session, "runes": self.runes, "intact": self.intact, "complete": self.complete,
            "chain": self.chain(), "seals": self.seals, "violations": violations, "ok": self.violations.is_empty()})
    }
}
