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
        // A line that cannot be written is lost. The default tells of it on standard error, which is what has failed,
        // and panics: a log reader that went away would end the server.
        .log_internal_errors(false)
        .with_target(false);
    match format {
        Some("json") => log.json().flatten_event(true).init(),
        _ => log.init(),
    }
}
