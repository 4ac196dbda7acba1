//! A recording in other formats: asciicast v2 (asciinema), text, JSON lines, and a picture of the screen at a moment. Only
//! the JSON has the bytes as they were recorded; the others are made from what the screen showed.

mod asciicast;
mod json;
mod svg;
mod text;

pub use asciicast::asciicast;
pub use json::json;
pub use svg::svg;
pub use text::text;
