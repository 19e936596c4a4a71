use super::*;
use proptest::prelude::*;
use serde_json::json;

fn of(token: &str) -> Schema {
    Schema::new(Type::parse(token).expect(token))
}

#[test]
fn a_type_reads_back_what_it_prints_and_refuses_what_is_no_word() {
    for token in ["string", "file", "database_entity", "any", "newsletter", "crm_lead2"] {
        assert_eq!(Type::parse(token).expect(token).token(), token);
    }
    for token in ["", "News", "a b", "2x", "é", "drop table;", &"a".repeat(65)] {
        assert_eq!(Type::parse(token), None, "{token}");
    }
}

#[test]
fn what_flows_into_what_is_as_specified() {
    let tokens =
        ["string", "number", "boolean", "primitive", "object", "file", "database_entity", "markdown", "config"];
    // Columns as above, then `any` and a domain's type; `x` where the row flows into the column.
    let expected = [
        ("string", "x..x.x.x.xx"),
        ("number", ".x.x.....x."),
        ("boolean", "..xx.....x."),
        ("primitive", "...x.....x."),
        ("object", "....x.x.xxx"),
        ("file", "x....x...x."),
        ("database_entity", "....x.x..x."),
        ("markdown", "x......x.x."),
        ("config", "....x...xx."),
        ("any", "xxxxxxxxxxx"),
        ("newsletter", "x...x....xx"),
    ];
    for (from, cells) in expected {
        for (into, cell) in tokens.into_iter().chain(["any", "newsletter"]).zip(cells.chars()) {
            assert_eq!(of(from).flows_into(&of(into)).is_ok(), cell == 'x', "{from} into {into}");
            let listed = of(from).array().flows_into(&of(into).array());
            assert_eq!(listed.is_ok(), cell == 'x', "lists of {from} into lists of {into}");
        }
    }
    assert!(of("newsletter").flows_into(&of("lead")).is_err(), "another domain's");
}

#[test]
fn a_list_is_no_single_value() {
    assert!(of("string").flows_into(&of("string").array()).is_err());
    assert!(of("string").array().flows_into(&of("string")).is_err());
    assert!(of("string").array().flows_into(&of("any")).is_ok());
    assert!(of("string").flows_into(&of("any").array()).is_err());
}

#[test]
fn fields_that_are_wanted_must_be_there_and_fit() {
    let wants = of("object").field("title", of("string")).field("note", Schema { optional: true, ..of("string") });
    let has = |field: &str, kind: &str| of("object").field(field, of(kind));
    assert_eq!(has("title", "markdown").flows_into(&wants), Ok(()));
    assert_eq!(of("object").flows_into(&wants), Ok(()), "nothing is known of it yet");
    let missing = has("name", "string").flows_into(&wants).expect_err("no title");
    assert_eq!(missing, "there is no /title, which must be string");
    let other = has("title", "number").flows_into(&wants).expect_err("a number");
    assert_eq!(other, "number does not fit string at /title");
}

#[test]
fn a_value_that_does_not_fit_is_told_by_its_place() {
    let schema = of("lead").array().field("name", of("string")).field("score", of("number"));
    let told = |value: Value| -> Vec<String> {
        schema.check(&value).expect_err("does not fit").iter().map(ToString::to_string).collect()
    };
    assert_eq!(schema.check(&json!([{"name": "a", "score": 1, "more": null}])), Ok(()));
    assert_eq!(told(json!("x")), ["/: expected a list of lead, found a string"]);
    assert_eq!(
        told(json!([{"name": 1, "score": 1}, {"name": "b"}])),
        ["/0/name: expected string, found a number", "/1/score: expected number, found nothing"]
    );
    assert_eq!(told(json!(["lead"])), ["/0: expected lead with fields, found a string"]);
    assert_eq!(told(Value::Array(vec![Value::Null; 1_000])).len(), MISFITS_MAX);
    assert!(of("any").check(&Value::Null).is_err(), "nothing is no value");
}

#[test]
fn a_schema_that_makes_no_sense_is_refused_with_what_to_do() {
    let refused = |value: Value| Schema::parse(&value).expect_err("refused");
    assert!(refused(json!({"type": "Text"})).contains("a word of your own"));
    assert!(refused(json!({"type": "string", "fields": {"a": {"type": "string"}}})).contains("drop them"));
    assert!(refused(json!({"type": "string", "array": true})).contains("is_array"));
    assert!(refused(json!("string")).contains("the schema"));
    let mut deep = json!({"type": "string"});
    for _ in 0..DEPTH_MAX {
        deep = json!({"type": "object", "fields": {"a": deep}});
    }
    assert!(refused(deep).contains("deeper"));
    let many: serde_json::Map<_, _> = (0..=FIELDS_MAX).map(|n| (format!("f{n}"), json!({"type": "any"}))).collect();
    assert!(refused(json!({"type": "object", "fields": many})).contains("more than"));
}

#[test]
fn a_tool_s_declaration_is_read_in_our_words() {
    let read = |value: Value| Schema::of_json_schema(&value);
    assert_eq!(read(json!({"type": "integer"})), of("number"));
    assert_eq!(read(json!({"type": "array", "items": {"type": "string"}})), of("string").array());
    assert_eq!(read(json!({"type": "array"})), of("any").array());
    assert_eq!(read(json!({"type": "string", "x-asset-type": "newsletter"})), of("newsletter"));
    assert_eq!(read(json!({"anyOf": [{"type": "string"}]})), of("any"));
    assert_eq!(read(json!(true)), of("any"));
    let object = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {}}, "required": ["a"]});
    let optional = Schema { optional: true, ..of("any") };
    assert_eq!(read(object), of("object").field("a", of("string")).field("b", optional));
}

#[test]
fn an_asset_s_row_is_read_whichever_way_its_fields_are_written() {
    let ours = json!({"type": "object", "fields": {"a": {"type": "number"}}});
    let theirs = json!({"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]});
    let expected = of("lead").array().field("a", of("number"));
    assert_eq!(Schema::of_asset("lead", true, &ours), expected);
    assert_eq!(Schema::of_asset("lead", true, &theirs), expected);
    assert_eq!(Schema::of_asset("string", false, &theirs), of("string"));
    assert_eq!(Schema::of_asset("No Type", false, &Value::Null), of("any"));
}

fn any_schema() -> impl Strategy<Value = Schema> {
    let token = prop::sample::select(vec![
        "string",
        "number",
        "boolean",
        "primitive",
        "object",
        "file",
        "database_entity",
        "markdown",
        "config",
        "any",
        "lead",
    ]);
    let leaf = (token, any::<bool>(), any::<bool>()).prop_map(|(token, is_array, optional)| Schema {
        is_array,
        optional,
        ..of(token)
    });
    leaf.prop_recursive(3, 24, 4, |inner| {
        let fields = prop::collection::btree_map("[a-c]", inner, 0..4);
        (prop::sample::select(vec!["object", "config", "lead"]), any::<bool>(), fields)
            .prop_map(|(token, is_array, fields)| Schema { is_array, fields, ..of(token) })
    })
}

/// A value of this type, of the sort that `pick` says where there is a choice.
fn value_of(schema: &Schema, pick: u8) -> Value {
    if schema.is_array {
        let one = Schema { is_array: false, ..schema.clone() };
        return (0..pick % 3).map(|n| value_of(&one, pick.wrapping_add(n))).collect();
    }
    let object = || {
        let there = schema.fields.iter().filter(|(_, field)| !field.optional || pick.is_multiple_of(2));
        there.map(|(name, field)| (name.clone(), value_of(field, pick / 2))).collect()
    };
    match &schema.kind {
        Type::String | Type::Markdown | Type::File => json!(format!("text {pick}")),
        Type::Number => json!(pick),
        Type::Boolean => json!(pick > 9),
        Type::Primitive | Type::Any => [json!(pick), json!("x"), json!(true)][usize::from(pick % 3)].clone(),
        Type::Domain(_) if schema.fields.is_empty() && pick.is_multiple_of(2) => json!("text"),
        _ => Value::Object(object()),
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z]{0,6}".prop_map(Value::from),
        prop::sample::select(vec!["object", "array", "string"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let name = prop::sample::select(vec!["type", "items", "properties", "required", "fields", "x-asset-type", "a"]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name, inner, 0..5)
                .prop_map(|map| map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
        ]
    })
}

/// Whether a type says all there is to say about its values.
fn is_settled(schema: &Schema) -> bool {
    schema.kind != Type::Any
        && !matches!(schema.kind, Type::Domain(_))
        && schema.fields.values().all(|field| !field.optional && is_settled(field))
}

proptest! {
    #[test]
    fn a_value_made_for_a_schema_fits_it(schema in any_schema(), pick: u8) {
        let value = value_of(&schema, pick);
        prop_assert_eq!(schema.check(&value), Ok(()), "{}", value);
    }

    #[test]
    fn a_schema_flows_into_itself_and_reads_back_what_it_prints(schema in any_schema()) {
        prop_assert_eq!(schema.flows_into(&schema), Ok(()));
        let printed = serde_json::to_value(&schema).unwrap();
        prop_assert_eq!(Schema::parse(&printed), Ok(schema));
    }

    /// Where everything is known before there is a value, no value is a surprise.
    #[test]
    fn what_flows_by_settled_types_always_fits(from in any_schema(), into in any_schema(), pick: u8) {
        let known = is_settled(&from) && is_settled(&into) && (into.fields.is_empty() || !from.fields.is_empty());
        let nested = into.fields.values().all(|field| field.fields.is_empty());
        if known && nested && from.flows_into(&into).is_ok() {
            let value = value_of(&from, pick);
            prop_assert_eq!(into.check(&value), Ok(()), "{} of {:?} into {:?}", value, from, into);
        }
    }

    #[test]
    fn no_declaration_and_no_value_is_too_odd_to_be_read(declared in any_json(), value in any_json()) {
        let schema = Schema::of_json_schema(&declared);
        let _ = schema.check(&value);
        let _ = Schema::parse(&declared);
        prop_assert_eq!(schema.flows_into(&schema), Ok(()));
    }
}
