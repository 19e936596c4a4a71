//! What an agent gets by its role where the call that makes it says nothing else.

use instar_tools::{Native, Registry};
use serde_json::{Map, Value, json};

pub(super) struct Role {
    pub(super) name: &'static str,
    max_tokens: u64,
    max_tool_calls: u64,
    tools: Share,
    prompt: &'static str,
}

/// Which of the parent's tools it gets.
enum Share {
    All,
    /// All but those that make and mind agents.
    Hands,
    /// Those that only look, and a voice.
    Eyes,
    /// Those that look at what it was told and said itself.
    Memory,
}

const MINDING: [Native; 3] = [Native::SpawnAgent, Native::WaitFor, Native::TerminateAgent];

static ROLES: [Role; 6] = [
    Role {
        name: "orchestrator",
        max_tokens: 100_000,
        max_tool_calls: 50,
        tools: Share::All,
        prompt: "You lead. Split the task into parts, hand them to agents of your own where that helps, check what \
                 they bring, and answer with the whole.",
    },
    Role {
        name: "worker",
        max_tokens: 50_000,
        max_tool_calls: 30,
        tools: Share::Hands,
        prompt: "You carry out one task. Do it with your tools, and answer with the result and nothing else.",
    },
    Role {
        name: "explorer",
        max_tokens: 30_000,
        max_tool_calls: 40,
        tools: Share::Eyes,
        prompt: "You look things up. Find what was asked for, change nothing, and answer with what you found and where.",
    },
    Role {
        name: "critic",
        max_tokens: 30_000,
        max_tool_calls: 20,
        tools: Share::Eyes,
        prompt: "You examine the work of others. Look for what is wrong or missing, change nothing, and answer with \
                 your findings, the gravest first.",
    },
    Role {
        name: "summarizer",
        max_tokens: 20_000,
        max_tool_calls: 10,
        tools: Share::Memory,
        prompt: "You make long things short. Answer with a summary that keeps every decision, number and open question.",
    },
    Role {
        name: "monitor",
        max_tokens: 15_000,
        max_tool_calls: 20,
        tools: Share::Eyes,
        prompt: "You watch something. Look at it, change nothing, and answer with its state and what needs attention.",
    },
];

impl Role {
    pub(super) fn named(name: &str) -> Option<&'static Role> {
        ROLES.iter().find(|role| role.name == name)
    }

    /// Spawned agents end when their budget is spent, unless the call says otherwise.
    pub(super) fn budget(&self, given: Option<&Map<String, Value>>) -> Value {
        let mut budget = json!({
            "max_tokens": self.max_tokens, "max_tool_calls": self.max_tool_calls, "on_budget": "terminate",
        });
        if let (Some(given), Some(budget)) = (given, budget.as_object_mut()) {
            budget.extend(given.clone());
        }
        budget
    }

    pub(super) fn prompt(&self, parent: &str) -> String {
        format!("{} You work for the agent {parent}, which reads your answer.", self.prompt)
    }

    /// Of what the parent has, never more.
    pub(super) fn tools(&self, registry: &Registry, held: &[String]) -> Vec<String> {
        let named = |name: &str, list: &[Native]| list.iter().any(|native| native.name() == name);
        match self.tools {
            Share::All => held.to_vec(),
            Share::Hands => held.iter().filter(|name| !named(name, &MINDING)).cloned().collect(),
            Share::Eyes => {
                let known: Vec<String> =
                    held.iter().filter(|name| name.contains('*') || registry.get(name).is_some()).cloned().collect();
                let tools = registry.allowed(&known).unwrap_or_default();
                let looks = |tool: &str, acts: bool| !acts || tool == Native::SendMessage.name();
                let tools = tools.iter().filter(|tool| looks(tool.name(), tool.spec().side_effects));
                tools.map(|tool| tool.name().to_owned()).filter(|name| !named(name, &MINDING)).collect()
            }
            Share::Memory => {
                let own = [Native::SearchMessages, Native::SearchReasoning, Native::SearchBroadcasts];
                held.iter().filter(|name| named(name, &own)).cloned().collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_of_the_tool_has_its_defaults() {
        let names: Vec<_> = ROLES.iter().map(|role| role.name).collect();
        assert_eq!(names, instar_tools::ROLES);
    }

    #[test]
    fn a_role_gives_of_the_parents_tools_and_never_more() {
        let registry = Registry::with_builtins();
        let held: Vec<String> =
            ["echo", "spawn_agent", "send_message", "search_messages", "gone"].map(str::to_owned).into();
        let given = |role: &str| Role::named(role).map(|role| role.tools(&registry, &held)).unwrap_or_default();
        assert_eq!(given("orchestrator"), held);
        assert_eq!(given("worker"), ["echo", "send_message", "search_messages", "gone"]);
        assert_eq!(given("explorer"), ["echo", "search_messages", "send_message"]);
        assert_eq!(given("summarizer"), ["search_messages"]);
        for role in &ROLES {
            assert!(role.tools(&registry, &[]).is_empty());
            assert!(instar_tools::beyond(&role.tools(&registry, &held), &held).is_empty());
        }
    }
}
