//! An MCP server that lets call after call of one agent run out of time.
//!
//! One that does not start or dies only takes its tools away, and a time-out is a result like any other. But an
//! agent that waits for its whole patience three times over gets nowhere: a person should look.

use instar_store::entity::tool_call;
use instar_tools::Registry;

/// So many in a row, and the agent's drive fails.
const TIMEOUTS_MAX: usize = 3;

fn server(call: &tool_call::Model, tools: &Registry) -> Option<String> {
    Some(tools.get(&call.name)?.spec().mcp.as_ref()?.server.clone())
}

fn is_late(call: &tool_call::Model) -> bool {
    call.result_status.as_deref() == Some("timeout")
}

/// Whether the last of these calls makes it worth a look at the ones before them.
pub fn may_hang(calls: &[&tool_call::Model], tools: &Registry) -> bool {
    calls.last().is_some_and(|last| is_late(last) && server(last, tools).is_some())
}

/// Why the agent whose calls these are should stop, if it should. `calls`: of an agent or of one step, in order.
pub fn hangs(calls: &[&tool_call::Model], tools: &Registry) -> Option<String> {
    let last = server(calls.last()?, tools)?;
    let own: Vec<_> =
        calls.iter().rev().filter(|call| server(call, tools).as_ref() == Some(&last)).take(TIMEOUTS_MAX).collect();
    let late = own.iter().all(|call| is_late(call));
    (late && own.len() == TIMEOUTS_MAX).then(|| {
        format!(
            "mcp_server_hangs: the MCP server {last} let {TIMEOUTS_MAX} calls in a row run out of time; look at it, \
             then start the agent"
        )
    })
}
