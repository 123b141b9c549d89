//! The API server's time: what its `Date` headers said, carried on by a monotonic clock. The one way to read time.
//!
//! Laptops and pods disagree about the time of day; deadlines, windows and soak times are compared with what the API server wrote into
//! objects, so its clock is the one that counts. On the simulator's paused clock this works unchanged: its responses carry `Date` too.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The longest a response's `Date` may be trusted to lie before its arrival: the header has whole seconds.
const HEADER_STEP: SignedDuration = SignedDuration::from_secs(1);

/// Cheap to clone; all clones share one reading.
#[derive(Debug, Clone, Default)]
pub struct Clock(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The server's time at an instant of ours.
    anchor: Option<(Timestamp, Instant)>,
    /// What was last told, and when: time never goes back.
    told: Option<(Timestamp, Instant)>,
}

impl Clock {
    /// A clock that knows no time until the first response.
    pub fn new() -> Self {
        Self::default()
    }

    /// A clock set by hand, for tests and for pictures made without a server.
    pub fn starting_at(now: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(State { anchor: Some((now, Instant::now())), told: None })))
    }

    /// The API server's time, to about a second. Never goes back; before the first response it is the Unix epoch.
    pub fn now(&self) -> Timestamp {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).read(Instant::now())
    }

    /// Whether any response has told the time yet.
    pub fn is_set(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).anchor.is_some()
    }

    /// Learn from a response: its `Date` header, and when the request was sent.
    pub fn observe(&self, headers: &http::HeaderMap, sent: Instant) {
        let Some(date) = headers.get(http::header::DATE).and_then(|value| value.to_str().ok()).and_then(parse_date) else {
            return;
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).observe(date, sent, Instant::now());
    }
}

impl State {
    /// The header was written between `sent` and `received`, and cut to the second: the server's time at `received` is at least `date`,
    /// and at `sent` it was less than `date` plus one second. Among several answers the latest lower bound is the closest.
    fn observe(&mut self, date: Timestamp, sent: Instant, received: Instant) {
        let Some((at, since)) = self.anchor else {
            self.anchor = Some((date, received));
            return;
        };
        let believed = at + signed(received.saturating_duration_since(since));
        let highest = date + HEADER_STEP + signed(received.saturating_duration_since(sent));
        if believed < date {
            self.anchor = Some((date, received));
        } else if believed > highest {
            self.anchor = Some((highest, received));
        }
    }

    fn read(&mut self, instant: Instant) -> Timestamp {
        let Some((at, since)) = self.anchor else { return Timestamp::UNIX_EPOCH };
        let believed = at + signed(instant.saturating_duration_since(since));
        // After a server's clock was set back, ours goes at half speed until they meet.
        let now = match self.told {
            Some((told, when)) => believed.max(told + signed(instant.saturating_duration_since(when)) / 2),
            None => believed,
        };
        self.told = Some((now, instant));
        now
    }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, 5.6.7).
fn parse_date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::parse(text).ok().map(|zoned| zoned.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn reads_the_header_of_http() {
        assert_eq!(parse_date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(at("1994-11-06T08:49:37Z")));
        assert_eq!(parse_date("yesterday"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn follows_the_server_and_runs_on_by_itself() {
        let clock = Clock::new();
        assert!(!clock.is_set());
        let mut headers = http::HeaderMap::new();
        headers.insert("date", "Sun, 06 Nov 1994 08:49:37 GMT".parse().unwrap());
        clock.observe(&headers, Instant::now());
        assert_eq!(clock.now(), at("1994-11-06T08:49:37Z"));
        tokio::time::advance(Duration::from_millis(2500)).await;
        assert_eq!(clock.now(), at("1994-11-06T08:49:39.5Z"));
    }

    #[test]
    fn a_whole_second_header_never_pulls_time_back() {
        let start = Instant::now();
        let mut state = State::default();
        state.observe(at("1994-11-06T08:49:37Z"), start, start);
        let later = start + Duration::from_millis(900);
        // The server's true time is 37.9 or so; it still says 37.
        state.observe(at("1994-11-06T08:49:37Z"), later, later);
        assert_eq!(state.read(later), at("1994-11-06T08:49:37.9Z"));
    }

    #[test]
    fn a_server_set_back_slows_time_and_never_reverses_it() {
        let start = Instant::now();
        let mut state = State::default();
        state.observe(at("1994-11-06T08:49:37Z"), start, start);
        assert_eq!(state.read(start), at("1994-11-06T08:49:37Z"));
        state.observe(at("1994-11-06T08:40:00Z"), start, start);
        assert_eq!(state.read(start), at("1994-11-06T08:49:37Z"));
        assert_eq!(state.read(start + Duration::from_secs(10)), at("1994-11-06T08:49:42Z"));
    }

    #[test]
    fn a_jump_forward_is_followed_at_once() {
        let start = Instant::now();
        let mut state = State::default();
        state.observe(at("1994-11-06T08:49:37Z"), start, start);
        state.observe(at("1994-11-06T09:00:00Z"), start, start);
        assert_eq!(state.read(start), at("1994-11-06T09:00:00Z"));
    }
}
