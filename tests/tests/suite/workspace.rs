//! Commands that work in a workspace: whose files they see, and what they cannot reach.

use anyhow::{Context as _, Result, ensure};
use instar_core::id::{AgentId, SessionId};
use instar_runtime::config::Config;
use instar_runtime::flow::Mode;
use instar_store::entity::session;
use instar_testkit::wait;
use instar_tests::fleet::tool_turn;
use instar_tests::stage::Stage;
use instar_tests::troupe::{Troupe, WITHIN};
use instar_tests::{cast, on_both};
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use serde_json::json;
use std::path::Path;

/// The configuration, with a command that says what the notes are after having written to them and tried to write
/// beside them, and one that may only read.
fn config(root: &Path) -> Config {
    let command = |name: &str, script: &str, workspace: &str| {
        json!({
            "name": name, "kind": "command", "command": ["/bin/sh", "-c", script], "workspace": workspace,
            "parameters": {"type": "object", "properties": {"token": {"type": "string"}}, "required": ["token"]},
        })
    };
    let write =
        "cd $INSTAR_WORKSPACE || exit 9; cat >>notes; echo >>notes; (echo out >../stray) 2>/dev/null; cat notes";
    let read = "cd $INSTAR_WORKSPACE || exit 9; (echo more >>notes) 2>/dev/null; cat notes; ls ..";
    let mut config = Config::default();
    config.runner.workspaces = Some(root.to_owned());
    config.tools.extend([command("write", write, "write"), command("read", read, "read")]);
    config
}

async fn says(troupe: &Troupe, agent: AgentId, text: &str) -> Result<String> {
    let turn = troupe.send(agent, text, Mode::Queue).await?.context("a turn")?;
    troupe.ended(turn).await?;
    let call = troupe.calls(turn).await?.pop().context("a call")?;
    Ok(call.result.unwrap_or_default().to_string())
}

async fn agent(troupe: &Troupe, session: SessionId) -> Result<AgentId> {
    cast::agent_like(troupe.context.hub.store(), session, json!({"tools": ["write", "read"]})).await
}

async fn calls_of_a_session_share_files_and_reach_no_others(stage: Stage) -> Result<()> {
    let root = tempfile::tempdir()?;
    let troupe = Troupe::start(&stage, tool_turn(), config(root.path())).await?;
    let (here, there) = (cast::session(&stage.store).await?, cast::session(&stage.store).await?);
    let (one, two, other) = (agent(&troupe, here).await?, agent(&troupe, here).await?, agent(&troupe, there).await?);
    says(&troupe, one, "write first").await?;
    let notes = says(&troupe, one, "write second").await?;
    ensure!(notes.contains("first") && notes.contains("second"), "two calls of an agent: {notes}");
    let notes = says(&troupe, two, "read them").await?;
    ensure!(notes.contains("first") && notes.contains("second"), "another agent of the session: {notes}");
    let elsewhere = says(&troupe, other, "write elsewhere").await?;
    ensure!(elsewhere.contains("elsewhere") && !elsewhere.contains("first"), "another session: {elsewhere}");
    ensure!(!notes.contains(&there.to_string()), "it saw what lies beside its folder: {notes}");
    let kept = std::fs::read_to_string(root.path().join(here.to_string()).join("notes"))?;
    ensure!(!kept.contains("more"), "one that may only read wrote: {kept}");
    ensure!(!root.path().join("stray").exists(), "a command wrote outside of its workspace");
    troupe.audit(here).await
}

async fn the_workspace_of_an_archived_session_is_removed_and_no_other(stage: Stage) -> Result<()> {
    let root = tempfile::tempdir()?;
    let (gone, stays) = (cast::session(&stage.store).await?, cast::session(&stage.store).await?);
    for name in [gone.to_string(), stays.to_string(), "lost+found".into()] {
        std::fs::create_dir_all(root.path().join(name).join("deep"))?;
    }
    session::Entity::update_many()
        .col_expr(session::Column::Status, Expr::value("archived"))
        .filter(session::Column::Id.eq(gone.uuid()))
        .exec(stage.store.db())
        .await?;
    let troupe = Troupe::start(&stage, tool_turn(), config(root.path())).await?;
    wait::until(WITHIN, || async { !root.path().join(gone.to_string()).exists() }).await;
    ensure!(root.path().join(stays.to_string()).join("deep").is_dir() && root.path().join("lost+found").is_dir());
    drop(troupe);
    Ok(())
}

/// A runner without a place for them says so to the model, and runs nothing.
async fn a_call_without_a_workspace_is_an_error_that_says_what_to_set(stage: Stage) -> Result<()> {
    let root = tempfile::tempdir()?;
    let mut config = config(root.path());
    config.runner.workspaces = None;
    let troupe = Troupe::start(&stage, tool_turn(), config).await?;
    let session = cast::session(&stage.store).await?;
    let agent = agent(&troupe, session).await?;
    let turn = troupe.send(agent, "write first", Mode::Queue).await?.context("a turn")?;
    troupe.ended(turn).await?;
    let call = troupe.calls(turn).await?.pop().context("a call")?;
    let said = call.result.clone().unwrap_or_default().to_string();
    ensure!(call.result_status.as_deref() == Some("error") && said.contains("runner.workspaces"), "{call:?}");
    Ok(())
}

on_both! {
    calls_of_a_session_share_files_and_reach_no_others;
    the_workspace_of_an_archived_session_is_removed_and_no_other;
    a_call_without_a_workspace_is_an_error_that_says_what_to_set;
}
