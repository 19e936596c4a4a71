//! The configuration as operators meet it: files, variables, flags, and what they are told.

use instar_runtime::config::{Config, Environment, Invalid, LogFormat, Role};
use std::path::PathBuf;
use tempfile::TempDir;

/// As the public contract shows it.
const EXAMPLE: &str = include_str!("example.toml");
const DATABASE: &str = "postgres://instar:hunter2@localhost/instar";

struct Setting {
    dir: TempDir,
    environment: Environment,
}

impl Setting {
    fn new(environment: &[(&str, &str)]) -> Setting {
        let environment = environment.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Setting { dir: TempDir::new().unwrap(), environment }
    }

    fn file(&self, text: &str) -> PathBuf {
        let path = self.dir.path().join("instar.toml");
        std::fs::write(&path, text).unwrap();
        path
    }

    fn load(&self, role: Role, text: &str, overrides: &[(&str, &str)]) -> Result<Config, Invalid> {
        Config::load_from(role, Some(&self.file(text)), &self.environment, overrides)
    }

    fn refusal(&self, role: Role, text: &str) -> String {
        self.load(role, text, &[]).unwrap_err().to_string()
    }
}

fn with_keys() -> Setting {
    Setting::new(&[("INSTAR_BOOTSTRAP_KEY", "secret-admin-key"), ("OPENAI_API_KEY", "sk-secret")])
}

/// What every line of a refusal is about, in order.
fn keys(refusal: &str) -> Vec<&str> {
    refusal.lines().map(|line| line.split_once(": ").unwrap().0).collect()
}

#[test]
fn the_example_of_the_contract_serves_every_role() {
    let setting = with_keys();
    for role in Role::ALL {
        let config = setting.load(role, EXAMPLE, &[]).unwrap_or_else(|invalid| panic!("{role}: {invalid}"));
        assert_eq!(config.database.url.unwrap().expose(), "postgres://instar@localhost/instar");
        assert_eq!(config.nats.url.unwrap().expose(), "nats://localhost:4222");
        assert_eq!(config.api.listen.to_string(), "127.0.0.1:7700");
        assert_eq!((config.worker.concurrency, config.runner.concurrency, config.lease.ttl_ms), (256, 64, 3_000));
        assert_eq!(config.models[0].model.as_deref(), Some("qwen3:8b"));
        assert_eq!(config.tools[0]["parameters"]["properties"]["cents"]["type"], "integer");
        assert_eq!(config.tools[0]["timeout_ms"], 120_000);
        assert_eq!(config.tools[0]["side_effects"], true);
        assert_eq!(config.mcp_servers[0]["command"], serde_json::json!(["mcp-server-time"]));
    }
}

#[test]
fn nothing_at_all_is_enough_for_dev() {
    let setting = Setting::new(&[]);
    let config = setting.load(Role::Dev, "", &[]).unwrap();
    assert!(config.database.url.is_none() && config.nats.url.is_none() && config.models.is_empty());
    assert_eq!(config.telemetry.log_format, LogFormat::Text);
    assert!(Config::load_from(Role::Dev, None, &setting.environment, &[]).is_ok(), "no file named, none there");
}

#[test]
fn a_variable_goes_before_the_file_and_a_flag_before_the_variable() {
    let text = "[database]\nreaders_max = 1\nwriters = 1\nround_trip_max_ms = 1000";
    let setting = Setting::new(&[("INSTAR__DATABASE__WRITERS", "2"), ("INSTAR__DATABASE__ROUND_TRIP_MAX_MS", "2000")]);
    let database = setting.load(Role::Dev, text, &[("database.round_trip_max_ms", "3000")]).unwrap().database;
    assert_eq!((database.readers_max, database.writers, database.round_trip_max_ms), (1, 2, 3000));
}

#[test]
fn every_section_can_be_set_by_variables() {
    let setting = Setting::new(&[
        ("INSTAR__DATABASE__URL", DATABASE),
        ("INSTAR__DATABASE__READERS_MAX", "3"),
        ("INSTAR__NATS__URL", "nats://a:4222, tls://b:4222"),
        ("INSTAR__NATS__CREDENTIALS_FILE", "/run/nats.creds"),
        ("INSTAR__API__LISTEN", "0.0.0.0:80"),
        ("INSTAR__AUTH__BOOTSTRAP_KEY_ENV", "KEY"),
        ("INSTAR__WORKER__CONCURRENCY", "512"),
        ("INSTAR__HEALTH__LISTEN", "[::]:7701"),
        ("INSTAR__DRAIN__GRACE_MS", "5000"),
        ("INSTAR__TELEMETRY__LOG_FORMAT", "json"),
        ("INSTAR__TELEMETRY__SAMPLE_RATIO", "0.25"),
        ("INSTAR__TELEMETRY__OTLP_ENDPOINT", "http://collector:4318"),
        ("INSTAR__MODELS", r#"[{"name": "default", "provider": "scripted"}]"#),
        ("INSTAR__TOOLS", r#"[{"name": "now", "kind": "builtin"}]"#),
        // Empty is as good as unset, and one underscore is not ours.
        ("INSTAR__LEASE__TTL_MS", ""),
        ("INSTAR_SERVER", "http://elsewhere"),
        ("KEY", "admin"),
    ]);
    let config = setting.load(Role::Api, "", &[]).unwrap();
    assert_eq!(config.database.url.as_ref().unwrap().expose(), DATABASE);
    assert_eq!((config.database.readers_max, config.worker.concurrency), (3, 512));
    assert_eq!(config.nats.credentials_file, Some("/run/nats.creds".into()));
    assert_eq!(config.health.listen.unwrap().port(), 7701);
    assert_eq!((config.drain.grace_ms, config.lease.ttl_ms), (5_000, 3_000));
    assert_eq!((config.telemetry.log_format, config.telemetry.sample_ratio), (LogFormat::Json, Some(0.25)));
    assert_eq!((config.models[0].provider.as_str(), &config.tools[0]["name"]), ("scripted", &"now".into()));
    assert_eq!(config.bootstrap_key(|name| setting.environment.get(name).cloned()).unwrap().expose(), "admin");
}

#[test]
fn every_problem_is_told_at_once_one_line_each() {
    let text = r#"
        [database]
        url = "mysql://u:hunter2@h/db"
        reader_max = 3
        writers = "two"
        [nats]
        url = "http://localhost:4222"
        certificate_file = "/cert.pem"
        [api]
        listen = "localhost"
        [worker]
        concurrency = 0
        [lease]
        ttl_ms = 100
        [telemetry]
        log_filter = "instar=loud"
        otlp_endpoint = "collector:4317"
        sample_ratio = 2.0
        [colour]
        red = 1
        [[models]]
        name = "a"
        provider = "openai"
        model = "m"
        base_url = "localhost:11434"
        api_key_env = "NOT_SET"
        [[models]]
        name = "a"
        provider = "gpt"
        temprature = 1
        max_tokens = -1
        [[models]]
        api_key_env = "sk-pasted-key"
        headers = "authorization: Bearer sk-pasted-key"
        [[tools]]
        name = "t"
        [[tools]]
        name = "t"
        [[mcp_servers]]
        transport = "stdio"
    "#;
    let setting = Setting::new(&[("INSTAR__RUNNER__CONCURENCY", "1"), ("INSTAR__DRAIN", "5")]);
    let refusal = setting.refusal(Role::AgentWorker, text);
    let expected = [
        "api.listen",
        "auth.bootstrap_key_env",
        "colour",
        "database.reader_max",
        "database.url",
        "database.writers",
        "drain",
        "lease.ttl_ms",
        "mcp_servers[0].name",
        "models[0].api_key_env",
        "models[0].base_url",
        "models[1].max_tokens",
        "models[1].model",
        "models[1].name",
        "models[1].provider",
        "models[1].temprature",
        "models[2].api_key_env",
        "models[2].headers",
        "models[2].model",
        "models[2].name",
        "models[2].provider",
        "nats.certificate_file",
        "nats.url",
        "runner.concurency",
        "telemetry.log_filter",
        "telemetry.otlp_endpoint",
        "telemetry.sample_ratio",
        "tools[1].name",
        "worker.concurrency",
    ];
    println!("{refusal}");
    assert_eq!(keys(&refusal), expected);
    assert!(!refusal.contains("hunter2") && !refusal.contains("pasted-key"), "{refusal}");
    assert!(refusal.contains("api.listen: must be address:port"), "{refusal}");
    assert!(refusal.contains("the environment variable NOT_SET is not set"), "{refusal}");
    assert!(refusal.contains("unknown field `reader_max`, expected one of `url`, `readers_max`"), "{refusal}");
}

#[test]
fn a_distributed_service_says_what_it_lacks() {
    let setting = Setting::new(&[]);
    for role in Role::ALL.into_iter().filter(|role| role.is_distributed()) {
        let refusal = setting.refusal(role, "");
        assert_eq!(keys(&refusal), ["auth.bootstrap_key_env", "database.url", "nats.url"], "{role}");
        assert!(refusal.contains("authentication is not configured"), "{refusal}");
    }
    assert_eq!(keys(&setting.refusal(Role::Migrate, "")), ["database.url"]);
}

#[test]
fn sqlite_is_for_one_process() {
    let sqlite = "[database]\nurl = 'sqlite:///tmp/i.db'\n";
    let nats = "[nats]\nurl = 'nats://localhost'\n";
    let auth = "[auth]\nbootstrap_key_env = 'INSTAR_BOOTSTRAP_KEY'\n";
    let setting = with_keys();
    assert!(setting.load(Role::Dev, sqlite, &[]).is_ok());
    assert!(setting.load(Role::Migrate, sqlite, &[]).is_ok());
    assert_eq!(keys(&setting.refusal(Role::Dev, &format!("{sqlite}{nats}"))), ["nats.url"]);
    assert_eq!(keys(&setting.refusal(Role::Dev, nats)), ["nats.url"], "dev without a database is on SQLite");
    assert_eq!(keys(&setting.refusal(Role::Api, &format!("{sqlite}{nats}{auth}"))), ["database.url"]);
}

#[test]
fn keys_are_needed_only_where_they_are_used() {
    let setting = Setting::new(&[]);
    assert_eq!(keys(&setting.refusal(Role::Api, EXAMPLE)), ["auth.bootstrap_key_env"]);
    assert_eq!(keys(&setting.refusal(Role::AgentWorker, EXAMPLE)), ["models[0].api_key_env"]);
    assert!(setting.load(Role::ToolRunner, EXAMPLE, &[]).is_ok());
    assert!(setting.load(Role::Scheduler, EXAMPLE, &[]).is_ok());
}

#[test]
fn a_broken_file_is_told_without_its_text_and_hides_nothing_else() {
    let setting = Setting::new(&[("INSTAR__WORKER__CONCURRENCY", "many")]);
    let refusal = setting.refusal(Role::Dev, "[database]\nurl = \"postgres://u:hunter2@h/db\n");
    assert!(refusal.contains("line 2") && refusal.contains("worker.concurrency"), "{refusal}");
    assert!(!refusal.contains("hunter2"), "{refusal}");
    assert_eq!(refusal.lines().count(), 2, "{refusal}");
}

#[test]
fn a_file_that_was_named_must_be_there() {
    let setting = Setting::new(&[]);
    let missing = setting.dir.path().join("other.toml");
    let refusal = Config::load_from(Role::Dev, Some(&missing), &setting.environment, &[]).unwrap_err().to_string();
    assert!(refusal.contains("other.toml: cannot be read"), "{refusal}");
}

#[test]
fn a_list_in_pieces_or_as_bad_text_is_refused_with_the_way_to_write_it() {
    for (name, value) in
        [("INSTAR__MODELS__0__NAME", "a"), ("INSTAR__MODELS", "a,b"), ("INSTAR__MODELS", "\"sk-pasted-key\"")]
    {
        let refusal = Setting::new(&[(name, value)]).refusal(Role::Dev, "");
        assert!(refusal.starts_with("models: must be a list, [[models]] in the file or a JSON list"), "{refusal}");
        assert!(!refusal.contains("pasted-key"), "{refusal}");
    }
}

#[test]
fn the_configuration_can_be_printed_without_its_secrets() {
    let setting = Setting::new(&[("INSTAR__DATABASE__URL", DATABASE)]);
    let text = "[[models]]\nname = 'a'\nprovider = 'openai'\nmodel = 'm'\nextra_body = { user = 'hunter2' }\n\
                headers = { x-key = 'hunter2' }\n\
                [[tools]]\nname = 't'\nkind = 'http'\nheaders = { authorization = 'hunter2' }\n\
                [[mcp_servers]]\nname = 's'\nenv = { TOKEN = 'hunter2' }\n";
    let config = setting.load(Role::Dev, text, &[]).unwrap();
    for shown in [format!("{config:?}"), format!("{config:#?}")] {
        assert!(shown.contains("url: Some") && shown.contains("[secret]"), "{shown}");
        assert!(shown.contains("x-key") && !shown.contains("hunter2"), "{shown}");
    }
}

#[test]
fn the_key_for_secrets_comes_from_one_place_and_names_are_names() {
    let text = "[secrets]\nkey_env = 'KEY'\nkey_file = 'key'\nenv = ['not a name', 'INSTAR_API_KEY']\n\
                [telemetry]\notlp_endpoint = 'http://me:hunter2@host:4318'";
    let refusal = Setting::new(&[]).refusal(Role::Dev, text);
    for words in ["secrets.key_env: ", "secrets.key_file: ", "secrets.env: must be names", "INSTAR_API_KEY is ours"] {
        assert!(refusal.contains(words), "{words}: {refusal}");
    }
    assert!(refusal.contains("telemetry.otlp_endpoint: must not hold a user") && !refusal.contains("hunter2"));
    let given = Setting::new(&[("INSTAR__SECRETS__ENV", "A_TOKEN, B_TOKEN")]).load(Role::Dev, "", &[]).unwrap();
    assert_eq!(given.secrets.env, ["A_TOKEN", "B_TOKEN"]);
}

#[test]
fn a_model_goes_on_as_json_with_only_what_was_given() {
    let text = "[[models]]\nname = 'a'\nprovider = 'openai'\nmodel = 'm'\nextra_body = { Top.K = 1.5 }\n\
                limits = { retries_max = 1 }";
    let config = Setting::new(&[]).load(Role::Dev, text, &[]).unwrap();
    let expected = serde_json::json!({"name": "a", "provider": "openai", "model": "m",
        "extra_body": {"Top": {"K": 1.5}}, "limits": {"retries_max": 1}});
    assert_eq!(config.models[0].to_json(), expected);
}

#[test]
fn a_request_that_is_never_answered_can_be_made_again_within_its_turn() {
    let model =
        |limits: &str| format!("[[models]]\nname = 'a'\nprovider = 'openai'\nmodel = 'm'\nlimits = {{ {limits} }}");
    let shorter = format!("{}\n[worker]\nturn_deadline_ms = 60000", model("idle_timeout_ms = 30000"));
    for (text, key) in [
        (model("first_event_timeout_ms = 300000"), "models[0].limits.first_event_timeout_ms"),
        (shorter.clone(), "models[0].limits.idle_timeout_ms"),
    ] {
        let refusal = Setting::new(&[]).refusal(Role::Dev, &text);
        assert_eq!(keys(&refusal), [key]);
        assert!(refusal.contains("or less") && refusal.contains("worker.turn_deadline_ms"), "{refusal}");
    }
    let fits = shorter.replace("30000", "24000");
    assert!(Setting::new(&[]).load(Role::Dev, &fits, &[]).is_ok());
}

#[test]
fn a_tool_runner_whose_tools_work_in_a_workspace_needs_a_place_for_them() {
    let tool = "[[tools]]\nname = \"build\"\nkind = \"command\"\ncommand = [\"make\"]\nworkspace = \"write\"\n";
    let text = format!("{EXAMPLE}\n{tool}");
    let refusal = with_keys().refusal(Role::ToolRunner, &text);
    assert_eq!(keys(&refusal), ["runner.workspaces"]);
    assert!(refusal.contains("\"build\""), "{refusal}");
    let relative = text.replace("[runner]\n", "[runner]\nworkspaces = \"files\"\n");
    assert_eq!(keys(&with_keys().refusal(Role::ToolRunner, &relative)), ["runner.workspaces"]);
    let set = text.replace("[runner]\n", "[runner]\nworkspaces = \"/var/lib/instar/files\"\n");
    assert!(with_keys().load(Role::ToolRunner, &set, &[]).is_ok());
    assert!(with_keys().load(Role::Api, &text, &[]).is_ok(), "only who runs tools needs it");
}
