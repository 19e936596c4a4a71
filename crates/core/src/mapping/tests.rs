use super::*;
use crate::asset::lineage::Version;
use crate::asset::{Role, Schema, Type};
use proptest::prelude::*;
use uuid::Uuid;

fn id(n: u128) -> AssetId {
    AssetId::from(Uuid::from_u128(n))
}

fn of(token: &str) -> Schema {
    Schema::new(Type::parse(token).expect(token))
}

/// `fetch(url: string, depth?: number) -> {page: string, links: [string]}`, `write(text: string)`, `sum([number])`.
fn tool(name: &str) -> Option<Face> {
    let text = json!({"type": "string"});
    let (parameters, results) = match name {
        "fetch" => (
            json!({"type": "object", "properties": {"url": text, "depth": {"type": "integer"}}, "required": ["url"]}),
            json!({"type": "object", "properties": {"page": text, "links": {"type": "array", "items": text}}}),
        ),
        "write" => (json!({"type": "object", "properties": {"text": text}, "required": ["text"]}), Value::Null),
        "sum" => {
            let numbers = json!({"type": "array", "items": {"type": "number"}});
            let parameters = json!({"type": "object", "properties": {"of": numbers}, "required": ["of"]});
            (parameters, json!({"type": "object", "properties": {"total": {"type": "number"}}}))
        }
        _ => return None,
    };
    Some(Face::of(&parameters, &results))
}

struct Hop {
    schemas: Vec<(AssetId, &'static str, Schema, Role, bool)>,
    /// An asset that nothing can be written into.
    closed: Option<(AssetId, &'static str)>,
}

impl Hop {
    /// A URL to read, a page in between, a report to make.
    fn new() -> Hop {
        Hop {
            schemas: vec![
                (id(1), "address", of("string"), Role::Input, false),
                (id(2), "page", of("string"), Role::Intermediate, false),
                (id(3), "report", of("markdown"), Role::Output, false),
            ],
            closed: None,
        }
    }

    fn check(&self, steps: &[(&str, Value, Value)]) -> Vec<(Code, Option<usize>, String)> {
        let read: Vec<_> = steps
            .iter()
            .map(|(tool, p, r)| (*tool, parameters(p).expect("parameters"), results(r).expect("results")))
            .collect();
        let steps: Vec<Step<'_>> = read
            .iter()
            .map(|(tool, parameters, results)| Step {
                name: "s",
                tool: (!tool.is_empty()).then_some(*tool),
                parameters,
                results,
            })
            .collect();
        let assets: Vec<Held<'_>> = self
            .schemas
            .iter()
            .map(|(id, name, schema, role, ready)| {
                let closed = self.closed.filter(|(closed, _)| closed == id).map(|(_, why)| why);
                Held { id: *id, name, schema, role: *role, ready: *ready, closed }
            })
            .collect();
        check(&steps, &assets, tool).into_iter().map(|fault| (fault.code, fault.step, fault.message)).collect()
    }
}

fn asset(n: u128) -> Value {
    json!({"type": "asset_field", "asset_id": id(n)})
}

fn fetch() -> (&'static str, Value, Value) {
    ("fetch", json!({"url": asset(1)}), json!({"page": asset(2), "links": {"type": "discard"}}))
}

fn write() -> (&'static str, Value, Value) {
    ("write", json!({"text": asset(2)}), json!({"output": asset(3)}))
}

fn codes(faults: &[(Code, Option<usize>, String)]) -> Vec<(Code, Option<usize>)> {
    faults.iter().map(|(code, step, _)| (*code, *step)).collect()
}

#[test]
fn a_mapping_reads_back_what_it_prints_in_old_and_new_words() {
    let old = json!({"url": {"type": "state_asset", "state_asset_id": id(1)}, "n": {"type": "literal", "value": 3}});
    let read = parameters(&old).unwrap();
    assert_eq!(read["url"], Source::Asset(id(1)));
    assert_eq!(parameters(&parameters_json(&read)), Ok(read));
    let old = json!({"a": {"type": "asset_field", "state_asset_id": id(2)}, "b": {"type": "discard"}});
    let read = results(&old).unwrap();
    assert_eq!(results(&results_json(&read)), Ok(read));
    assert_eq!(parameters(&Value::Null), Ok(Parameters::new()));
}

#[test]
fn every_entry_that_is_no_mapping_is_told_by_its_name() {
    let wrong = json!({
        "a": "ast_1", "b": {"type": "asset_field"}, "c": {"type": "asset_field", "asset_id": "report"},
        "d": {"type": "discard"}, "e": {"type": "literal"}, "f": {"type": "literal", "value": {"$asset": "x"}},
    });
    let faults = parameters(&wrong).expect_err("all of them");
    let told: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 6, "{told:?}");
    for (told, part) in told.iter().zip(["must be an object", "asset_id", "is no asset", "literal", "value", "$asset"])
    {
        assert!(told.contains(part), "{told} should say {part}");
    }
    assert!(results(&json!({"a": {"type": "literal", "value": 1}})).is_err());
    assert!(results(&json!([])).is_err());
}

#[test]
fn a_chain_that_can_work_has_no_fault() {
    assert_eq!(Hop::new().check(&[fetch(), write()]), []);
}

#[test]
fn what_is_read_must_have_been_written_before() {
    let faults = Hop::new().check(&[write(), fetch()]);
    assert_eq!(codes(&faults), [(Code::NotAvailable, Some(1))]);
    assert!(faults[0].2.contains("available here: address"), "{}", faults[0].2);
    let mut hop = Hop::new();
    hop.schemas[1].4 = true;
    assert_eq!(hop.check(&[write(), fetch()]), [], "it has a value from before");
}

#[test]
fn what_takes_no_value_is_not_written() {
    let mut hop = Hop::new();
    hop.closed = Some((id(2), "it is EXPIRED: refresh it first"));
    let faults = hop.check(&[fetch(), write()]);
    assert_eq!(codes(&faults), [(Code::NotWritable, Some(1))]);
    assert!(faults[0].2.contains("cannot go into page") && faults[0].2.contains("refresh it first"), "{}", faults[0].2);
}

#[test]
fn tools_and_what_they_declare_are_held_against_the_mapping() {
    let hop = Hop::new();
    let faults = hop.check(&[("teleport", json!({}), json!({})), fetch(), write()]);
    assert_eq!(codes(&faults), [(Code::UnknownTool, Some(1))]);
    let faults = hop.check(&[("", json!({}), json!({})), fetch(), write()]);
    assert_eq!(codes(&faults), [(Code::NoTool, Some(1))]);
    let odd = ("fetch", json!({"uri": asset(1)}), json!({"pages": asset(2)}));
    let faults = hop.check(&[odd, write()]);
    let expected =
        [(Code::UnknownParameter, Some(1)), (Code::MissingParameter, Some(1)), (Code::UnknownResult, Some(1))];
    assert_eq!(codes(&faults), expected);
    assert!(faults[0].2.contains("it has: depth, url"), "{}", faults[0].2);
    assert!(faults[2].2.contains("it has: links, output, page"), "{}", faults[2].2);
}

#[test]
fn assets_of_others_are_not_this_hop_s_to_read_or_write() {
    let faults = Hop::new().check(&[
        ("fetch", json!({"url": asset(9)}), json!({"page": asset(8)})),
        ("write", json!({"text": {"type": "literal", "value": "x"}}), json!({"output": asset(3)})),
    ]);
    assert_eq!(codes(&faults), [(Code::ForeignAsset, Some(1)), (Code::ForeignAsset, Some(1))]);
    assert!(faults[0].2.contains("report"), "{}", faults[0].2);
}

#[test]
fn types_must_fit_where_they_are_known() {
    let hop = Hop::new();
    let faults = hop.check(&[fetch(), ("sum", json!({"of": asset(2)}), json!({"total": asset(3)}))]);
    assert_eq!(codes(&faults), [(Code::Misfit, Some(2)), (Code::Misfit, Some(2))]);
    let literal = json!({"url": {"type": "literal", "value": 7}});
    let faults = hop.check(&[("fetch", literal, json!({"page": asset(3)}))]);
    assert_eq!(codes(&faults), [(Code::Misfit, Some(1))]);
    assert!(faults[0].2.contains("expected string, found a number"), "{}", faults[0].2);
}

#[test]
fn a_hop_must_make_what_it_promises_and_nothing_twice_at_once() {
    let hop = Hop::new();
    let faults = hop.check(&[fetch()]);
    assert_eq!(codes(&faults), [(Code::NeverWritten, None)]);
    let twice = ("fetch", json!({"url": asset(1)}), json!({"page": asset(3), "output": asset(3)}));
    assert!(codes(&hop.check(&[twice])).contains(&(Code::WrittenTwice, Some(1))));
    assert_eq!(codes(&hop.check(&[])), [(Code::NoSteps, None)]);
    assert_eq!(codes(&hop.check(&vec![fetch(); STEPS_MAX + 1])), [(Code::TooManySteps, None)]);
}

#[test]
fn arguments_refer_to_pinned_content_and_never_hold_it() {
    let mapping = parameters(&json!({"url": asset(1), "depth": {"type": "literal", "value": 2}})).unwrap();
    let pin = |asked: AssetId| (asked == id(1)).then_some(4);
    let made = arguments(&mapping, pin).unwrap();
    assert_eq!(made["depth"], 2);
    assert_eq!(reference(&made["url"]), Some(Version { asset_id: id(1), version: 4 }));
    assert_eq!(reference(&made["depth"]), None);
    let none = arguments(&mapping, |_| None).expect_err("no version");
    assert!(none[0].message.contains("provide one"), "{}", none[0].message);
}

#[test]
fn a_result_that_is_missing_or_does_not_fit_is_an_error() {
    let mapping = results(&json!({"page": asset(2), "links": {"type": "discard"}})).unwrap();
    let (text, number) = (of("string"), of("number"));
    let written = outputs(&mapping, &json!({"page": "hello", "more": 1}), |_| Some(&text)).unwrap();
    assert_eq!((written.len(), written[0].asset, written[0].content.bytes.as_slice()), (1, id(2), &b"hello"[..]));
    for output in [json!({}), json!({"page": null}), json!("hello"), Value::Null] {
        let missing = outputs(&mapping, &output, |_| Some(&text)).expect_err("missing");
        assert_eq!(missing[0].code, Code::MissingResult, "{output}");
    }
    let misfit = outputs(&mapping, &json!({"page": "hello"}), |_| Some(&number)).expect_err("a string");
    assert_eq!(misfit[0].code, Code::Misfit);
    let whole = results(&json!({"output": asset(3)})).unwrap();
    assert_eq!(outputs(&whole, &json!("all"), |_| Some(&text)).unwrap()[0].content.bytes, b"all");
    assert!(outputs(&whole, &Value::Null, |_| Some(&text)).is_err());
}

fn any_step() -> impl Strategy<Value = (&'static str, Value, Value)> {
    let tool = prop::sample::select(vec!["fetch", "write", "sum", "teleport", ""]);
    let source = prop_oneof![(1u128..5).prop_map(asset), Just(json!({"type": "literal", "value": "x"}))];
    let target = prop_oneof![(1u128..5).prop_map(asset), Just(json!({"type": "discard"}))];
    let parameter = prop::sample::select(vec!["url", "text", "of", "odd"]);
    let result = prop::sample::select(vec!["page", "output", "total", "odd"]);
    let object =
        |map: BTreeMap<&'static str, Value>| map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<Value>();
    let parameters = prop::collection::btree_map(parameter, source, 0..3).prop_map(object);
    let results = prop::collection::btree_map(result, target, 0..3).prop_map(object);
    (tool, parameters, results)
}

proptest! {
    /// Run in order, a chain without a fault finds every asset it reads with a value, and leaves every promise kept.
    #[test]
    fn a_chain_without_a_fault_can_be_run(steps in prop::collection::vec(any_step(), 0..5)) {
        let hop = Hop::new();
        if hop.check(&steps).is_empty() {
            let mut there = vec![id(1)];
            for (name, p, r) in &steps {
                let face = tool(name).expect("a known tool");
                let (p, r) = (parameters(p).unwrap(), results(r).unwrap());
                let pin = |asked: AssetId| there.contains(&asked).then_some(1);
                let made = arguments(&p, pin);
                prop_assert!(made.is_ok());
                prop_assert!(p.keys().all(|key| face.parameters.contains_key(key)));
                prop_assert!(face.parameters.iter().all(|(key, wanted)| wanted.optional || p.contains_key(key)));
                there.extend(written(&r));
            }
            prop_assert!(there.contains(&id(3)));
        }
    }

    /// What is right stays right when a step is put behind it that only reads what is there.
    #[test]
    fn reading_once_more_breaks_nothing(steps in prop::collection::vec(any_step(), 1..4)) {
        let hop = Hop::new();
        if hop.check(&steps).is_empty() {
            let mut longer = steps.clone();
            longer.push(("write", json!({"text": asset(1)}), json!({})));
            prop_assert_eq!(hop.check(&longer), vec![]);
        }
    }
}
