//! Where log lines go: standard error, as a person reads them or one JSON object each. Set up once, by `main`.

use tracing::Level;

/// Starts logging.
pub fn start(format: Option<&str>, level: Option<&str>) {
    let level = match level {
        Some("error") => Level::ERROR,
        Some("info") => Level::INFO,
        Some("debug") => Level::DEBUG,
        Some("trace") => Level::TRACE,
        _ => Level::WARN,
    };
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_target(false);
    match format {
        Some("json") => log.json().flatten_event(true).init(),
        _ => log.init(),
    }
}
