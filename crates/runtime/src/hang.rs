//! An MCP server that lets call after call of one agent run out of time.
//!
//! One that does not start or dies only takes its tools away, and a time-out is a result like any other. But an
//! agent that waits for its whole patience three times over gets nowhere: a person should look.

use instar_store::entity::tool_call;
use instar_tools::Registry;

/// So many in a row, and the agent's drive fails.
const TIMEOUTS_MAX: usize = 3;

/// Why the agent whose calls these are should stop, if it should. `calls`: of one turn or one step, in order.
pub fn hangs(calls: &[&tool_call::Model], tools: &Registry) -> Option<String> {
    let server = |call: &tool_call::Model| Some(tools.get(&call.name)?.spec().mcp.as_ref()?.server.clone());
    let last = server(calls.last()?)?;
    let own: Vec<_> =
        calls.iter().rev().filter(|call| server(call).as_ref() == Some(&last)).take(TIMEOUTS_MAX).collect();
    let late = own.iter().all(|call| call.result_status.as_deref() == Some("timeout"));
    (late && own.len() == TIMEOUTS_MAX).then(|| {
        format!(
            "mcp_server_hangs: the MCP server {last} let {TIMEOUTS_MAX} calls in a row run out of time; look at it, \
             then start the agent"
        )
    })
}
