//! Times of the day and week at which handoffs may start. Pure: windows and a time in, open or closed out.

use jiff::{
    Timestamp, ToSpan, Zoned,
    civil::{Time, Weekday},
    tz::TimeZone,
};

use crate::api::component::Window;

/// How a set of windows stands at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Windows {
    /// `until`: the end of the open window; None: always open.
    Open { until: Option<Timestamp> },
    /// `opens`: when the next one opens; None: none does within two weeks.
    Closed { opens: Option<Timestamp> },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rollout window {start:?}: {why}")]
pub struct BadWindow {
    pub start: String,
    pub why: String,
}

/// The windows at `now`. An empty list is always open.
///
/// # Errors
/// A window that does not parse: then nothing may be taken to be open.
pub fn at(windows: &[Window], now: Timestamp) -> Result<Windows, BadWindow> {
    if windows.is_empty() {
        return Ok(Windows::Open { until: None });
    }
    let (mut until, mut opens) = (None::<Timestamp>, None::<Timestamp>);
    for window in windows {
        let parsed = Parsed::of(window)?;
        // From yesterday, or as many days back as the window is long, to two weeks ahead.
        let days_back = i32::try_from(window.duration.0.as_secs() / 86_400).unwrap_or(7).min(7) + 1;
        let today = now.to_zoned(parsed.zone.clone());
        for day in -days_back..=14 {
            let Some(start) = parsed.start_on(&today, day) else { continue };
            let end = start.checked_add(window.duration.signed()).unwrap_or(Timestamp::MAX);
            if start <= now && now < end {
                until = until.max(Some(end));
            } else if start > now {
                opens = Some(opens.map_or(start, |known| known.min(start)));
            }
        }
    }
    Ok(match until {
        Some(until) => Windows::Open { until: Some(until) },
        None => Windows::Closed { opens },
    })
}

struct Parsed {
    days: Vec<Weekday>,
    time: Time,
    zone: TimeZone,
}

const DAYS: [(&str, Weekday); 7] = [
    ("Mon", Weekday::Monday),
    ("Tue", Weekday::Tuesday),
    ("Wed", Weekday::Wednesday),
    ("Thu", Weekday::Thursday),
    ("Fri", Weekday::Friday),
    ("Sat", Weekday::Saturday),
    ("Sun", Weekday::Sunday),
];

impl Parsed {
    fn of(window: &Window) -> Result<Self, BadWindow> {
        let bad = |why: String| BadWindow { start: window.start.clone(), why };
        let words: Vec<&str> = window.start.split_whitespace().collect();
        let (days, time) = match words[..] {
            [time] => (DAYS.iter().map(|(_, day)| *day).collect(), time),
            [days, time] => (days_of(days).map_err(&bad)?, time),
            _ => return Err(bad("want HH:MM, with days before it if not every day: `Sat,Sun 08:30`, `Mon-Fri 22:00`".into())),
        };
        let clock = time.split_once(':').and_then(|(hour, minute)| {
            let digits = |text: &str| (text.len() == 2).then(|| text.parse::<i8>().ok()).flatten();
            Time::new(digits(hour)?, digits(minute)?, 0, 0).ok()
        });
        let time = clock.ok_or_else(|| bad(format!("{time:?} is no time of the day; want HH:MM")))?;
        let zone = match window.time_zone.as_deref() {
            None => TimeZone::UTC,
            Some(name) => TimeZone::get(name).map_err(|_| bad(format!("{name:?} is no known IANA time zone")))?,
        };
        if window.duration.0.is_zero() {
            return Err(bad("its duration is 0".into()));
        }
        Ok(Self { days, time, zone })
    }

    /// When it opens on the day that is `day` days after today; None: not on that weekday.
    fn start_on(&self, today: &Zoned, day: i32) -> Option<Timestamp> {
        let date = today.date().checked_add(day.days()).ok()?;
        // A time that a clock change skips is taken as the first one after it.
        self.days
            .contains(&date.weekday())
            .then(|| date.to_datetime(self.time).to_zoned(self.zone.clone()).ok())?
            .map(|at| at.timestamp())
    }
}

fn days_of(text: &str) -> Result<Vec<Weekday>, String> {
    let day = |name: &str| {
        DAYS.iter()
            .position(|(known, _)| *known == name)
            .ok_or_else(|| format!("{name:?} is no day; want Mon Tue Wed Thu Fri Sat Sun"))
    };
    let mut days = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (day(first)?, day(last)?);
        let count = (last + 7 - first) % 7 + 1;
        days.extend((0..count).filter_map(|step| DAYS.get((first + step) % 7)).map(|(_, day)| *day));
    }
    Ok(days)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(start: &str, duration: &str, zone: Option<&str>) -> Window {
        Window { start: start.into(), duration: duration.parse().unwrap(), time_zone: zone.map(str::to_owned) }
    }

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn open_from_the_start_until_before_the_end() {
        let windows = [window("22:00", "4h", None)];
        let closed = Windows::Closed { opens: Some(time("2026-03-02T22:00:00Z")) };
        let open = Windows::Open { until: Some(time("2026-03-03T02:00:00Z")) };
        let table = [
            ("2026-03-02T21:59:59Z", closed),
            ("2026-03-02T22:00:00Z", open),
            ("2026-03-03T01:59:59Z", open),
            ("2026-03-03T02:00:00Z", Windows::Closed { opens: Some(time("2026-03-03T22:00:00Z")) }),
        ];
        for (now, expected) in table {
            assert_eq!(at(&windows, time(now)).unwrap(), expected, "{now}");
        }
    }

    #[test]
    fn days_zones_and_the_union_of_windows() {
        // 2026-03-07 is a Saturday.
        let windows = [window("Sat,Sun 08:30", "2h", Some("Europe/Berlin")), window("Fri-Mon 20:00", "1h", None)];
        let open = |now: &str| matches!(at(&windows, time(now)).unwrap(), Windows::Open { .. });
        assert!(open("2026-03-07T07:30:00Z") && !open("2026-03-07T07:29:59Z"));
        assert!(open("2026-03-09T20:30:00Z"), "Monday is in Fri-Mon");
        assert!(!open("2026-03-10T20:30:00Z"), "Tuesday is not");
        assert!(!open("2026-03-06T07:30:00Z"), "Friday morning is in neither");
    }

    #[test]
    fn no_window_is_always_open_and_a_bad_one_is_an_error() {
        assert_eq!(at(&[], time("2026-03-07T07:30:00Z")), Ok(Windows::Open { until: None }));
        for start in ["", "8:30", "25:00", "Sat", "Satu 08:30", "Mon Tue 08:30", "08:30:00"] {
            assert!(at(&[window(start, "1h", None)], time("2026-03-07T07:30:00Z")).is_err(), "{start}");
        }
        assert!(at(&[window("08:30", "1h", Some("Mars/Base"))], time("2026-03-07T07:30:00Z")).is_err());
        assert!(at(&[window("08:30", "0s", None)], time("2026-03-07T07:30:00Z")).is_err());
    }
}
