//! Errors by number, those included that the kernel keeps to itself and that only a tracer sees.

use super::errno_names::ERRORS;

/// The lowest result that is an error, as a register has it.
const LOWEST: i64 = -4095;

/// Its name: `ENOENT`.
#[must_use]
pub fn name(number: i32) -> Option<&'static str> {
    entry(number).map(|(_, name, _)| *name)
}

/// What it says: `No such file or directory`.
#[must_use]
pub fn text(number: i32) -> Option<&'static str> {
    entry(number).map(|(_, _, text)| *text)
}

/// The number of a name.
#[must_use]
pub fn number(name: &str) -> Option<i32> {
    let found = ERRORS.iter().find(|(_, known, _)| *known == name);
    found.map(|(number, ..)| i32::from(*number))
}

/// The error in a register that a call came back with; None: it succeeded.
#[must_use]
pub fn of_result(result: i64) -> Option<i32> {
    let error = (LOWEST..0).contains(&result).then(|| -result)?;
    i32::try_from(error).ok()
}

fn entry(number: i32) -> Option<&'static (u16, &'static str, &'static str)> {
    let number = u16::try_from(number).ok()?;
    let at = ERRORS.binary_search_by_key(&number, |(known, ..)| *known).ok()?;
    ERRORS.get(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_a_name_and_says_something() {
        for (error, wanted) in [
            (2, Some(("ENOENT", "No such file or directory"))),
            (11, Some(("EAGAIN", "Resource temporarily unavailable"))),
            (95, Some(("EOPNOTSUPP", "Operation not supported"))),
            (133, Some(("EHWPOISON", "Memory page has hardware error"))),
            (512, Some(("ERESTARTSYS", "To be restarted if SA_RESTART is set"))),
            (516, Some(("ERESTART_RESTARTBLOCK", "Interrupted by signal"))),
            (524, Some(("ENOTSUPP", "Unknown error 524"))),
            (0, None),
            (-2, None),
            (134, None),
            (70_000, None),
        ] {
            assert_eq!(name(error).zip(text(error)), wanted, "{error}");
            if let Some((name, _)) = wanted {
                assert_eq!(number(name), Some(error));
            }
        }
        assert_eq!(number("ENOSUCH"), None);
    }

    #[test]
    fn the_table_is_sorted_and_a_result_is_an_error_down_to_4095() {
        assert!(ERRORS.is_sorted_by_key(|(number, ..)| *number));
        for (result, error) in [
            (0, None),
            (-1, Some(1)),
            (-4095, Some(4095)),
            (-4096, None),
            (i64::MIN, None),
        ] {
            assert_eq!(of_result(result), error, "{result}");
        }
    }
}
