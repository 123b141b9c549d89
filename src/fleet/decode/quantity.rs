//! Kubernetes quantities (`2`, `1k`, `2Gi`, `100m`, `1e3`) as whole numbers.

/// The quantity rounded up to a whole number, as the API server does with integer resources; None: it is none.
pub fn parse(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Ok(number) = text.parse::<i64>() {
        return Some(number);
    }
    let split = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))).unwrap_or(text.len());
    let (number, suffix) = (text.get(..split)?, text.get(split..)?);
    let (numerator, denominator): (i128, i128) = match suffix {
        "" => (1, 1),
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1_000),
        "k" => (1_000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000, 1),
        "E" => (1_000_000_000_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        exponent => {
            let exponent: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = 10i128.checked_pow(exponent.unsigned_abs()).filter(|_| exponent.abs() <= 18)?;
            if exponent >= 0 { (power, 1) } else { (1, power) }
        }
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let negative = whole.starts_with('-');
    let digits = whole.strip_prefix(['+', '-']).unwrap_or(whole);
    if digits.is_empty() && fraction.is_empty() {
        return None;
    }
    let digits: i128 = format!("0{digits}{fraction}").parse().ok()?;
    let scale = 10i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let (top, bottom) = (digits.checked_mul(numerator)?, denominator.checked_mul(scale)?);
    let rounded = (top + bottom - 1) / bottom;
    i64::try_from(if negative { -rounded } else { rounded }).ok()
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn quantities_are_read_as_kubernetes_writes_them() {
        for (text, number) in [
            ("2", 2),
            ("0", 0),
            ("1k", 1_000),
            ("2Gi", 2 << 30),
            ("1.5Ki", 1_536),
            ("100m", 1),
            ("1500m", 2),
            ("1e3", 1_000),
            ("-3", -3),
            ("+3", 3),
            (".5", 1),
            ("5.", 5),
        ] {
            assert_eq!(parse(text), Some(number), "{text}");
        }
        for text in [
            "",
            "x",
            "1x",
            "1.2.3",
            "--1",
            "12E",
            "1e99",
            "Ki",
            ".",
            "-",
            "1.12345678901",
            "99999999999999999999999999999999999999999",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
