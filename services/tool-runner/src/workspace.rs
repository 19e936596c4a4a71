//! Where commands that work in a workspace find their files: a folder for each session, made when the first call
//! needs it. All agents of a session share it, no other session reaches it, and it goes when the session is archived.

use instar_core::id::SessionId;
use instar_runtime::Context;
use instar_tools::{Tool, Workspace};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often folders of archived sessions are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(600);

/// The folder that this tool works in, if it does in any.
pub(crate) fn of(root: Option<&Path>, tool: &Tool, session: SessionId) -> Result<Option<PathBuf>, String> {
    if tool.spec().workspace == Workspace::None {
        return Ok(None);
    }
    let Some(root) = root else {
        return Err("workspace_missing: the tool works in a workspace; set runner.workspaces to a folder".into());
    };
    let folder = root.join(session.to_string());
    let mut builder = std::fs::DirBuilder::new();
    match builder.recursive(true).mode(0o700).create(&folder) {
        Ok(()) => Ok(Some(folder)),
        Err(error) => Err(format!("workspace_missing: the session's folder cannot be made: {error}")),
    }
}

/// Removes folders whose sessions are archived, now and every so often, until the process ends.
pub(crate) fn clear(context: &Context) {
    let Some(root) = context.config.runner.workspaces.clone() else { return };
    let context = context.clone();
    context.drain.clone().spawn(async move {
        loop {
            if let Err(error) = clear_once(&context, &root).await {
                tracing::warn!(%error, "workspaces of archived sessions were not all removed; they are looked for again");
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = context.drain.draining() => return,
            }
        }
    });
}

async fn clear_once(context: &Context, root: &Path) -> anyhow::Result<()> {
    let mut folders = match tokio::fs::read_dir(root).await {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        folders => folders?,
    };
    while let Some(folder) = folders.next_entry().await? {
        // Whatever else lies there is not ours.
        let Some(id) = folder.file_name().to_str().and_then(|name| name.parse::<SessionId>().ok()) else { continue };
        let session = context.hub.store().session(id).await?;
        if session.is_some_and(|session| session.status == "archived") {
            match tokio::fs::remove_dir_all(folder.path()).await {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
                _ => tracing::info!(session = %id, "its workspace was removed"),
            }
        }
    }
    Ok(())
}
