//! Whether an object still has the content that it was made with. What a version's content is, is in `api::versioned`.

use serde_json::Value;

/// Where `actual` is not what was asked for: a path such as `spec.containers[0].image`. What an API server adds by itself (defaults)
/// is no difference; a value that was asked for and is another now is one, and so is a list with more or fewer items.
pub fn difference(asked: &Value, actual: &Value) -> Option<String> {
    let mut path = String::new();
    differs(asked, actual, &mut path).then_some(path)
}

fn differs(asked: &Value, actual: &Value, path: &mut String) -> bool {
    let length = path.len();
    let differs = match (asked, actual) {
        (Value::Object(asked), Value::Object(actual)) => asked.iter().any(|(key, asked)| {
            path.truncate(length);
            if length > 0 {
                path.push('.');
            }
            path.push_str(key);
            match actual.get(key) {
                Some(actual) => differs(asked, actual, path),
                None => !is_nothing(asked),
            }
        }),
        (Value::Array(asked), Value::Array(actual)) => {
            asked.len() != actual.len()
                || asked.iter().zip(actual).enumerate().any(|(at, (asked, actual))| {
                    path.truncate(length);
                    path.push_str(&format!("[{at}]"));
                    differs(asked, actual, path)
                })
        }
        (Value::Number(asked), Value::Number(actual)) => asked.as_f64() != actual.as_f64(),
        _ => asked != actual && !(is_nothing(asked) && is_nothing(actual)),
    };
    if !differs {
        path.truncate(length);
    }
    differs
}

/// An API server drops these.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(yes) => !yes,
        Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_an_api_server_adds_is_no_difference_what_it_changes_is() {
        let asked = json!({"spec": {"containers": [{"name": "a", "image": "x:1", "env": []}], "hostPID": false}});
        let table = [
            (
                json!({"spec": {"containers": [{"name": "a", "image": "x:1", "imagePullPolicy": "Always"}], "dnsPolicy": "X"}}),
                None,
            ),
            (json!({"spec": {"containers": [{"name": "a", "image": "x:2"}]}}), Some("spec.containers[0].image")),
            (json!({"spec": {"containers": [{"name": "a", "image": "x:1"}, {"name": "b"}]}}), Some("spec.containers")),
            (json!({"spec": {"containers": [{"name": "a", "image": "x:1"}], "hostPID": true}}), Some("spec.hostPID")),
            (json!({}), Some("spec")),
        ];
        for (actual, expected) in table {
            assert_eq!(difference(&asked, &actual).as_deref(), expected, "{actual}");
        }
    }
}
